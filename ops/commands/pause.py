"""`pause CLASS` and `halt CLASS`: stop admission, and return when nothing more can be admitted.

`resume CLASS`: let the next tick admit again.

`webhook close|open [CLASS]`: whether the public webhook may admit runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, TypeAlias

import click
from msgspec import to_builtins

from ops.access import Access
from ops.commands.choice import caller, class_named, signed
from ops.wording import plain
from shared.domain.control import Control
from shared.domain.job import Flag
from shared.domain.settings import Settings
from shared.errors import InvalidInput
from shared.operate import switches

_Stop: TypeAlias = Callable[..., Flag]

_EFFECTS: Final = {
    "pause": "what is in flight settles, delayed retries stay, deployments change nothing",
    "halt": "workers give their jobs back at the next chunk, within seconds; no attempt is burnt, no progress is lost",
}


@click.command(short_help="Stop admission of a class.")
@click.argument("job_class", metavar="CLASS")
@signed
@click.pass_obj
def pause(access: Access, *, job_class: str, reason: str, by: str | None, dry_run: bool, as_json: bool) -> None:
    """Admit nothing more of CLASS. What is in flight settles, delayed retries stay, deployments change nothing.

    The command returns when the pause is committed: until then a tick that began before it may still be claiming,
    which takes seconds, and at most as long as a tick.

    \b
    Example
      python -m ops pause replay_summary --reason "the upstream answers nonsense"
    """
    _stop(access, "pause", switches.pause, job_class, reason, by, dry_run=dry_run, as_json=as_json)


@click.command(short_help="Stop admission, and let workers give their jobs back.")
@click.argument("job_class", metavar="CLASS")
@signed
@click.pass_obj
def halt(access: Access, *, job_class: str, reason: str, by: str | None, dry_run: bool, as_json: bool) -> None:
    """Pause CLASS, and let its workers give their jobs back at the next chunk: for work that does harm.

    A chunk that runs ends in its own time, and its result is kept. What was given back waits, with its cursor and
    without a burnt attempt, until a resume. Like a pause, a halt is data: deployments change nothing.

    \b
    Example
      python -m ops halt replay_summary --reason "release 1.4.1 writes empty summaries"
    """
    _stop(access, "halt", switches.halt, job_class, reason, by, dry_run=dry_run, as_json=as_json)


def _stop(
    access: Access, name: str, stop: _Stop, job_class: str, reason: str, by: str | None, *, dry_run: bool, as_json: bool
) -> None:
    settings = class_named(access.settings(), job_class)
    who, ports = caller(access, by), access.ports()
    before = ports.ledger.read_control(settings.name)
    done = {"pause": "paused", "halt": "halted"}[name]
    flag = switches.signed(ports, who, reason, expected=f"why the class is {done}")
    if not dry_run:
        if not as_json:
            click.echo("Waiting until no tick can admit any more ...", err=True)
        flag = stop(ports, settings.name, by=who, why=reason)
    if as_json:
        change = {"job_class": settings.name, "dry_run": dry_run, name: to_builtins(flag)}
        click.echo(json.dumps(change, ensure_ascii=False))
        return
    if dry_run:
        click.echo("Dry run, nothing was changed.")
    click.echo(f"{settings.name}: {done} by {flag.by}: {plain(flag.why)}")
    click.echo(f"  {_EFFECTS[name]}")
    for line in _before(before):
        click.echo(f"  {line}")
    click.echo(f'  undo: python -m ops resume {settings.name} --reason "..."')


def _before(control: Control) -> list[str]:
    """What was so already, and what the last tick saw of the rows that this is about."""
    lines = [
        f"it was {word} already by {was.by}: {plain(was.why)}"
        for word, was in (("paused", control.pause), ("halted", control.halt))
        if was is not None
    ]
    if control.history:
        last = control.history[-1]
        waiting = last.waiting.total + last.later + last.behind
        lines.append(f"as of the last tick {waiting:,} jobs wait and {last.in_flight:,} are in flight")
    return lines


@click.command(short_help="Let a paused or halted class be admitted again.")
@click.argument("job_class", metavar="CLASS")
@signed
@click.pass_obj
def resume(access: Access, *, job_class: str, reason: str, by: str | None, dry_run: bool, as_json: bool) -> None:
    """End the pause and the halt of CLASS: its next tick admits again. Nothing was forgotten, and no time was earned
    meanwhile.

    \b
    Example
      python -m ops resume replay_summary --reason "the upstream is back"
    """
    settings = class_named(access.settings(), job_class)
    who, ports = caller(access, by), access.ports()
    before = ports.ledger.read_control(settings.name)
    if dry_run:
        flag = switches.signed(ports, who, reason, expected="why the class is resumed")
    else:
        flag = switches.resume(ports, settings.name, by=who, why=reason)
    if as_json:
        click.echo(json.dumps(_figures(settings.name, before, flag, dry_run=dry_run), ensure_ascii=False))
        return
    if dry_run:
        click.echo("Dry run, nothing was changed.")
    click.echo("\n".join(_lines(settings.name, before, flag)))


def _figures(name: str, before: Control, flag: Flag, *, dry_run: bool) -> dict[str, object]:
    was = None if before.pause is None else to_builtins(before.pause)
    was_halted = None if before.halt is None else to_builtins(before.halt)
    ended = {"pause": None, "halt": None, "was": was, "was_halted": was_halted}
    return {"job_class": name, "dry_run": dry_run, **ended, "resumed": to_builtins(flag)}


def _lines(name: str, before: Control, flag: Flag) -> list[str]:
    ended = [(word, was) for word, was in (("paused", before.pause), ("halted", before.halt)) if was is not None]
    if not ended:
        return [f"{name}: was not paused."]
    lines = [f"{name}: resumed by {flag.by}: {plain(flag.why)}"]
    lines += [f"  it was {word} by {was.by}: {plain(was.why)}" for word, was in ended]
    if before.history:
        lines.append(
            f"  as of the last tick {before.history[-1].pending:,} jobs are unfinished; the next one admits again"
        )
    again = "halt" if before.halt is not None else "pause"
    return [*lines, f'  undo: python -m ops {again} {name} --reason "..."']


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
@click.pass_obj
def close(access: Access, *, job_class: str | None, reason: str, by: str | None, dry_run: bool, as_json: bool) -> None:
    """Refuse every request for CLASS (all classes that are open to the webhook) from now on, with 409 "closed".

    A request that was being admitted at this moment leaves a run that its tick closes as skipped. What is in flight
    settles, and a class that has a schedule of runs of its own goes on.

    \b
    Example
      python -m ops webhook close --reason "the CI token was printed in a log"
    """
    _switch(access, job_class, reason, by, closed=True, dry_run=dry_run, as_json=as_json)


@webhook.command(name="open", short_help="Let runs in from outside again.")
@click.argument("job_class", metavar="[CLASS]", required=False)
@signed
@click.pass_obj
def open_(access: Access, *, job_class: str | None, reason: str, by: str | None, dry_run: bool, as_json: bool) -> None:
    """Let the webhook admit runs of CLASS (all classes that are open to it) again.

    \b
    Example
      python -m ops webhook open --reason "the secret was rotated"
    """
    _switch(access, job_class, reason, by, closed=False, dry_run=dry_run, as_json=as_json)


def _switch(
    access: Access,
    job_class: str | None,
    reason: str,
    by: str | None,
    *,
    closed: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    names = _classes(access.settings(), job_class)
    ports, who = access.ports(), caller(access, by)
    if dry_run:
        flag = switches.signed(ports, who, reason, expected="why the webhook is switched")
    else:
        flag = switches.switch_webhook(ports, names, closed=closed, by=who, why=reason)
    if as_json:
        switched = {"classes": names, "webhook_closed": closed, "webhook_switched": to_builtins(flag)}
        click.echo(json.dumps({"dry_run": dry_run, **switched}, ensure_ascii=False))
        return
    if dry_run:
        click.echo("Dry run, nothing was changed.")
    other = "open" if closed else "close"
    for name in names:
        click.echo(f"{name}: webhook {'closed' if closed else 'opened'} by {flag.by}: {plain(flag.why)}")
        click.echo(f'  undo: python -m ops webhook {other} {name} --reason "..."')


def _classes(settings: Settings, name: str | None) -> list[str]:
    names = sorted(settings.webhook_classes) if name is None else [class_named(settings, name).name]
    if not settings.webhook_classes.issuperset(names) or not names:
        raise InvalidInput("CLASS", got="a class without the webhook", expected="webhook = true in the configuration")
    return names
