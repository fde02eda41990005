"""`resume CLASS`: let the next tick admit again."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from ops.access import Access
from ops.commands.choice import caller, class_named, signed
from ops.wording import plain
from shared.core.flags import Flag
from shared.core.runs import Control
from shared.usecases import operate


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
        flag = operate.flag(ports, who, reason, expected="why the class is resumed")
    else:
        flag = operate.resume(ports, settings.name, by=who, why=reason)
    if as_json:
        click.echo(json.dumps(_figures(settings.name, before, flag, dry_run=dry_run), ensure_ascii=False))
        return
    if dry_run:
        click.echo("Dry run, nothing was changed.")
    click.echo("\n".join(_lines(settings.name, before, flag)))


def _figures(name: str, before: Control, flag: Flag, *, dry_run: bool) -> dict[str, object]:
    was = None if before.pause is None else asdict(before.pause)
    was_halted = None if before.halt is None else asdict(before.halt)
    ended = {"pause": None, "halt": None, "was": was, "was_halted": was_halted}
    return {"job_class": name, "dry_run": dry_run, **ended, "resumed": asdict(flag)}


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
