"""Live work gets its share of every budget, an unused share is lent, and an outage makes live rows recovery (I8)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from ops.simulator.faults import FaultOn, Stall, When
from ops.simulator.world import START_MS
from shared.domain.job import Job, Lane, LaneCounts
from shared.domain.settings import RetrySettings
from shared.errors import UpstreamRejected
from shared.kind import Chunk, ChunkContext
from tests.worlds import HOUR_MS, TWENTY_A_TICK, Bench, FunctionKind, jobs, settings

HOUR = {"live_window_s": 3600, **TWENTY_A_TICK}
"""Rows stay live for an hour; 20 rows a tick, of which live has 6."""


def bench(*, live: int, recovery: int, changes: dict[str, Any] | None = None) -> Bench:
    sluice = Bench(settings(**(HOUR | (changes or {}))), workers=True)
    sluice.submit(jobs(recovery, name="old", due_ms=START_MS - 2 * HOUR_MS, chunk_ms=200) if recovery else [])
    sluice.submit(jobs(live, name="new", chunk_ms=200) if live else [])
    return sluice


def lanes(sluice: Bench, ticks: range) -> list[tuple[int, int]]:
    """(live, recovery) claims of each of these minutes' ticks."""
    split = []
    for minute in ticks:
        before = sluice.claimed(Lane.LIVE), sluice.claimed(Lane.RECOVERY)
        sluice.ticked(minute, at_s=minute * 60)
        split.append((sluice.claimed(Lane.LIVE) - before[0], sluice.claimed(Lane.RECOVERY) - before[1]))
    return split


def test_live_gets_its_share_of_every_budget_under_a_backlog() -> None:
    assert lanes(bench(live=100, recovery=100), range(1, 6)) == [(6, 14)] * 5


def test_an_unused_live_share_is_lent_in_the_same_tick_and_comes_back_in_the_next() -> None:
    sluice = bench(live=2, recovery=100)
    assert lanes(sluice, range(1, 3)) == [(2, 18), (0, 20)]
    sluice.submit(jobs(50, name="fresh", chunk_ms=200))
    assert lanes(sluice, range(3, 5)) == [(6, 14), (6, 14)]  # what was lent is not owed


def test_an_unused_recovery_share_is_lent_to_live_and_comes_back() -> None:
    sluice = bench(live=100, recovery=4)
    assert lanes(sluice, range(1, 3)) == [(16, 4), (20, 0)]
    sluice.submit(jobs(40, name="older", due_ms=START_MS - 2 * HOUR_MS, chunk_ms=200))
    assert lanes(sluice, range(3, 5)) == [(6, 14), (6, 14)]


@pytest.mark.parametrize(
    ("service_s", "rows"),
    [
        (240.0, 10),  # one row a tick: live 3 of 10
        (800.0, 3),  # 0.3 rows a tick: live 1 of 3
    ],
)
def test_small_budgets_give_live_its_share_too(service_s: float, rows: int) -> None:
    sluice = bench(live=20, recovery=20, changes={"declared_service_s": service_s})
    split = lanes(sluice, range(1, 11))
    live, recovery = sum(one[0] for one in split), sum(one[1] for one in split)
    assert (live, recovery) == (round(rows * 0.3), rows - round(rows * 0.3))


def test_at_three_tenths_of_a_row_a_tick_neither_lane_starves() -> None:
    sluice = bench(live=20, recovery=20, changes={"declared_service_s": 800.0, "live_window_s": 2 * 3600})
    order = []
    for minute, (live, recovery) in enumerate(lanes(sluice, range(1, 101))):
        order += [(minute, Lane.LIVE)] * live + [(minute, Lane.RECOVERY)] * recovery
    counts = Counter(lane for _, lane in order)
    assert counts[Lane.RECOVERY] == 20  # all of the older work is done
    while_both_wait = [lane for _, lane in order[:28]]
    live_at = [position for position, lane in enumerate(while_both_wait) if lane is Lane.LIVE]
    assert len(live_at) == 8  # 0.3 x 28 = 8.4
    assert max(after - before for before, after in pairwise(live_at)) <= 4


@pytest.mark.parametrize(
    ("paused_s", "lane"),
    [
        (0, Lane.LIVE),
        (3600, Lane.RECOVERY),  # an outage turns live rows into recovery rows by itself
    ],
)
def test_an_hours_pause_turns_live_rows_into_recovery_rows(paused_s: int, lane: Lane) -> None:
    sluice = Bench(settings(live_window_s=300, **TWENTY_A_TICK), workers=True)
    sluice.submit(jobs(10, chunk_ms=200))
    if paused_s:
        sluice.pause("replays")
        for minute in range(1, 60):
            assert sluice.ticked(minute, at_s=minute * 60).admitted == 0
        sluice.until(paused_s)
        assert sluice.history[-1].waiting == LaneCounts(live=0, recovery=10)
        sluice.resume("replays")
    assert sluice.ticked(70, at_s=paused_s + 60).admitted == 10
    assert sluice.claimed(lane) == 10


def test_rows_that_were_tried_before_are_never_live_again() -> None:
    seen: Counter[str] = Counter()

    def chunk(job: Job, cursor: str, context: ChunkContext) -> Chunk:
        seen[job.job_id] += 1
        if seen[job.job_id] == 1:
            raise UpstreamRejected()
        return Chunk(next_cursor=None)

    retry = RetrySettings(base_delay_s=1.0)
    sluice = Bench(settings(retry=retry, **HOUR), workers=True, kinds={"sim": FunctionKind(chunk)})
    sluice.submit(jobs(10))
    assert lanes(sluice, range(1, 3)) == [(10, 0), (0, 10)]
    assert sluice.history[-1].waiting == LaneCounts(live=0, recovery=10)


def test_a_live_message_does_not_stand_behind_a_ticks_worth_of_recovery_messages() -> None:
    sluice = Bench(settings(live_window_s=3600, slots=8, declared_service_s=12.0), workers=True)
    sluice.submit(jobs(40, name="old", due_ms=START_MS - 2 * HOUR_MS, chunk_ms=12_000))
    sluice.submit(jobs(2, name="new", chunk_ms=12_000))
    sluice.ticked(1, at_s=60)
    sluice.until(62)
    first = sluice.kinds["replays"].starts[:8]
    assert {start.job_id for start in first} >= {"new0", "new1"}  # 38 recovery rows were claimed in the same tick
    assert sluice.claimed() == 40


def test_a_row_keeps_the_lane_it_was_claimed_for_when_its_window_ends_on_the_way() -> None:
    """Counted as live, claimed a moment later as recovery at worst: never lost from both."""
    slow = FaultOn("ledger.plan_run", Stall(30_000), 1, When.AFTER)
    sluice = Bench(settings(live_window_s=60, **TWENTY_A_TICK), crash=slow)
    sluice.submit(jobs(10))
    sluice.ticked(1, at_s=45)
    sluice.ticked(2, at_s=120)
    assert sluice.claimed() == 10
