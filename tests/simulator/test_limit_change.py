"""How a learned rate follows a true limit that changes: what the figures of `limit-drop` count."""

from __future__ import annotations

import pytest

from ops.simulator.limit_change import learned_per_s, refused_per_1000, steady_rates, ticks_to_90_percent
from ops.simulator.policies import run_policy
from ops.simulator.scenario import load_scenario
from ops.simulator.upstream import OK, TOO_MANY, HiddenLimit, UpstreamCall
from shared.domain.control import TickLine
from shared.domain.job import LaneCounts
from shared.pacer.decide import Snapshot, pack

MINUTE = 60_000
LIMIT = HiddenLimit(per_s=10.0, changes=((10 * MINUTE, 5.0), (20 * MINUTE, 10.0)))


def line(minute: int, rate_per_s: float, waiting: int = 100) -> TickLine:
    """A tick a second after its minute."""
    counts = LaneCounts(recovery=waiting)
    snapshot = Snapshot(
        interval_s=60,
        lateness_s=15,
        live_share=0.3,
        max_inflight=1000,
        concurrency=20,
        upstream_rate_per_s=rate_per_s,
        calls_per_job=1.0,
        service_s=1.0,
        waiting=counts,
        in_flight=0,
    )
    return TickLine(
        run_id=str(minute),
        at_ms=minute * MINUTE + 1_000,
        paused=False,
        waiting=counts,
        later=0,
        behind=0,
        in_flight=0,
        dead=0,
        budget=0,
        admitted=0,
        confirmed=0,
        swept=0,
        rate_per_s=1.0,
        binding="edge",
        oldest_age_s=0,
        eta_s=None,
        facts=pack(snapshot),
    )


def test_the_learned_rate_is_what_the_tick_was_planned_with() -> None:
    assert learned_per_s(line(1, 7.5)) == 7.5


def test_the_tick_that_reaches_90_percent_is_counted_from_the_last_change() -> None:
    """The tick a second after the change is the first."""
    climbing = [line(19, 9.9), line(20, 5.0), line(21, 6.0), line(22, 8.9), line(23, 9.0), line(24, 10.0)]
    assert ticks_to_90_percent(LIMIT, climbing) == 4
    assert ticks_to_90_percent(LIMIT, climbing[:4]) is None


def test_steady_is_before_the_first_change_and_from_the_seventh_tick_after_one() -> None:
    """Of the ticks of minutes 10 to 15, the first six after the fall, and of 20 to 25 nothing is judged."""
    rates = {5: 10.0, 10: 9.9, 15: 9.9, 16: 5.2, 19: 4.9, 25: 5.0, 26: 10.5, 27: 10.0}
    lines = [line(minute, rates.get(minute, 5.0)) for minute in (5, *range(10, 28))]
    assert steady_rates(LIMIT, lines) == pytest.approx((0.98, 1.05))


def test_a_tick_without_waiting_rows_is_not_judged() -> None:
    assert steady_rates(LIMIT, [line(3, 9.0), line(4, 1.0, waiting=0)]) == (0.9, 0.9)


def test_refusals_around_the_changes_end_six_ticks_after_the_last() -> None:
    def call(minute: float, status: int) -> UpstreamCall:
        return UpstreamCall(at_ms=round(minute * MINUTE), upstream="api", key="", status=status)

    calls = [call(9.9, TOO_MANY), call(10, TOO_MANY), call(15, OK), call(25.9, OK), call(25.9, OK), call(26, TOO_MANY)]
    assert refused_per_1000(LIMIT, calls, interval_s=60) == 250


def test_where_nothing_changes_there_are_no_such_figures() -> None:
    fixed = HiddenLimit(per_s=10.0)
    assert (steady_rates(fixed, []), ticks_to_90_percent(fixed, [])) == (None, None)
    assert refused_per_1000(fixed, [], interval_s=60) is None


@pytest.mark.slow
def test_limit_drop_holds_what_it_expects() -> None:
    """All 20 seeds, and the halving policy beside them: `simulate --scenario limit-drop --seeds 20 --policy all`."""
    result = run_policy(load_scenario("limit-drop"), 1)
    assert result.passed, (result.said, result.failed)
    assert {tick["learned_per_s"] for tick in result.series if tick["t_s"] < 1200} == {10.0}
