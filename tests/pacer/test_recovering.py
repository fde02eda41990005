"""Staged recovery in the tick: half of the rate, then three quarters, then all; and an operator's own bound."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ops.simulator.world import START_MS
from shared.domain.control import Cause, RateOverride
from shared.domain.job import Flag
from shared.operate.switches import rate_override, set_rate
from shared.pacer.decide import RateBinding
from tests.worlds import CLASS, TWENTY_A_TICK, Bench, jobs, settings

ABOUT = partial(pytest.approx, abs=1)
"""A tick that is a few milliseconds early earns a fraction less, and the row comes with the next one."""

FLAG = Flag(by="ada", why="the provider asked", at_ms=START_MS)


def bench(rows: int = 400, **changes: Any) -> Bench:
    """20 rows a minute, worked off within the minute."""
    sluice = Bench(settings(**(TWENTY_A_TICK | {"staged_recovery": True} | changes)), workers=True)
    sluice.submit(jobs(rows, chunk_ms=200))
    return sluice


def admitted(sluice: Bench, minutes: range) -> list[int]:
    return [sluice.ticked(minute, at_s=minute * 60).admitted for minute in minutes]


def test_a_class_that_was_never_stopped_runs_at_its_full_rate() -> None:
    sluice = bench()

    assert admitted(sluice, range(1, 5)) == [20, 20, 20, 20]
    assert sluice.control.stage is None


def test_after_a_resume_the_rate_comes_back_in_steps_and_the_stage_is_dropped_when_full() -> None:
    sluice = bench()
    admitted(sluice, range(1, 3))
    sluice.pause(CLASS)
    assert admitted(sluice, range(3, 5)) == [0, 0]
    sluice.resume(CLASS)

    assert admitted(sluice, range(5, 6)) == ABOUT([10])
    stage = sluice.control.stage
    assert stage is not None
    assert (stage.cause, stage.share) == (Cause.RESUMED, 0.5)
    assert admitted(sluice, range(6, 10)) == ABOUT([15, 20, 20, 20])
    assert sluice.control.stage is None
    assert [line.staged for line in sluice.history] == [False] * 4 + [True] * 2 + [False] * 3


def test_the_tick_says_that_the_stage_binds_and_what_it_is() -> None:
    sluice = bench()
    admitted(sluice, range(1, 2))
    sluice.pause(CLASS)
    admitted(sluice, range(2, 3))
    sluice.resume(CLASS)
    plan = sluice.ticked(3, at_s=180).plan

    assert plan is not None
    assert plan.rate_binding is RateBinding.STAGED
    assert plan.rate_per_s == pytest.approx(20 / 60 / 2)
    (source,) = [factor.source for factor in plan.factors if factor.name == "staged_share"]
    assert source == "staged recovery since resumed: 50% of the calculated rate"


def test_a_pause_that_no_tick_has_met_is_no_recovery() -> None:
    sluice = bench()
    admitted(sluice, range(1, 2))
    sluice.pause(CLASS)
    sluice.resume(CLASS)

    assert admitted(sluice, range(2, 3)) == [20]


def test_ticks_that_were_missing_for_more_than_three_intervals_begin_one_too() -> None:
    sluice = bench()
    admitted(sluice, range(1, 3))
    sluice.ticked(6, at_s=370)
    stage = sluice.control.stage
    assert stage is not None
    assert stage.cause is Cause.AWAY

    near = bench()
    admitted(near, range(1, 3))
    assert admitted(near, range(5, 6)) == [29]  # the level: what is earned is more
    assert near.control.stage is None


def test_a_class_without_rows_needs_no_recovery() -> None:
    sluice = bench(rows=0)
    admitted(sluice, range(1, 2))
    sluice.pause(CLASS)
    admitted(sluice, range(2, 3))
    sluice.resume(CLASS)
    admitted(sluice, range(3, 4))
    sluice.submit(jobs(100, chunk_ms=200))

    assert admitted(sluice, range(4, 5)) == [20]


def test_it_can_be_switched_off() -> None:
    sluice = bench(staged_recovery=False)
    sluice.pause(CLASS)
    admitted(sluice, range(1, 3))
    sluice.resume(CLASS)

    assert admitted(sluice, range(3, 4)) == [20]


def test_a_pause_during_a_recovery_begins_it_anew() -> None:
    sluice = bench()
    sluice.pause(CLASS)
    admitted(sluice, range(1, 2))
    sluice.resume(CLASS)
    assert admitted(sluice, range(2, 4)) == ABOUT([10, 15])
    sluice.pause(CLASS)
    admitted(sluice, range(4, 5))
    assert sluice.control.stage is None
    sluice.resume(CLASS)

    assert admitted(sluice, range(5, 7)) == ABOUT([10, 15])


# -- an operator's bound


def bound(sluice: Bench, rate_per_s: float | None, why: str, *, for_s: float | None = None) -> None:
    set_rate(sluice.ports, CLASS, rate_override(sluice.ports, rate_per_s, by="ada", why=why, for_s=for_s))


def test_a_bound_holds_from_the_next_tick_until_it_expires() -> None:
    sluice = bench()
    admitted(sluice, range(1, 2))
    bound(sluice, 0.1, "the provider asked", for_s=150)

    assert admitted(sluice, range(2, 6)) == [6, 6, 20, 20]
    assert sluice.history[-1].rate_binding == "slots"


def test_a_bound_above_what_is_possible_does_nothing_and_clearing_ends_one() -> None:
    sluice = bench()
    bound(sluice, 50.0, "hope")
    assert admitted(sluice, range(1, 2)) == [20]
    bound(sluice, 0.1, "care")
    assert admitted(sluice, range(2, 3)) == [6]
    bound(sluice, None, "it is over")
    assert admitted(sluice, range(3, 4)) == [20]


def test_pause_and_resume_leave_the_bound_in_force() -> None:
    sluice = bench(staged_recovery=False)
    bound(sluice, 0.1, "care")
    admitted(sluice, range(1, 2))
    sluice.pause(CLASS)
    admitted(sluice, range(2, 3))
    sluice.resume(CLASS)

    assert admitted(sluice, range(3, 4)) == [6]
    kept = sluice.control.rate
    assert kept is not None
    assert (kept.rate_per_s, kept.flag.by, kept.flag.why, kept.until_ms) == (0.1, "ada", "care", None)


def test_a_stage_is_a_part_of_the_bound_and_not_of_what_it_bounds() -> None:
    sluice = bench()
    sluice.ledger.set_rate(CLASS, RateOverride(rate_per_s=0.2, flag=FLAG))
    sluice.pause(CLASS)
    admitted(sluice, range(1, 2))
    sluice.resume(CLASS)

    assert admitted(sluice, range(2, 4)) == ABOUT([6, 9])  # 12 a minute: half, three quarters
