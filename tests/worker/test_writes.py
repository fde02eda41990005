"""What a job and a tick cost, counted at the ports: 3 writes a job; 2,400 claims and 240 sends a tick, in parallel."""

from __future__ import annotations

import pytest

from ops.simulator.world import START_MS
from tests.worlds import HOUR_MS, Bench, jobs, settings

PER_TICK = ("admit_run", "take_run", "withdraw", "plan_run", "close_run")


@pytest.mark.parametrize(
    ("chunks", "writes_per_job"),
    [
        (1, 3),  # create, claim, finish
        (4, 6),  # one more per further chunk
    ],
)
@pytest.mark.parametrize("batch_size", [1, 10])
def test_a_job_costs_three_writes_and_one_per_further_chunk(chunks: int, writes_per_job: int, batch_size: int) -> None:
    sluice = Bench(settings(batch_size=batch_size), ticks=True, workers=True)
    sluice.submit(jobs(40, chunks=chunks, chunk_ms=200))
    assert sluice.drain(max_ms=HOUR_MS)
    writes = dict(sluice.report().writes)
    ticks = [writes.pop(name) for name in PER_TICK]
    assert ticks == [len(sluice.history)] * len(PER_TICK)
    workers = sum("/tick" not in one.name and one.name != "submit-1" for one in sluice.world.invocations)
    assert writes.pop("add_stats") <= workers
    assert sum(writes.values()) == 40 * writes_per_job
    assert writes["create"] == writes["claim"] == writes["finish"] == 40


@pytest.mark.parametrize("live", [2400, 720])  # lent to one lane, and split as the share says
def test_a_tick_of_2400_rows_makes_2400_claim_writes_and_240_sends_in_parallel(live: int) -> None:
    sluice = Bench(settings(slots=40, declared_service_s=1.0, max_inflight=5000), keep_trace=False)
    old = jobs(2400 - live, matches=600, name="old", due_ms=START_MS - HOUR_MS)
    sluice.submit([*jobs(live, matches=600), *old])
    tick = sluice.tick(1, at_s=60)
    (report,) = sluice.ended(tick)
    assert (report.plan.budget, report.admitted, report.confirmed) == (2400, 2400, 2400)
    assert sluice.ledger.writes["claim"] == 2400
    assert sluice.queue.send_calls == 240
    assert tick.ended_ms is not None
    took_ms, one_by_one_ms = tick.ended_ms - tick.at_ms, (2400 + 240) * 5
    assert took_ms < one_by_one_ms / 10


def test_a_tick_claims_only_what_it_may_although_more_waits() -> None:
    sluice = Bench(settings(slots=4, declared_service_s=12.0))
    sluice.submit(jobs(300))
    sluice.ticked(1, at_s=60)
    assert (sluice.ledger.writes["claim"], sluice.queue.send_calls) == (20, 2)
