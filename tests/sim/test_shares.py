"""Two classes on one upstream: each has its share while both have work, and all of it while the other has none."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from ops.sim.hosts import ScheduleFaults
from ops.sim.sluice_world import SimSluice
from ops.sim.upstream import UpstreamTruth
from ops.sim.world import START_MS
from shared.core.model import NewJob
from shared.core.settings import ClassSettings, Settings, UpstreamSettings
from tests.sim.worlds import MINUTE_MS

LIMIT_PER_S = 10.0
SHARES = {"large": 0.7, "small": 0.3}
FIVE_MINUTES_CALLS = 300 * LIMIT_PER_S


class Pair:
    def __init__(self, seed: int, *, slots: int = 40, **options: Any) -> None:
        classes = {
            name: ClassSettings(
                name=name, kind="sim", upstream="api", upstream_share=share, slots=slots, declared_service_s=0.6
            )
            for name, share in SHARES.items()
        }
        upstream = UpstreamSettings(name="api", endpoint="http://api", limit_per_s=LIMIT_PER_S)
        self.sluice = SimSluice(
            Settings(upstreams={"api": upstream}, classes=classes),
            seed,
            keep_trace=False,
            truths={"api": UpstreamTruth(limit_per_s=LIMIT_PER_S, bucket_calls=20)},
            **options,
        )

    def submit(self, name: str, rows: int) -> None:
        """Rows of an hour ago: recovery, all of them, so that no lane changes in the middle of it."""
        now_ms = self.sluice.world.now_ms
        self.sluice.submit(
            [
                NewJob(
                    job_id=f"{name}-{now_ms}-{number}",
                    job_class=name,
                    match_id=f"{name}-{number}",
                    payload='{"chunk_ms": 400}',
                    due_ms=now_ms - 60 * MINUTE_MS,
                )
                for number in range(rows)
            ]
        )

    def until(self, minute: float) -> None:
        self.sluice.world.run(START_MS + round(minute * MINUTE_MS))

    def calls(self, first_s: float, last_s: float) -> Counter[str]:
        """Calls of each class that arrived in this time."""
        low, high = START_MS + first_s * 1000, START_MS + last_s * 1000
        return Counter(call.key.partition("-")[0] for call in self.sluice.upstream.calls if low <= call.at_ms < high)


@cache
def both_busy(seed: int, late: bool) -> Pair:
    faults = ScheduleFaults(late_ms=(0, 10_000)) if late else None
    pair = Pair(seed, schedule_faults=faults)
    pair.submit("large", 9_000)
    pair.submit("small", 4_000)
    pair.until(17)
    return pair


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_while_both_have_work_each_has_its_share_within_2_points_in_any_5_minutes(seed: int, late: bool) -> None:
    pair = both_busy(seed, late)
    for first_s in range(120, 17 * 60 - 300, 10):
        found = pair.calls(first_s, first_s + 300)
        total = sum(found.values())
        assert found["large"] / total == pytest.approx(0.7, abs=0.02), f"from {first_s} s: {dict(found)}"
        assert total >= 0.95 * FIVE_MINUTES_CALLS


@cache
def one_idle(seed: int) -> Pair:
    """`large` has rows all the time; `small` gets some after 8 minutes, for about 8 minutes."""
    pair = Pair(seed)
    pair.submit("large", 14_000)
    pair.until(8.4)
    pair.submit("small", 1_500)
    pair.until(24)
    return pair


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_idle_class_lends_all_of_its_share(seed: int) -> None:
    pair = one_idle(seed)

    for first_s in range(120, 480 - 120, 10):
        assert pair.calls(first_s, first_s + 120)["large"] >= 0.97 * 120 * LIMIT_PER_S


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_was_lent_is_given_back_within_two_ticks(seed: int) -> None:
    """The rows came at 8.4 minutes; the second tick after that is the one of minute 10."""
    pair = one_idle(seed)
    for first_s in range(660, 840 - 120, 10):
        found = pair.calls(first_s, first_s + 120)
        assert found["small"] / sum(found.values()) == pytest.approx(0.3, abs=0.03), f"from {first_s} s: {dict(found)}"
    third_tick = pair.calls(600, 660)
    assert third_tick["small"] / sum(third_tick.values()) >= 0.27, dict(third_tick)


def test_and_it_is_lent_again_when_the_other_is_done() -> None:
    pair = one_idle(1)
    done_ms = max(step.at_ms for step in pair.sluice.ledger.steps if step.after.job_class == "small")
    from_s = (done_ms - START_MS) / 1000 + 120

    assert pair.calls(from_s, from_s + 120)["large"] >= 0.97 * 120 * LIMIT_PER_S


def test_a_paused_class_lends_too() -> None:
    pair = Pair(1)
    pair.submit("large", 6_000)
    pair.submit("small", 3_000)
    pair.until(2.4)
    pair.sluice.pause("small")
    pair.until(8)

    assert pair.calls(300, 420)["large"] >= 0.97 * 120 * LIMIT_PER_S


@pytest.mark.parametrize("seed", [1, 2])
def test_refusals_stay_few_while_shares_move(seed: int) -> None:
    assert 1000 * one_idle(seed).sluice.upstream.refusals / len(one_idle(seed).sluice.upstream.calls) <= 2
