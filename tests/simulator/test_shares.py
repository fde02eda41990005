"""Two classes on one upstream: each has its share while both have work, and all of it while the other has none.

`large` has rows all the time. In the run `both_busy` `small` has too; in `one_idle` it gets some at `WOKEN_S`, as much
as its share serves in ten minutes. Every row is an hour old: recovery, so that no lane changes in the middle of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Final

import pytest

from ops.simulator.hosts import ScheduleFaults
from ops.simulator.measure import per_1000
from ops.simulator.sluice_world import SimSluice
from ops.simulator.upstream import UpstreamTruth
from ops.simulator.world import START_MS
from shared.domain.job import NewJob
from shared.domain.settings import ClassSettings, Settings, UpstreamSettings

SEEDS = [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 21))]
"""`pytest -m slow tests/simulator/test_shares.py` runs the other eighteen of the twenty."""

LIMIT_PER_S: Final = 10.0
SHARES: Final = {"large": 0.7, "small": 0.3}

TICK_S: Final = 60
WOKEN_S: Final = 504
SECOND_TICK_S: Final = WOKEN_S - WOKEN_S % TICK_S + 2 * TICK_S
"""The second tick after the rows of `small` have come."""

BUSY_S: Final = 1020
SMALL_BUSY_S: Final = 1080
"""Until here both have rows in `both_busy`, and `small` in `one_idle`."""

FILLED_S: Final = 180
"""The first three minutes, in which the pool fills, are left out."""

FIVE_MINUTES_S: Final = 300
LENT_S: Final = 120
STEP_S: Final = 10
"""Windows are judged wherever they begin: every ten seconds one does."""


class Pair:
    """The world of the two classes, run by hand."""

    def __init__(self, seed: int, *, late_ms: int = 3_000) -> None:
        classes = {
            name: ClassSettings(
                name=name, kind="sim", upstream="api", upstream_share=share, slots=40, declared_service_s=0.6
            )
            for name, share in SHARES.items()
        }
        upstream = UpstreamSettings(name="api", endpoint="http://api", limit_per_s=LIMIT_PER_S)
        self.sluice = SimSluice(
            Settings(upstreams={"api": upstream}, classes=classes),
            seed,
            keep_trace=False,
            truths={"api": UpstreamTruth(limit_per_s=LIMIT_PER_S, bucket_calls=20)},
            schedule_faults=ScheduleFaults(late_ms=(0, late_ms)),
        )

    def submit(self, name: str, rows: int) -> None:
        now_ms = self.sluice.world.now_ms
        self.sluice.submit(
            [
                NewJob(
                    job_id=f"{name}-{now_ms}-{number}",
                    job_class=name,
                    match_id=f"{name}-{number}",
                    payload='{"chunk_ms": 400}',
                    due_ms=now_ms - 3_600_000,
                )
                for number in range(rows)
            ]
        )

    def until(self, second: float) -> None:
        self.sluice.world.run(START_MS + round(second * 1000))

    def calls(self, first_s: float, length_s: float) -> Counter[str]:
        """Calls of each class that arrived in so many seconds from `first_s` on."""
        low, high = START_MS + first_s * 1000, START_MS + (first_s + length_s) * 1000
        return Counter(call.key.partition("-")[0] for call in self.sluice.upstream.calls if low <= call.at_ms < high)

    def share_of_small(self, first_s: float, length_s: float) -> float:
        calls = self.calls(first_s, length_s)
        return calls["small"] / max(1, calls.total())


@cache
def both_busy(seed: int, *, late_ms: int = 3_000) -> Pair:
    pair = Pair(seed, late_ms=late_ms)
    pair.submit("large", 9_000)
    pair.submit("small", 4_000)
    pair.until(BUSY_S)
    return pair


@cache
def one_idle(seed: int) -> Pair:
    pair = Pair(seed)
    pair.submit("large", 14_000)
    pair.until(WOKEN_S)
    pair.submit("small", 1_800)
    pair.until(1500)
    return pair


def busy_stretches(seed: int) -> Iterator[Counter[str]]:
    """Any five minutes in which both have work, in either run."""
    for first_s in range(FILLED_S, BUSY_S - FIVE_MINUTES_S, STEP_S):
        yield both_busy(seed).calls(first_s, FIVE_MINUTES_S)
    for first_s in range(SECOND_TICK_S, SMALL_BUSY_S - FIVE_MINUTES_S, STEP_S):
        yield one_idle(seed).calls(first_s, FIVE_MINUTES_S)


@pytest.mark.parametrize("seed", SEEDS)
def test_while_both_have_work_each_has_its_share_within_2_points_in_any_5_minutes(seed: int) -> None:
    stretches = list(busy_stretches(seed))
    assert max(abs(calls["small"] / calls.total() - SHARES["small"]) for calls in stretches) <= 0.02
    assert min(calls.total() for calls in stretches) >= 0.95 * FIVE_MINUTES_S * LIMIT_PER_S


def test_so_it_is_with_ticks_that_are_ten_seconds_late() -> None:
    pair = both_busy(3, late_ms=10_000)
    for first_s in range(120, 17 * 60 - 300, 10):
        assert pair.share_of_small(first_s, 300) == pytest.approx(0.3, abs=0.02), f"from {first_s} s"


@pytest.mark.parametrize("seed", SEEDS)
def test_an_idle_class_lends_all_of_its_share_in_any_2_minutes(seed: int) -> None:
    for first_s in range(FILLED_S, WOKEN_S - LENT_S, STEP_S):
        assert one_idle(seed).calls(first_s, LENT_S)["large"] >= 0.97 * LENT_S * LIMIT_PER_S, f"from {first_s} s"


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_lent_is_given_back_within_two_ticks(seed: int) -> None:
    """By the minute of the second tick after the rows came, to within 3 points of the share."""
    minutes_s = (SECOND_TICK_S - TICK_S, SECOND_TICK_S)
    assert max(one_idle(seed).share_of_small(minute_s, TICK_S) for minute_s in minutes_s) >= SHARES["small"] - 0.03


def test_and_it_is_lent_again_when_the_other_is_done() -> None:
    pair = one_idle(1)
    done_ms = max(step.at_ms for step in pair.sluice.ledger.steps if step.after.job_class == "small")
    from_s = (done_ms - START_MS) / 1000 + 120

    assert from_s > WOKEN_S
    assert pair.calls(from_s, 120)["large"] >= 0.97 * 120 * LIMIT_PER_S


def test_a_paused_class_lends_too() -> None:
    pair = Pair(1)
    pair.submit("large", 6_000)
    pair.submit("small", 3_000)
    pair.until(144)
    pair.sluice.pause("small")
    pair.until(480)

    assert pair.calls(300, 120)["large"] >= 0.97 * 120 * LIMIT_PER_S


@pytest.mark.parametrize("seed", SEEDS)
def test_refusals_stay_few_while_shares_move(seed: int) -> None:
    upstreams = [run(seed).sluice.upstream for run in (both_busy, one_idle)]
    refusals, calls = sum(one.refusals for one in upstreams), sum(len(one.calls) for one in upstreams)
    assert per_1000(refusals, calls) <= 2
