"""What an operator sees of dead jobs before deciding about them. Nothing is written, and no payload is shown (I12)."""

from __future__ import annotations

from typing import Final

from shared.core import work_index
from shared.core.flags import Flag
from shared.core.model import Job, Nominee, State
from shared.core.settings import ClassSettings
from shared.core.values import frozen
from shared.ports import Ports
from shared.usecases.repair import dead_job

_END: Final = "~"
"""Sorts after every position: positions are digits and `#`."""

_PAGE: Final = 1000


@frozen
class DeadRow:
    """`holds` counts the jobs of its match that cannot start before an operator's word; `next_id` is the first."""

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


@frozen
class DeadList:
    """The first rows, oldest death first, and how many there are."""

    rows: tuple[DeadRow, ...]
    total: int


def list_dead(ports: Ports, settings: ClassSettings, *, limit: int) -> DeadList:
    """Two reads a row (three in an ordered class), of at most `limit` rows: at once on any ledger size."""
    partition = work_index.dead_partition(settings.name)
    total = ports.ledger.count(partition, low=work_index.at(0), high=_END)
    seen = ports.parallel.map(
        lambda nominee: _shown(ports, settings, ports.ledger.read_job(nominee.job_id)), _first(ports, partition, limit)
    )
    rows = tuple(row for row in seen if row is not None)
    return DeadList(rows=rows, total=max(total, len(rows)))


def show_dead(ports: Ports, settings: ClassSettings, job_id: str) -> DeadRow:
    """One dead job. Raises `InvalidInput` for an id that is not of one."""
    return _of(ports, settings, dead_job(ports, job_id))


def _first(ports: Ports, partition: str, limit: int) -> list[Nominee]:
    found: list[Nominee] = []
    resume: str | None = None
    while len(found) < limit:
        size = min(_PAGE, limit - len(found))
        page = ports.ledger.page(partition, low=work_index.at(0), high=_END, limit=size, resume=resume)
        found.extend(page.nominees)
        resume = page.resume
        if resume is None:
            break
    return found[:limit]


def _shown(ports: Ports, settings: ClassSettings, job: Job | None) -> DeadRow | None:
    """The index may still list a row that was retried a moment ago (TRAPS 17)."""
    return None if job is None or job.state is not State.DEAD else _of(ports, settings, job)


def _of(ports: Ports, settings: ClassSettings, job: Job) -> DeadRow:
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
