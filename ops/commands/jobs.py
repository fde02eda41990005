"""Dead jobs: `dead list|show` says which wait for an operator, `retry|skip|replace JOB` is what one does about it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from shlex import quote
from textwrap import indent
from typing import Any, Final

import click
from msgspec import to_builtins

from ops.access import Access
from ops.commands.options import Change, answer, class_named, read_text, signed
from ops.submission.json_lines import fields_of
from ops.submission.rows import new_job
from ops.wording import aligned, counted, duration, moment, plain, signature
from shared.domain.job import Job, State, same_work
from shared.domain.settings import ClassSettings
from shared.errors import InvalidInput
from shared.operate import jobs, switches
from shared.operate.jobs import DeadList, DeadRow, dead_job, list_dead, show_dead
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
    dead = list_dead(ports, settings, limit=limit)
    figures = {"class": settings.name, "total": dead.total, "dead": dead.rows}
    answer(as_json, figures, _list_in_words(settings.name, dead, ports.clock.now_ms()))


def _list_in_words(name: str, dead: DeadList, now_ms: int) -> Iterator[str]:
    if not dead.rows:
        yield f"{name}: no dead jobs."
        return
    yield f"{name}: {dead.total:,} dead, the first to die at the top"
    table = [_cells(row, now_ms) for row in dead.rows]
    yield indent(aligned(table, left=len(table[0])), "  ")
    if dead.total > len(dead.rows):
        yield f"  {dead.total - len(dead.rows):,} more: --limit {dead.total}"


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
    answer(as_json, to_builtins(row), in_words(row, settings))


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
        yield f"  before    {signature(row.changed, with_time=True)}"
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


_NO_WAY_BACK: Final = (
    "undo: none, {what} is the end of a job. To have its work done after all, submit it under a new id:"
    " python -m ops submit"
)
"""Instead of an undo: an ended job stays ended."""


@click.command(short_help="Try a dead job again.")
@click.argument("job_id", metavar="JOB")
@signed
def retry(change: Change, *, job_id: str) -> None:
    """Admit JOB again, with all its bounds fresh. It goes on behind its last finished chunk, in the recovery lane.

    \b
    Example
      python -m ops retry replay-4711 --reason "the summary prompt was mended in 1.4.2"
    """
    case = _Case(change, job_id)
    if not change.dry_run:
        jobs.retry(case.ports, job_id, signature=case.signature, nonce=uuid.uuid4().hex)
    row = case.row
    lines = [f"  bounds: {counted(row.attempts, 'attempt')} and {row.crashes} crashes -> 0"]
    if row.holds:
        lines.append(f"  its match stays held until it ends: {counted(row.holds, 'job')} behind it")
    undo = f"undo: none; python -m ops pause {row.job_class} before the next tick keeps it waiting"
    case.say(State.WAITING, [*lines, *case.waits(), f"  {undo}"])


@click.command(short_help="Give a dead job up.")
@click.argument("job_id", metavar="JOB")
@signed
def skip(change: Change, *, job_id: str) -> None:
    """End JOB as skipped. In an ordered class the next job of its match then waits for its tick.

    \b
    Example
      python -m ops skip replay-4711 --reason "the guild was deleted"
    """
    case = _Case(change, job_id)
    if not change.dry_run:
        jobs.skip(case.ports, case.settings, job_id, signature=case.signature, nonce=uuid.uuid4().hex)
    lines = [] if case.row.next_id is None else [f"  {plain(case.row.next_id)} is the next of its match", *case.waits()]
    undo = _NO_WAY_BACK.format(what="a skip")
    case.say(State.SKIPPED, [*lines, f"  {undo}"])


@click.command(short_help="Put another job in a dead one's place.")
@click.argument("job_id", metavar="JOB")
@click.argument("new", metavar="NEW.json|-")
@signed
def replace(change: Change, *, job_id: str, new: str) -> None:
    """End JOB as replaced by the job in NEW.json (- is standard input), which takes its place in its match.

    The file is one JSON object as for `submit`: a new job_id and a payload. Class and match are those of JOB.

    \b
    Example
      echo '{"job_id": "replay-4711-b", "payload": {"replay_key": "replays/4711-mended"}}' \\
        | python -m ops replace replay-4711 - --reason "the replay was uploaded again"
    """
    document = read_text(new, "NEW.json", expected="one JSON object")
    case = _Case(change, job_id)
    job = jobs.dead_job(case.ports, job_id)
    other = _replacement(case, job, document)
    if not change.dry_run:
        jobs.replace(case.ports, case.settings, job_id, other, signature=case.signature, nonce=uuid.uuid4().hex)
    name = plain(other.job.job_id)
    place = f", place {job.seq} of its match" if case.settings.ordered else ""
    undo = _NO_WAY_BACK.format(what="a replacement")
    lines = [f"  {name}: new, waiting{place}", *case.waits(), f"  {undo}"]
    case.say(State.REPLACED, lines, replacement=other.job.job_id)


class _Case:
    """The dead job as it was before, and the signature of who decides on it."""

    def __init__(self, change: Change, job_id: str) -> None:
        self._change = change
        self.ports = change.ports
        self.all_settings = change.access.settings()
        self.settings = change.class_named(jobs.dead_job(self.ports, job_id).job_class)
        self.row = show_dead(self.ports, self.settings, job_id)
        self.signature = switches.signed(self.ports, change.who, change.why, expected="why this is done")

    def waits(self) -> list[str]:
        """When what waits now will be claimed."""
        control = self.ports.ledger.read_control(self.settings.name)
        flag = control.halt or control.pause
        if flag is None:
            return ["  a tick claims it when the budget allows"]
        state = "halted" if control.halt else "paused"
        return [f"  no tick claims it before a resume: the class is {state} by {signature(flag)}"]

    def say(self, state: State, lines: Sequence[str], **more: Any) -> None:
        figures = {
            "dry_run": self._change.dry_run,
            "job_id": self.row.job_id,
            "was": State.DEAD.value,
            "is": state.value,
            "changed": self.signature,
            **more,
            "effects": [line.strip() for line in lines],
        }
        head = f"{plain(self.row.job_id)}: dead -> {state.value}, by {signature(self.signature)}"
        self._change.answer(figures, [head, *lines])


def _replacement(case: _Case, job: Job, document: str) -> NewRow:
    """Judged as every submitted job is, and against the dead one, before anything is written."""
    fields = {"job_class": job.job_class, "match_id": job.match_id} | fields_of(document)
    fields.setdefault("priority", job.priority)
    other = new_row(new_job(fields, default_class=None), case.all_settings, now_ms=case.ports.clock.now_ms())
    jobs.check_replacement(job, other.job)
    there = case.ports.ledger.read_job(other.job.job_id)
    # The same work under the same id is an action that was interrupted: it is finished.
    if there is not None and (case.settings.ordered or not same_work(there, other.job)):
        raise InvalidInput("replacement", got="an id that exists", expected="a new id")
    return other
