"""`dead list|show`: the jobs that wait for an operator, and what each of them holds.

`retry|skip|replace JOB`: an operator's word about a dead job.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, Final

import click
from msgspec import to_builtins

from ops.access import Access
from ops.commands.choice import caller, class_named, signed
from ops.submission.json_lines import fields_of
from ops.submission.rows import new_job
from ops.wording import counted, duration, moment, plain
from shared.domain.job import Job, State, same_work
from shared.domain.settings import ClassSettings
from shared.errors import InvalidInput
from shared.operate import jobs, switches
from shared.operate.jobs import DeadRow, dead_job, list_dead, show_dead
from shared.ports import Ports
from shared.submit.validation import NewRow, new_row


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
        rows = [to_builtins(row) for row in found.rows]
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
        click.echo(json.dumps(to_builtins(row), ensure_ascii=False))
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


_LARGEST_DOCUMENT: Final = 4 * 1024 * 1024
"""A payload of 1 MiB, written as wastefully as JSON allows, and ids."""

_NO_WAY_BACK: Final = (
    "undo: none, {what} is the end of a job. To have its work done after all, submit it under a new id:"
    " python -m ops submit"
)


@click.command(short_help="Try a dead job again.")
@click.argument("job_id", metavar="JOB")
@signed
@click.pass_obj
def retry(access: Access, *, job_id: str, reason: str, by: str | None, dry_run: bool, as_json: bool) -> None:
    """Admit JOB again, with all its bounds fresh. It goes on behind its last finished chunk, in the recovery lane.

    \b
    Example
      python -m ops retry replay-4711 --reason "the summary prompt was mended in 1.4.2"
    """
    case = _Case(access, job_id, reason, by)
    if not dry_run:
        jobs.retry(case.ports, job_id, signature=case.signature, nonce=uuid.uuid4().hex)
    row = case.row
    lines = [f"  bounds: {counted(row.attempts, 'attempt')} and {row.crashes} crashes -> 0"]
    if row.holds:
        lines.append(f"  its match stays held until it ends: {counted(row.holds, 'job')} behind it")
    undo = f"undo: none; python -m ops pause {row.job_class} before the next tick keeps it waiting"
    case.say(State.WAITING, [*lines, *case.waits(), f"  {undo}"], dry_run=dry_run, as_json=as_json)


@click.command(short_help="Give a dead job up.")
@click.argument("job_id", metavar="JOB")
@signed
@click.pass_obj
def skip(access: Access, *, job_id: str, reason: str, by: str | None, dry_run: bool, as_json: bool) -> None:
    """End JOB as skipped. In an ordered class the next job of its match then waits for its tick.

    \b
    Example
      python -m ops skip replay-4711 --reason "the guild was deleted"
    """
    case = _Case(access, job_id, reason, by)
    if not dry_run:
        jobs.skip(case.ports, case.settings, job_id, signature=case.signature, nonce=uuid.uuid4().hex)
    lines = [] if case.row.next_id is None else [f"  {plain(case.row.next_id)} is the next of its match", *case.waits()]
    undo = _NO_WAY_BACK.format(what="a skip")
    case.say(State.SKIPPED, [*lines, f"  {undo}"], dry_run=dry_run, as_json=as_json)


@click.command(short_help="Put another job in a dead one's place.")
@click.argument("job_id", metavar="JOB")
@click.argument("new", metavar="NEW.json|-")
@signed
@click.pass_obj
def replace(
    access: Access, *, job_id: str, new: str, reason: str, by: str | None, dry_run: bool, as_json: bool
) -> None:
    """End JOB as replaced by the job in NEW.json (- is standard input), which takes its place in its match.

    The file is one JSON object as for `submit`: a new job_id and a payload. Class and match are those of JOB.

    \b
    Example
      echo '{"job_id": "replay-4711-b", "payload": {"replay_key": "replays/4711-mended"}}' \\
        | python -m ops replace replay-4711 - --reason "the replay was uploaded again"
    """
    document = _read(new)
    case = _Case(access, job_id, reason, by)
    job = jobs.dead_job(case.ports, job_id)
    other = _replacement(access, case.ports, job, document, ordered=case.settings.ordered)
    if not dry_run:
        jobs.replace(case.ports, case.settings, job_id, other, signature=case.signature, nonce=uuid.uuid4().hex)
    name = plain(other.job.job_id)
    place = f", place {job.seq} of its match" if case.settings.ordered else ""
    undo = _NO_WAY_BACK.format(what="a replacement")
    lines = [f"  {name}: new, waiting{place}", *case.waits(), f"  {undo}"]
    case.say(State.REPLACED, lines, dry_run=dry_run, as_json=as_json, replacement=other.job.job_id)


class _Case:
    """The dead job as it was before, and the signature of who decides on it."""

    def __init__(self, access: Access, job_id: str, reason: str, by: str | None) -> None:
        self.ports = access.ports()
        self.settings: ClassSettings = class_named(access.settings(), jobs.dead_job(self.ports, job_id).job_class)
        self.row: DeadRow = show_dead(self.ports, self.settings, job_id)
        self.signature = switches.signed(self.ports, caller(access, by), reason, expected="why this is done")

    def waits(self) -> list[str]:
        """When what waits now will be claimed."""
        control = self.ports.ledger.read_control(self.settings.name)
        flag = control.halt or control.pause
        if flag is None:
            return ["  a tick claims it when the budget allows"]
        word = "halted" if control.halt else "paused"
        return [f"  no tick claims it before a resume: the class is {word} by {flag.by}: {plain(flag.why)}"]

    def say(self, state: State, lines: Sequence[str], *, dry_run: bool, as_json: bool, **more: Any) -> None:
        if as_json:
            change = {
                "job_id": self.row.job_id,
                "was": State.DEAD.value,
                "is": state.value,
                "changed": to_builtins(self.signature),
            }
            effects = [line.strip() for line in lines]
            click.echo(json.dumps({"dry_run": dry_run, **change, **more, "effects": effects}, ensure_ascii=False))
            return
        if dry_run:
            click.echo("Dry run, nothing was changed.")
        who = f"by {self.signature.by}: {plain(self.signature.why)}"
        click.echo("\n".join([f"{plain(self.row.job_id)}: dead -> {state.value}, {who}", *lines]))


def _read(path: str) -> str:
    try:
        raw = sys.stdin.buffer.read(_LARGEST_DOCUMENT + 1) if path == "-" else Path(path).read_bytes()
    except OSError as error:
        got = (error.strerror or "no answer").lower()
        raise InvalidInput("NEW.json", got=got, expected="a file with one JSON object") from None
    if len(raw) > _LARGEST_DOCUMENT:
        raise InvalidInput("NEW.json", got="more than 4 MB", expected="one JSON object")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("NEW.json", got="bytes that are not UTF-8", expected="one JSON object") from None


def _replacement(access: Access, ports: Ports, job: Job, document: str, *, ordered: bool) -> NewRow:
    """Judged as every submitted job is, and against the dead one, before anything is written."""
    fields = {"job_class": job.job_class, "match_id": job.match_id} | fields_of(document)
    fields.setdefault("priority", job.priority)
    other = new_row(new_job(fields, default_class=None), access.settings(), now_ms=ports.clock.now_ms())
    jobs.check_replacement(job, other.job)
    there = ports.ledger.read_job(other.job.job_id)
    if there is not None and (ordered or not same_work(there, other.job)):  # the same: finish what was interrupted
        raise InvalidInput("replacement", got="an id that exists", expected="a new id")
    return other
