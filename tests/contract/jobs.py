"""Jobs and moves for the suite."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from shared.domain import lifecycle, work_index
from shared.domain.job import Job, Lane
from shared.domain.lifecycle import Move, MoveResult, Won
from shared.domain.work_index import LeaveIndex, Nominee
from shared.ports import Ledger
from tests.contract.worlds import CLASS, NOW_MS


def a_job(job_id: str = "job-1", **fields: Any) -> Job:
    job = Job(
        job_id=job_id,
        job_class=CLASS,
        match_id="Köln vs. 1. FC – Halbfinale",
        payload='{"replay": "it\'s ?", "ö": 1}',
        due_ms=NOW_MS,
        eligible_ms=NOW_MS,
        created_ms=NOW_MS,
    )
    return replace(job, **fields)


def nominee_of(job: Job) -> Nominee:
    """What the index shows of the row, once it is up to date."""
    place = lifecycle.place_of(job)
    assert not isinstance(place, LeaveIndex)
    return Nominee(job_id=job.job_id, match_id=job.match_id, epoch=job.epoch, key=place)


def claim_of(job: Job, *, nonce: str = "pacer", now_ms: int = NOW_MS + 1000) -> Move:
    return lifecycle.claim(
        nominee_of(job),
        job_class=CLASS,
        lane=Lane.LIVE,
        run_id=f"{CLASS}@2026-11-30T12:00Z",
        nonce=nonce,
        now_ms=now_ms,
        hand_until_ms=0,
    )


def won(result: MoveResult) -> Job:
    assert isinstance(result, Won), result
    return result.job


def queued(ledger: Ledger, job_id: str = "job-1") -> Job:
    """A row that was created and claimed."""
    ledger.create([a_job(job_id)])
    return won(ledger.move(claim_of(a_job(job_id))))


def shown(ledger: Ledger, partition: str) -> list[Nominee]:
    """Everything that the index shows in a partition."""
    return list(ledger.page(partition, low="", high="~", limit=1000).nominees)


def inflight(job_id: str = "job-1") -> str:
    return work_index.inflight_partition(CLASS, shard=work_index.shard_of(job_id))


def waiting(job_id: str = "job-1", *, retried: bool = False) -> str:
    return work_index.waiting_partition(CLASS, priority=0, shard=work_index.shard_of(job_id), retried=retried)
