"""Dead jobs: what an operator sees of them before deciding, and the actions: retry, skip, replace (I5, I9).

A dead job of an ordered class holds its match until one of these; then its successors go on, in order. Each action is
fenced on (dead, epoch) as read, so of two operators one wins and the other is told. The row keeps who it was and why.
What is shown has no payload (I12).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace as with_changes

from shared.domain import lifecycle, ordering, work_index
from shared.domain.job import Created, Flag, Job, State
from shared.domain.lifecycle import Lost, Move, Won
from shared.domain.ordering import MatchChanged
from shared.domain.settings import ClassSettings
from shared.domain.work_index import Nominee
from shared.errors import InvalidInput, LedgerUnavailable
from shared.ports import Ports
from shared.steps.turns import end_and_pass_on
from shared.submit.validation import NewRow

_TRIES: Final = 5
"""How often a replacement is decided anew because others changed the match."""

_PAGE: Final = 1000
"""Rows of one read of the index."""

_END: Final = "~"
"""Sorts after every position: positions are digits and `#`."""


class DeadRow(Struct, frozen=True, kw_only=True):
    """`holds` counts the jobs of its match that cannot start before an operator acts; `next_id` is the first."""

    job_id: str
    job_class: str
    match_id: str
    seq: int
    reason: str
    attempts: int
    crashes: int
    transport_deaths: int
    begun: bool
    created_ms: int
    due_ms: int
    died_ms: int
    holds: int
    next_id: str | None
    changed: Flag | None


class DeadList(Struct, frozen=True, kw_only=True):
    """The first rows, oldest death first, and how many there are."""

    rows: tuple[DeadRow, ...]
    total: int


# -- what there is


def list_dead(ports: Ports, settings: ClassSettings, *, limit: int) -> DeadList:
    """Two reads a row (three in an ordered class), of at most `limit` rows: at once on any ledger size."""
    partition = work_index.dead_partition(settings.name)
    total = ports.ledger.count(partition, low=work_index.at(0), high=_END)

    def read(nominee: Nominee) -> DeadRow | None:
        job = ports.ledger.read_job(nominee.job_id)
        if job is None or job.state is not State.DEAD:
            return None  # the index may still list a row that was retried a moment ago (fact F17)
        return _dead_row(ports, settings, job)

    rows = tuple(row for row in ports.parallel.map(read, _first(ports, partition, limit)) if row is not None)
    return DeadList(rows=rows, total=max(total, len(rows)))


def show_dead(ports: Ports, settings: ClassSettings, job_id: str) -> DeadRow:
    """One dead job. Raises `InvalidInput` for an id that is not of one."""
    return _dead_row(ports, settings, dead_job(ports, job_id))


def dead_job(ports: Ports, job_id: str) -> Job:
    """The row, if an operator may move it now. Raises `InvalidInput` otherwise."""
    job = ports.ledger.read_job(job_id)
    if job is None:
        raise InvalidInput("JOB", got="an id that no row has", expected="the id of a dead job")
    if job.state is not State.DEAD:
        raise InvalidInput("JOB", got=f"a job that is not dead but {job.state.value}", expected="the id of a dead job")
    return job


def _first(ports: Ports, partition: str, limit: int) -> list[Nominee]:
    nominees: list[Nominee] = []
    resume: str | None = None
    while len(nominees) < limit:
        size = min(_PAGE, limit - len(nominees))
        page = ports.ledger.page(partition, low=work_index.at(0), high=_END, limit=size, resume=resume)
        nominees.extend(page.nominees)
        resume = page.resume
        if resume is None:
            break
    return nominees[:limit]


def _dead_row(ports: Ports, settings: ClassSettings, job: Job) -> DeadRow:
    holds, next_id = 0, None
    if settings.ordered:
        match = ports.ledger.read_match(job.job_class, job.match_id)
        holds = max(0, match.tail_seq - match.head_seq) if match.head_seq == job.seq else 0
        next_id = ports.ledger.job_id_at(match, job.seq + 1) if holds else None
    return DeadRow(
        job_id=job.job_id,
        job_class=job.job_class,
        match_id=job.match_id,
        seq=job.seq,
        reason=job.last_error,
        attempts=job.attempts,
        crashes=job.crashes,
        transport_deaths=job.transport_deaths,
        begun=job.cursor != "",
        created_ms=job.created_ms,
        due_ms=job.due_ms,
        died_ms=job.eligible_ms,
        holds=holds,
        next_id=next_id,
        changed=job.changed,
    )


# -- the actions


def retry(ports: Ports, job_id: str, *, signature: Flag, nonce: str) -> None:
    """Admit the row again, with fresh bounds; never the old message."""
    job = dead_job(ports, job_id)
    _move(ports, lifecycle.retry(job, signature=signature, nonce=nonce))
    ports.log.event("job_retried", job_class=job.job_class)


def skip(ports: Ports, settings: ClassSettings, job_id: str, *, signature: Flag, nonce: str) -> None:
    """Give the job up; the next of its match waits for its tick."""
    job = dead_job(ports, job_id)
    move = lifecycle.skip(job, signature=signature, nonce=nonce)
    if not settings.ordered:
        _move(ports, move)
    elif isinstance(end_and_pass_on(ports, settings, move, job, nonce=nonce), Lost):
        raise _not_dead()
    ports.log.event("job_skipped", job_class=job.job_class)


def replace(ports: Ports, settings: ClassSettings, job_id: str, other: NewRow, *, signature: Flag, nonce: str) -> None:
    """Put `other` in the dead job's place. It must be of the same class and match, under a new id.

    Without an order there is no place: the new job is created, then the old one is marked. A crash in between leaves
    the old one dead, and the same command again finishes it.
    """
    job = dead_job(ports, job_id)
    check_replacement(job, other.job)
    if other.body is not None:
        ports.blobs.put_once(other.job.payload_key, other.body, content_type="application/json")
    entering = with_changes(other.job, nonce=nonce, changed=signature)
    if settings.ordered:
        _replace_head(ports, job, entering, signature=signature, nonce=nonce)
    elif ports.ledger.create([entering])[0] is Created.DIFFERENT:
        raise _id_taken()
    else:
        _move(ports, lifecycle.replace_by_another(job, signature=signature, nonce=nonce))
    ports.log.event("job_replaced", job_class=job.job_class)


def check_replacement(job: Job, other: Job) -> None:
    """Raises `InvalidInput` for a job that cannot take the dead one's place."""
    if (other.job_class, other.match_id) != (job.job_class, job.match_id):
        raise InvalidInput("replacement", got="another class or match", expected="those of the dead job")
    if other.job_id == job.job_id:
        raise _id_taken()


def _replace_head(ports: Ports, job: Job, other: Job, *, signature: Flag, nonce: str) -> None:
    for _ in range(_TRIES):
        if ports.ledger.read_job(other.job_id) is not None:
            raise _id_taken()
        match = ports.ledger.read_match(job.job_class, job.match_id)
        result = ports.ledger.step_match(ordering.replace_head(match, job, other, signature=signature, nonce=nonce))
        if isinstance(result, Lost):
            raise _not_dead()
        if not isinstance(result, MatchChanged):
            return
    raise LedgerUnavailable("the match is too busy")


def _move(ports: Ports, move: Move) -> None:
    if not isinstance(ports.ledger.move(move), Won):
        raise _not_dead()


def _not_dead() -> InvalidInput:
    return InvalidInput("JOB", got="a job that is not dead any more", expected="the id of a dead job")


def _id_taken() -> InvalidInput:
    return InvalidInput("replacement", got="an id that exists", expected="a new id")
