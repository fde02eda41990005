"""`pause CLASS` and `halt CLASS`: stop admission, and return when nothing more can be admitted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Final, TypeAlias

import click

from ops.access import Access
from ops.commands.choice import caller, class_named, signed
from ops.wording import plain
from shared.core.flags import Flag
from shared.core.runs import Control
from shared.usecases import operate

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
    _stop(access, "pause", operate.pause, job_class, reason, by, dry_run=dry_run, as_json=as_json)


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
    _stop(access, "halt", operate.halt, job_class, reason, by, dry_run=dry_run, as_json=as_json)


def _stop(
    access: Access, name: str, stop: _Stop, job_class: str, reason: str, by: str | None, *, dry_run: bool, as_json: bool
) -> None:
    settings = class_named(access.settings(), job_class)
    who, ports = caller(access, by), access.ports()
    before = ports.ledger.read_control(settings.name)
    done = {"pause": "paused", "halt": "halted"}[name]
    flag = operate.flag(ports, who, reason, expected=f"why the class is {done}")
    if not dry_run:
        if not as_json:
            click.echo("Waiting until no tick can admit any more ...", err=True)
        flag = stop(ports, settings.name, by=who, why=reason)
    if as_json:
        change = {"job_class": settings.name, "dry_run": dry_run, name: asdict(flag)}
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
