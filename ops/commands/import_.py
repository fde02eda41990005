"""`import FILE`: put an exported ledger into this deployment; its classes arrive paused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from ops.commands.options import FAILED, INTERRUPTED, WRONG_INPUT, Change, answer, signed
from ops.long_run import meter_for
from ops.submission.source import opened
from ops.transfer.importing import Import, Imported, Standing
from ops.wording import counted, signature
from shared.errors import InvalidInput


@click.command(name="import", short_help="Put an exported ledger into this deployment.")
@click.argument("file", metavar="FILE|-")
@click.option("--merge", is_flag=True, help="Although the class has other rows here: the file's stand beside them.")
@signed
def import_(change: Change, *, file: str, merge: bool) -> None:
    """Put what `export` wrote into this deployment's ledger. The whole file is checked first, and compared with the
    ledger: with a fault in it, or an id that another job has here, nothing is written. Then whatever is not there is
    created, and nothing is ever written over, so that the same command may be run again after whatever happened.

    The classes arrive paused: stop the other deployment for good, then resume them here. Nobody but you sees to it
    that not both work the same jobs.

    \b
    Examples
      python -m ops --outputs new.json import ledger.jsonl --dry-run --reason "moves to the new account"
      python -m ops --outputs new.json import ledger.jsonl --reason "moves to the new account"

    \b
    Exit codes
      0    every row of the file is in the ledger, now or before
      1    it does not fit this ledger; nothing was written
      2    the file is not a whole export, or not for these classes; nothing was written
      3    AWS did not answer; what was written stays, run it again
      130  interrupted; what was written stays, run it again
    """
    access, who = change.access, change.who
    if not change.why.strip():
        raise InvalidInput("--reason", got="an empty string", expected="why this is imported")
    run = Import(access.ports(), access.settings(), access.ledger_copy(), meter_for(sys.stderr))
    try:
        with opened(file, rewindable=True) as source:
            result = run.run(source, by=who, why=change.why, merge=merge, dry_run=change.dry_run)
    except KeyboardInterrupt:
        click.echo("Interrupted. Run the same command again to go on.", err=True)
        click.get_current_context().exit(INTERRUPTED)
    for line in _errors(result):
        click.echo(f"error: {line}", err=True)
    if change.as_json or not result.refused:
        answer(change.as_json, _figures(result, dry_run=change.dry_run), _in_words(result, dry_run=change.dry_run))
    conflicts = result.compared.standings[Standing.CONFLICTING] > 0
    code = 0 if not result.refused else FAILED if conflicts or result.other_rows else WRONG_INPUT
    click.get_current_context().exit(code)


def _errors(result: Imported) -> Iterator[str]:
    compared = result.compared
    yield from (f"line {line}: {fault}" if line else fault for line, fault in compared.faults)
    if compared.faulty > len(compared.faults):
        yield f"{compared.faulty - len(compared.faults):,} more lines like these"
    for name, rows in result.other_rows.items():
        expected = "a class without any, or --merge to let the file's stand beside them"
        yield f"{name}: got {counted(rows, 'row')} that the file does not speak of, expected {expected}"
    if result.refused:
        yield "nothing was imported"


def _figures(result: Imported, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "lines": result.compared.counts,
        **{standing.value: result.compared.standings[standing] for standing in Standing},
        **{name: getattr(result, name) for name in ("created", "outputs", "payloads", "runs")},
        "faults": result.compared.faulty,
        "other_rows": result.other_rows,
        "stopped": result.stopped,
        "seconds": round(result.seconds, 3),
    }


def _in_words(result: Imported, *, dry_run: bool) -> Iterator[str]:
    standings = result.compared.standings
    there = counted(standings[Standing.EXISTING], "row")
    header = result.compared.header
    if dry_run:
        yield "Dry run, nothing was changed."
        names = ", ".join(header.names if header else ())
        yield f"{counted(standings[Standing.ABSENT], 'row')} would be created, {there} already there; {names} paused."
        return
    written = f"{counted(result.outputs, 'output')}, {counted(result.runs, 'run')}"
    yield f"{counted(result.created, 'row')} created, {there} already there; {written} ({result.seconds:,.1f} s)."
    for name, flag in result.stopped.items():
        yield f"{name}: stopped by {signature(flag)}"
        yield "  next: stop the other deployment for good, then"
        yield f'        python -m ops resume {name} --reason "..."'
    yield "undo: none; the rows stay paused until a resume, and the other deployment still has its own"
