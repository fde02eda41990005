"""`dead list|show`: the jobs that wait for an operator, and what each of them holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from shlex import quote

import click

from ops.access import Access
from ops.commands.choice import class_named
from ops.wording import counted, duration, moment, plain
from shared.core.settings import ClassSettings
from shared.usecases.dead_rows import DeadRow, list_dead, show_dead
from shared.usecases.repair import dead_job


@click.group(short_help="List and show dead jobs.")
def dead() -> None:
    """See the jobs that reached a bound of theirs and wait for retry, skip or replace. Payloads are never shown.

    \b
    Example
      python -m ops dead list replay_summary
    """


@dead.command(name="list", short_help="List the dead jobs of a class.")
@click.argument("job_class", metavar="CLASS")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most this many.")
@click.option("--json", "as_json", is_flag=True, help="Print the jobs as JSON.")
@click.pass_obj
def list_(access: Access, *, job_class: str, limit: int, as_json: bool) -> None:
    """List the dead jobs of CLASS, those that died first at the top. HOLDS counts what waits behind one of them.

    \b
    Example
      python -m ops dead list replay_summary --json | jq -r '.dead[].job_id'
    """
    settings = class_named(access.settings(), job_class)
    ports = access.ports()
    found = list_dead(ports, settings, limit=limit)
    if as_json:
        rows = [asdict(row) for row in found.rows]
        click.echo(json.dumps({"class": settings.name, "total": found.total, "dead": rows}, ensure_ascii=False))
        return
    if not found.rows:
        click.echo(f"{settings.name}: no dead jobs.")
        return
    now_ms = ports.clock.now_ms()
    click.echo(f"{settings.name}: {found.total:,} dead, the first to die at the top")
    for line in _table([_cells(row, now_ms) for row in found.rows]):
        click.echo(f"  {line}")
    if found.total > len(found.rows):
        click.echo(f"  {found.total - len(found.rows):,} more: --limit {found.total}")


@dead.command(short_help="Show one dead job.")
@click.argument("job_id", metavar="JOB")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.pass_obj
def show(access: Access, *, job_id: str, as_json: bool) -> None:
    """Show why JOB died, how far it came, and what it holds.

    \b
    Example
      python -m ops dead show replay-4711
    """
    ports = access.ports()
    settings = class_named(access.settings(), dead_job(ports, job_id).job_class)
    row = show_dead(ports, settings, job_id)
    if as_json:
        click.echo(json.dumps(asdict(row), ensure_ascii=False))
    else:
        click.echo("\n".join(in_words(row, settings)))


def in_words(row: DeadRow, settings: ClassSettings) -> Iterator[str]:
    retry = settings.retry
    place = f", place {row.seq}" if settings.ordered else ""
    yield f"{plain(row.job_id)}: dead since {moment(row.died_ms)}"
    yield f"  class     {row.job_class}"
    yield f"  match     {plain(row.match_id)}{place}"
    yield f"  reason    {plain(row.reason)}"
    yield (
        f"  bounds    {row.attempts} of {counted(retry.max_attempts, 'attempt')}, {row.crashes} of"
        f" {retry.max_crashes} crashes, {row.transport_deaths} of {retry.max_transport_deaths} deaths in transport"
    )
    yield f"  progress  {'its finished chunks are kept, it would go on behind them' if row.begun else 'none'}"
    yield f"  due       {moment(row.due_ms)}, created {moment(row.created_ms)}"
    yield f"  holds     {holds_in_words(row, settings)}"
    if row.changed is not None:
        yield f"  before    {row.changed.by} at {moment(row.changed.at_ms)}: {plain(row.changed.why)}"
    job = quote(row.job_id) if row.job_id.isprintable() else "JOB"
    yield f'  then      python -m ops retry {job} --reason "..."'
    yield f'            python -m ops skip {job} --reason "..."'
    yield f'            python -m ops replace {job} new.json --reason "..."'


def holds_in_words(row: DeadRow, settings: ClassSettings) -> str:
    if not settings.ordered:
        return "nothing: the class is not ordered"
    if not row.holds:
        return "nothing yet: no job is behind it, but the next one of its match will be"
    return f"{counted(row.holds, 'job')} behind it, the next is {plain(row.next_id or 'unknown')}"


def _cells(row: DeadRow, now_ms: int) -> tuple[str, ...]:
    return (
        plain(row.job_id),
        plain(row.reason),
        counted(row.attempts, "attempt"),
        f"for {duration(max(0, now_ms - row.died_ms) / 1000)}",
        f"holds {row.holds:,}" if row.holds else "",
        plain(row.match_id),
    )


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
