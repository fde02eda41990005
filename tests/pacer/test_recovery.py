"""Staged recovery: half, three quarters, all; a look at a whole window in between; never for ever."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.domain.control import SHARES, Cause, Stage
from shared.pacer.recovery import LONGEST_WINDOWS, Observed, begin, step, was_away

MINUTE = 60_000
BEGUN = begin(Cause.RESUMED, now_ms=2_000, oldest_age_s=3600, pending=40_000)


def observed(minute: int, *, age_s: float = 3600, pending: int = 40_000, retries: int = 0, ok: bool = True) -> Observed:
    return Observed(
        window_ms=minute * MINUTE,
        now_ms=(minute + 1) * MINUTE + 2_000,
        oldest_age_s=age_s,
        pending=pending,
        starts=100,
        retries=retries,
        compliant=ok,
    )


def shares_over(stage: Stage, seen: list[Observed]) -> list[float]:
    shares = []
    for each in seen:
        stage = step(stage, each)
        shares.append(stage.share)
    return shares


def test_it_starts_at_a_half_and_is_full_after_two_good_windows() -> None:
    good = [observed(minute, age_s=3600 - 30 * (minute + 1)) for minute in range(3)]
    assert BEGUN.share == 0.5
    assert shares_over(BEGUN, good) == [0.75, 1.0, 1.0]


def test_a_falling_backlog_is_headway_although_its_oldest_row_gets_older() -> None:
    bulk = [observed(minute, age_s=3660 + 60 * minute, pending=40_000 - 100 * (minute + 1)) for minute in range(3)]
    assert shares_over(BEGUN, bulk) == [0.75, 1.0, 1.0]


def test_an_empty_backlog_needs_no_proof() -> None:
    idle = [observed(minute, age_s=0, pending=0) for minute in range(3)]
    assert shares_over(begin(Cause.AWAY, now_ms=0, oldest_age_s=0, pending=0), idle) == [0.75, 1.0, 1.0]


@pytest.mark.parametrize(
    "bad",
    [
        observed(0, pending=39_000, retries=11),  # of 100 starts: above the budget of a tenth
        observed(0, pending=39_000, ok=False),
        observed(0, age_s=3660),
    ],
)
def test_a_window_that_is_not_good_keeps_the_step(bad: Observed) -> None:
    after = step(BEGUN, bad)
    assert (after.share, after.windows) == (0.5, 1)


def test_a_step_too_slow_for_the_arrivals_is_left_after_two_windows() -> None:
    growing = [observed(minute, age_s=3660 + 60 * minute, pending=40_100 + minute) for minute in range(6)]
    assert shares_over(BEGUN, growing) == [0.5, 0.75, 0.75, 1.0, 1.0, 1.0]


def test_a_step_with_too_many_retries_is_left_after_five() -> None:
    refused = [observed(minute, retries=50) for minute in range(15)]
    assert shares_over(BEGUN, refused) == [0.5] * 4 + [0.75] * 5 + [1.0] * 6


def test_a_window_from_before_the_step_one_seen_twice_and_a_running_one_change_nothing() -> None:
    later = begin(Cause.OUTAGE, now_ms=5 * MINUTE + 2_000, oldest_age_s=10, pending=10)
    good = observed(5, age_s=5, pending=5)
    assert step(later, observed(4, pending=0)) is later
    assert step(later, replace(good, now_ms=6 * MINUTE - 1)) is later
    once = step(later, good)
    assert once.share == 0.75
    assert step(once, good) is once


def test_a_class_is_away_after_three_intervals_without_a_plan() -> None:
    assert not was_away(None, now_ms=10**12, interval_s=60)
    assert not was_away(0, now_ms=180_000, interval_s=60)
    assert was_away(0, now_ms=180_001, interval_s=60)


@pytest.mark.parametrize("age_s", [-1.0, nan, inf])
def test_an_age_that_is_none_is_refused_by_name(age_s: float) -> None:
    with pytest.raises(ValueError, match="oldest_age_s"):
        replace(observed(0), oldest_age_s=age_s)


windows = st.builds(
    observed,
    st.just(0),
    age_s=st.floats(0, 1e6),
    pending=st.integers(0, 10**6),
    retries=st.integers(0, 200),
    ok=st.booleans(),
)


@given(seen=st.lists(windows, min_size=LONGEST_WINDOWS, max_size=LONGEST_WINDOWS))
def test_whatever_is_seen_it_only_rises_a_step_at_a_time_and_is_full_in_the_stated_windows(
    seen: list[Observed],
) -> None:
    stage = BEGUN
    for minute, each in enumerate(seen):
        timed = replace(each, window_ms=minute * MINUTE, now_ms=(minute + 1) * MINUTE + 2_000)
        after = step(stage, timed)
        assert 0 <= after.number - stage.number <= 1
        assert SHARES[0] <= after.share <= 1
        stage = after
    assert stage.full
    assert stage.share == 1
