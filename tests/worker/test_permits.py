"""GCRA: no sliding window ever holds more than its limit and the burst (I7, fact F39)."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.worker.permits import Full, Reserved, gcra_reserve, interval_us
from tests.worker.permit_items import starts_us

FAR_US = 10**18


def reserve(
    tat_us: int | None, now_us: int, *, calls: int = 1, burst: int = 1, latest_us: int = FAR_US
) -> Reserved | Full:
    return gcra_reserve(tat_us, now_us=now_us, latest_us=latest_us, interval_us=100_000, calls=calls, burst_calls=burst)


def test_the_first_call_starts_now_and_the_next_an_interval_later() -> None:
    assert reserve(None, 5_000_000) == Reserved(start_us=5_000_000, tat_us=5_100_000)
    assert reserve(5_100_000, 5_000_000) == Reserved(start_us=5_100_000, tat_us=5_200_000)


def test_a_stored_time_of_0_is_a_time() -> None:
    assert reserve(0, -50_000) == Reserved(start_us=0, tat_us=100_000)


def test_rest_earns_the_burst_and_not_more() -> None:
    rested = reserve(1_000_000, 9_000_000, calls=4, burst=3)
    assert isinstance(rested, Reserved)
    assert starts_us(rested, interval_us=100_000, calls=4, burst_calls=3) == (
        9_000_000,
        9_000_000,
        9_000_000,
        9_100_000,
    )


def test_without_a_burst_the_calls_of_one_reservation_are_evenly_spaced() -> None:
    spaced = reserve(5_300_000, 5_000_000, calls=3)
    assert isinstance(spaced, Reserved)
    assert starts_us(spaced, interval_us=100_000, calls=3, burst_calls=1) == (5_300_000, 5_400_000, 5_500_000)


def test_a_slot_later_than_asked_for_reserves_nothing_and_is_named() -> None:
    assert reserve(5_300_000, 5_000_000, latest_us=5_299_999) == Full(free_at_us=5_300_000)
    assert reserve(5_300_000, 5_000_000, latest_us=5_300_000) == Reserved(start_us=5_300_000, tat_us=5_400_000)


@pytest.mark.parametrize("rate_per_s", [0, -1, nan, inf])
def test_a_rate_that_is_none_is_refused_by_name(rate_per_s: float) -> None:
    with pytest.raises(ValueError, match="rate_per_s"):
        interval_us(rate_per_s)


@pytest.mark.parametrize("name", ["interval_us", "calls", "burst_calls"])
def test_a_count_below_1_is_refused_by_name(name: str) -> None:
    arguments = {"interval_us": 1, "calls": 1, "burst_calls": 1, name: 0}
    with pytest.raises(ValueError, match=name):
        gcra_reserve(None, now_us=0, latest_us=0, **arguments)


@pytest.mark.parametrize(("rate_per_s", "us"), [(8, 125_000), (3, 333_334), (0.1, 10_000_000), (5e6, 1)])
def test_an_interval_rounds_up(rate_per_s: float, us: int) -> None:
    assert interval_us(rate_per_s) == us


@settings(deadline=None)
@given(rate_per_s=st.floats(1e-6, 1e6))
def test_an_interval_is_never_shorter_than_the_limit_asks(rate_per_s: float) -> None:
    us = interval_us(rate_per_s)
    assert us >= 1
    assert us - 1 < 1_000_000 / Fraction(str(rate_per_s)) <= us


@settings(deadline=None)
@given(
    interval=st.integers(1, 1000),
    burst=st.integers(1, 6),
    asks=st.lists(
        # the time since the last ask: idle, a pause, or a clock behind the others'; the calls; the patience
        st.tuples(st.integers(-2000, 20_000) | st.integers(0, 300), st.integers(1, 8), st.integers(0, 5000)),
        min_size=1,
        max_size=40,
    ),
)
def test_any_sliding_window_holds_at_most_its_limit_and_the_burst(
    interval: int, burst: int, asks: list[tuple[int, int, int]]
) -> None:
    tat, now, starts = None, 0, list[int]()
    for wait, calls, patience in asks:
        now += wait
        answer = gcra_reserve(
            tat, now_us=now, latest_us=now + patience, interval_us=interval, calls=calls, burst_calls=burst
        )
        if isinstance(answer, Full):
            assert answer.free_at_us > now + patience
            continue
        slots = starts_us(answer, interval_us=interval, calls=calls, burst_calls=burst)
        assert now <= slots[0] == answer.start_us <= now + patience
        assert all(slot <= answer.start_us + call * interval for call, slot in enumerate(slots))
        starts.extend(slots)
        tat = answer.tat_us
    starts.sort()
    for first, start in enumerate(starts):
        for window in (0, interval - 1, interval, 7 * interval + 3, 60 * interval):
            held = bisect_right(starts, start + window) - first
            assert held <= window // interval + burst


@settings(deadline=None)
@given(
    interval=st.integers(1, 1000), burst=st.integers(1, 6), calls=st.lists(st.integers(1, 5), min_size=1, max_size=30)
)
def test_eager_callers_use_the_whole_limit(interval: int, burst: int, calls: list[int]) -> None:
    tat = None
    for count in calls:
        answer = gcra_reserve(tat, now_us=0, latest_us=FAR_US, interval_us=interval, calls=count, burst_calls=burst)
        assert isinstance(answer, Reserved)
        tat = answer.tat_us
    assert tat == sum(calls) * interval
