"""What a worker holds: the key that names a chunk, the same at every attempt; and what it knows of its class."""

from __future__ import annotations

from typing import Any

import pytest

from ops.simulator.faults import CrashOn, When
from ops.simulator.sluice_world import SimSluice
from ops.simulator.upstream import UpstreamTruth
from shared.domain.job import Flag, Job, NewJob, State
from shared.domain.upstream import Learned
from shared.kind import Chunk, ChunkContext
from tests.worlds import CLASS, HOUR_MS, Bench, FunctionKind, jobs, settings

ODD = ("Köln vs. 1. FC – Halbfinale", "Ko\u0308ln", "a b", "x" * 300, "j:1")


def keys(*faults: Any) -> list[tuple[str, str, str]]:
    """(job, cursor, key) of every attempt at the three chunks of every job."""
    attempts: list[tuple[str, str, str]] = []

    def chunk(job: Job, cursor: str, context: ChunkContext) -> Chunk:
        attempts.append((job.job_id, cursor, context.idempotency_key))
        context.put_blob_once(f"made/{context.idempotency_key}", b"x", content_type="text/plain")
        number = int(cursor or 0) + 1
        return Chunk(next_cursor=str(number) if number < 3 else None)

    bench = Bench(settings(), ticks=True, workers=True, faults=faults, kinds={"sim": FunctionKind(chunk)})
    new = [NewJob(job_id=job_id, job_class=CLASS, match_id=job_id, payload="{}") for job_id in ODD]
    bench.submit(new)
    assert bench.drain(max_ms=2 * HOUR_MS)
    assert len(bench.blobs.objects) == 3 * len(ODD)
    return attempts


def test_every_chunk_of_every_job_has_a_key_of_its_own_that_a_header_and_a_name_can_carry() -> None:
    attempts = keys()
    assert len({key for _, _, key in attempts}) == len(attempts) == 3 * len(ODD)
    assert all(len(key) <= 128 and key.isascii() and key.isprintable() and " " not in key for _, _, key in attempts)


@pytest.mark.parametrize("nth", [1, 4, 9])
def test_an_attempt_after_a_crash_has_the_key_of_the_one_before(nth: int) -> None:
    attempts = keys(CrashOn("blobs.put_once", nth, When.AFTER))
    assert len(attempts) > 3 * len(ODD)
    assert len(set(attempts)) == 3 * len(ODD)


# -- what is known of the class is read before the groups begin: none of them may meet a default


def test_of_ten_groups_that_start_together_none_runs_while_the_class_is_halted() -> None:
    sluice = Bench(settings(batch_size=10))
    sluice.submit(jobs(40))
    (report,) = sluice.ended(sluice.tick(0))
    sluice.ledger.set_halt(CLASS, Flag(by="ada", why="test", at_ms=sluice.world.now_ms))
    sluice.switch(True)
    sluice.run(30_000)

    assert report.admitted == 40
    assert sluice.kinds[CLASS].starts == []
    assert {job.state for job in sluice.rows.values()} == {State.WAITING}


def test_ten_groups_that_start_together_all_follow_the_learned_rate() -> None:
    made = settings(batch_size=10, limit_per_s=20.0)
    sluice = SimSluice(made, seed=1, truths={"inference": UpstreamTruth(limit_per_s=2.5)})
    sluice.ledger.store_learned("inference", Learned(rate_per_s=2.0, good_per_s=2.0), before=None)
    sluice.submit(jobs(100))
    sluice.run(3 * 60_000)

    assert sluice.upstream.refusals == 0
