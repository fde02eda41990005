"""`pause`, `halt` and `resume CLASS`: whether it is admitted. `webhook close|open [CLASS]`: whether from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import click

from ops.commands.options import Change, class_named, signed
from ops.wording import signature
from shared.domain.control import Control
from shared.domain.job import Flag
from shared.domain.settings import Settings
from shared.errors import InvalidInput
from shared.operate import switches

_EFFECTS: Final = {
    "paused": "what is in flight settles, delayed retries stay, deployments change nothing",
    "halted": (
        "workers give their jobs back at the next chunk, within seconds; no attempt is burnt, no progress is lost"
    ),
}
"""What a stop does to what is there already."""


@click.command(short_help="Stop admission of a class.")
@click.argument("job_class", metavar="CLASS")
@signed
def pause(change: Change, *, job_class: str) -> None:
    """Admit nothing more of CLASS. What is in flight settles, delayed retries stay, deployments change nothing.

    The command returns when the pause is committed: until then a tick that began before it may still be claiming,
    which takes seconds, and at most as long as a tick.

    \b
    Example
      python -m ops pause replay_summary --reason "the upstream answers nonsense"
    """
    _stop(change, job_class, "pause", "paused", switches.pause)


@click.command(short_help="Stop admission, and let workers give their jobs back.")
@click.argument("job_class", metavar="CLASS")
@signed
def halt(change: Change, *, job_class: str) -> None:
    """Pause CLASS, and let its workers give their jobs back at the next chunk: for work that does harm.

    A chunk that runs ends in its own time, and its result is kept. What was given back waits, with its cursor and
    without a burnt attempt, until a resume. Like a pause, a halt is data: deployments change nothing.

    \b
    Example
      python -m ops halt replay_summary --reason "release 1.4.1 writes empty summaries"
    """
    _stop(change, job_class, "halt", "halted", switches.halt)


def _stop(change: Change, job_class: str, command: str, state: str, stop: Callable[..., Flag]) -> None:
    name = change.class_named(job_class).name
    who, ports = change.who, change.ports
    before = ports.ledger.read_control(name)
    flag = switches.signed(ports, who, change.why, expected=f"why the class is {state}")
    if not change.dry_run:
        if not change.as_json:
            click.echo("Waiting until no tick can admit any more ...", err=True)
        flag = stop(ports, name, by=who, why=change.why)
    lines = [
        f"{name}: {state} by {signature(flag)}",
        f"  {_EFFECTS[state]}",
        *(f"  it was {earlier} already by {signature(was)}" for earlier, was in _stops(before)),
        *_at_the_last_tick(before),
        f'  undo: python -m ops resume {name} --reason "..."',
    ]
    change.answer({"job_class": name, "dry_run": change.dry_run, command: flag}, lines)


def _stops(control: Control) -> list[tuple[str, Flag]]:
    return [(state, flag) for state, flag in (("paused", control.pause), ("halted", control.halt)) if flag is not None]


def _at_the_last_tick(control: Control) -> Iterator[str]:
    if control.history:
        tick = control.history[-1]
        waiting = tick.waiting.total + tick.later + tick.behind
        yield f"  as of the last tick {waiting:,} jobs wait and {tick.in_flight:,} are in flight"


@click.command(short_help="Let a paused or halted class be admitted again.")
@click.argument("job_class", metavar="CLASS")
@signed
def resume(change: Change, *, job_class: str) -> None:
    """End the pause and the halt of CLASS: its next tick admits again. Nothing was forgotten, and no time was earned
    meanwhile.

    \b
    Example
      python -m ops resume replay_summary --reason "the upstream is back"
    """
    name = change.class_named(job_class).name
    who, ports = change.who, change.ports
    before = ports.ledger.read_control(name)
    if change.dry_run:
        flag = switches.signed(ports, who, change.why, expected="why the class is resumed")
    else:
        flag = switches.resume(ports, name, by=who, why=change.why)
    ended = {"pause": None, "halt": None, "was": before.pause, "was_halted": before.halt}
    figures = {"job_class": name, "dry_run": change.dry_run, **ended, "resumed": flag}
    change.answer(figures, _resumed(name, before, flag))


def _resumed(name: str, before: Control, flag: Flag) -> Iterator[str]:
    if before.admits:
        yield f"{name}: was not paused."
        return
    yield f"{name}: resumed by {signature(flag)}"
    for state, was in _stops(before):
        yield f"  it was {state} by {signature(was)}"
    if before.history:
        yield f"  as of the last tick {before.history[-1].pending:,} jobs are unfinished; the next one admits again"
    yield f'  undo: python -m ops {"pause" if before.halt is None else "halt"} {name} --reason "..."'


@click.group(short_help="Close the public webhook, or open it again.")
def webhook() -> None:
    """Revoke what the webhook may do, at once and without touching pacer or workers: schedules tick on.

    \b
    Example
      python -m ops webhook close --reason "the CI token was printed in a log"
    """


@webhook.command(short_help="Admit no more runs from outside.")
@click.argument("job_class", metavar="[CLASS]", required=False)
@signed
def close(change: Change, *, job_class: str | None) -> None:
    """Refuse every request for CLASS (all classes that are open to the webhook) from now on, with 409 "closed".

    A request that was being admitted at this moment leaves a run that its tick closes as skipped. What is in flight
    settles, and a class that has a schedule of runs of its own goes on.

    \b
    Example
      python -m ops webhook close --reason "the CI token was printed in a log"
    """
    _switch(change, job_class, closed=True)


@webhook.command(name="open", short_help="Let runs in from outside again.")
@click.argument("job_class", metavar="[CLASS]", required=False)
@signed
def open_(change: Change, *, job_class: str | None) -> None:
    """Let the webhook admit runs of CLASS (all classes that are open to it) again.

    \b
    Example
      python -m ops webhook open --reason "the secret was rotated"
    """
    _switch(change, job_class, closed=False)


def _switch(change: Change, job_class: str | None, *, closed: bool) -> None:
    names = _webhook_classes(change.access.settings(), job_class)
    ports, who = change.ports, change.who
    if change.dry_run:
        flag = switches.signed(ports, who, change.why, expected="why the webhook is switched")
    else:
        flag = switches.switch_webhook(ports, names, closed=closed, by=who, why=change.why)
    done, other = ("closed", "open") if closed else ("opened", "close")
    lines = []
    for name in names:
        lines.append(f"{name}: webhook {done} by {signature(flag)}")
        lines.append(f'  undo: python -m ops webhook {other} {name} --reason "..."')
    figures = {"dry_run": change.dry_run, "classes": names, "webhook_closed": closed, "webhook_switched": flag}
    change.answer(figures, lines)


def _webhook_classes(settings: Settings, name: str | None) -> list[str]:
    names = sorted(settings.webhook_classes) if name is None else [class_named(settings, name).name]
    if not settings.webhook_classes.issuperset(names) or not names:
        raise InvalidInput("CLASS", got="a class without the webhook", expected="webhook = true in the configuration")
    return names
