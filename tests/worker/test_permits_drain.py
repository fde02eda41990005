"""Permits at work: holds and leases after a wait, holders that die, slots and allowance as two bounds (I7)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

import pytest

from ops.simulator.checks.suite import Suite
from ops.simulator.faults import CrashOn, FaultOn, Stall, When
from ops.simulator.kinds import SimKind
from ops.simulator.sluice_world import SimSluice
from ops.simulator.upstream import UpstreamTruth
from ops.simulator.world import START_MS
from shared.domain.job import Job, State
from shared.kind import Chunk, ChunkContext
from tests.worker.permit_items import most_in
from tests.worlds import CLASS, HOUR_MS, MINUTE_MS, Bench, FunctionKind, jobs, settings

GENEROUS = {"inference": UpstreamTruth(limit_per_s=100_000.0)}
"""Refuses nobody: what bounds the calls is Sluice alone."""


@pytest.mark.parametrize("calls", [1, 3])
def test_permits_that_were_reserved_before_a_hold_start_no_call_inside_it(calls: int) -> None:
    """Four workers wait for slots 5 s apart when one that was refused elsewhere tells all to wait until 180 s."""
    made = settings(limit_per_s=0.2, slots=8, function_timeout_s=600)
    sluice = Bench(made, truths=GENEROUS, kinds=lambda world: {"sim": SimKind(world, calls_per_chunk=calls)})
    sluice.submit(jobs(4, chunk_ms=100))
    assert sluice.ticked(1, at_s=60).admitted == 4
    working = [sluice.work([delivery]) for delivery in sluice.receive()]
    sluice.until(62)
    assert sluice.limiter.reserved == {"inference": 4 * calls}
    assert len(sluice.upstream.calls) == 1
    sluice.limiter.hold(made.upstreams["inference"], until_ms=START_MS + 180_000)
    sluice.ended(*working)

    assert {job.state for job in sluice.rows.values()} == {State.DONE}
    assert len(sluice.upstream.calls) == 4 * calls
    assert min(call.at_ms for call in sluice.upstream.calls[1:]) >= START_MS + 180_000


def test_a_worker_that_stood_still_while_it_waited_for_permits_does_not_begin_the_chunk() -> None:
    """Fact F18: the wait ended long after the lease did. The queue has delivered again, and another did the job."""
    stalled = FaultOn("clock.sleep", Stall(20 * MINUTE_MS), 1, When.AFTER)
    made = settings(limit_per_s=0.5, function_timeout_s=60, chunk_margin_s=5.0, declared_chunk_s=1.0)
    sluice = Bench(made, crash=stalled, truths=GENEROUS)
    sluice.limiter.reserve(made.upstreams["inference"], calls=4, now_ms=START_MS + 60_000, latest_ms=START_MS + 60_000)
    sluice.submit(jobs(1, chunk_ms=100))
    assert sluice.ticked(1, at_s=60).admitted == 1
    deliveries = sluice.receive()
    zombie = sluice.work(deliveries, timeout_s=3600)
    sluice.until(300)
    assert sluice.kinds[CLASS].starts == []  # it waits for its permit still
    sluice.switch(True)
    sluice.until(600)
    assert sluice.rows["j0"].state is State.DONE
    assert len(sluice.kinds[CLASS].starts) == 1

    assert sluice.ended(zombie) == [[delivery.message_id for delivery in deliveries]]
    assert len(sluice.kinds[CLASS].starts) == 1
    assert len(sluice.upstream.calls) == 1


def test_a_worker_that_dies_with_its_permits_wastes_those_and_no_others() -> None:
    sluice = Bench(
        settings(limit_per_s=5.0, function_timeout_s=60),
        workers=True,
        ticks=True,
        truths=GENEROUS,
        crash=CrashOn("limiter.reserve", 3, When.AFTER),
    )
    sluice.submit(jobs(12, chunk_ms=100))
    assert sluice.drain(max_ms=HOUR_MS)
    assert len(sluice.upstream.calls) == 12
    assert sluice.limiter.reserved == {"inference": 13}


# -- two bounds, apart from one another


def drained(*, think_ms: Callable[[int], int] = lambda _: 0, **changes: Any) -> SimSluice:
    """150 jobs, all of them there from the start: a second's work after a call, and before it what `think_ms` says."""

    def chunk(job: Job, cursor: str, context: ChunkContext) -> Chunk:
        work(think_ms(sluice.world.now_ms - START_MS))
        context.call_upstream({})
        work(1_000)
        return Chunk(next_cursor=None)

    def work(ms: int) -> None:
        sluice.world.call("kind.work", partial(sluice.world.sleep, ms))

    made = settings(declared_service_s=1.2, max_inflight=1_000, **changes)
    sluice = SimSluice(made, 1, truths=GENEROUS, kinds={"sim": FunctionKind(chunk, calls_per_chunk=1)})
    suite = Suite(sluice)
    sluice.submit(jobs(150))
    assert sluice.drain(max_ms=HOUR_MS)
    suite.ended()
    assert not suite.broken
    return sluice


def most_workers(sluice: SimSluice) -> int:
    """The most worker invocations of the live lane at any time."""
    workers = [one for one in sluice.world.invocations if one.name.startswith(f"{CLASS}/live")]
    steps = sorted(step for one in workers for step in ((one.at_ms, 1), (one.ended_ms or 0, -1)))
    return max(accumulate(step for _, step in steps))


@pytest.mark.parametrize(("slots", "busy"), [(4, False), (40, True), (400, True)])
def test_more_slots_never_exceed_the_allowance(slots: int, busy: bool) -> None:
    sluice = drained(slots=slots, limit_per_s=5.0)
    in_ten_s = most_in([call.at_ms for call in sluice.upstream.calls], 9_900)  # a call follows its slot within 100 ms
    assert in_ten_s <= 5 * 10 + 1
    assert (in_ten_s >= 45) == busy  # 4 slots do not need the allowance, the others press against it


@pytest.mark.parametrize("limit_per_s", [1.0, 50.0, 400.0])
def test_a_higher_limit_never_exceeds_the_slots(limit_per_s: float) -> None:
    """16 slots, half of them the live lane's, where all the jobs are."""
    assert most_workers(drained(slots=16, live_share=0.5, limit_per_s=limit_per_s)) == 8


def test_permits_that_were_kept_for_seconds_are_void_and_start_no_pile_of_calls() -> None:
    """Every chunk thinks until a round ten seconds: all that had their permits by then would call at once."""
    sluice = drained(think_ms=lambda at_ms: -at_ms % 10_000, slots=200, limit_per_s=5.0)
    assert most_in([call.at_ms for call in sluice.upstream.calls], 9_900) <= 5 * 10 + 1
    assert sluice.limiter.reserved["inference"] > 200  # for 150 calls
