"""Permits and clocks that are wrong, and holders that die: what holds then, exactly (I7)."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.worker.permits import Full, gcra_reserve, parts_of
from tests.worker.permit_items import FAR_US, Items, most_in, upstream

INTERVAL_US = 100_000
ONE = parts_of(upstream(10.0))


def reserve(tat_us: int | None, now_us: int, *, calls: int = 1, burst: int = 1, latest_us: int = FAR_US) -> int | None:
    """The arrival time after it; None: no room."""
    answer = gcra_reserve(
        tat_us, now_us=now_us, latest_us=latest_us, interval_us=INTERVAL_US, calls=calls, burst_calls=burst
    )
    return None if isinstance(answer, Full) else answer.tat_us


def start_of(tat_us: int | None, now_us: int, burst: int) -> int:
    """When the next call could start on this clock."""
    answer = gcra_reserve(tat_us, now_us=now_us, latest_us=FAR_US, interval_us=INTERVAL_US, calls=1, burst_calls=burst)
    assert not isinstance(answer, Full)
    return answer.start_us


# -- clocks that are apart

Ask: TypeAlias = tuple[int, float, float, int, int]
"""The true time since the last ask; how far the clock is ahead when it asks and when it starts its calls, as a share of
the most; the calls; the worker's turn."""

Asks = st.lists(
    st.tuples(
        st.integers(0, 20 * INTERVAL_US) | st.integers(0, 300),
        st.floats(0, 1),
        st.floats(0, 1),
        st.integers(1, 4),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=60,
)


@settings(deadline=None)
@given(apart_us=st.integers(0, 50 * INTERVAL_US), shards=st.integers(1, 3), burst=st.integers(3, 6), asks=Asks)
def test_clocks_that_are_apart_by_d_start_in_a_window_what_is_allowed_in_one_longer_by_d(
    apart_us: int, shards: int, burst: int, asks: list[Ask]
) -> None:
    """Also where a clock steps between a reservation and its calls: its two readings are apart, too."""
    parts = parts_of(upstream(10.0, burst_calls=burst), calls_per_shard=10.0 / shards)
    items, true_us, starts = Items(), 0, list[int]()
    for wait_us, ahead_then, ahead_later, calls, turn in asks:
        true_us += wait_us
        reserved = items.reserve(parts, turn=turn, now_us=true_us + int(apart_us * ahead_then), calls=calls)
        assert reserved is not None
        starts += (slot_us - int(apart_us * ahead_later) for slot_us in reserved[1])
    for window_us in (0, INTERVAL_US, 10 * INTERVAL_US, 100 * INTERVAL_US):
        assert most_in(starts, window_us) <= shards * ((window_us + apart_us) // parts[0].interval_us) + burst


def test_that_bound_is_reached() -> None:
    """A clock 2 s behind starts what it reserved for now together with what another reserved for then."""
    behind_us, items = 20 * INTERVAL_US, Items()
    behind, right = (items.reserve(ONE, turn=0, now_us=0, calls=calls) for calls in (20, 21))
    assert behind is not None
    assert right is not None
    starts = [*(slot_us + behind_us for slot_us in behind[1]), *right[1]]
    assert most_in(starts, behind_us) == (behind_us + behind_us) // INTERVAL_US + 1 == 41


@settings(deadline=None)
@given(apart_us=st.integers(0, 50 * INTERVAL_US), burst=st.integers(1, 4), asks=Asks)
def test_clocks_ahead_delay_the_others_by_as_much_and_spend_the_permits_of_that_time_once(
    apart_us: int, burst: int, asks: list[Ask]
) -> None:
    """Beside the same asks by clocks that are right: the arrival time is never further on than by d, however often."""
    right_us: int | None = None
    ahead_us: int | None = None
    true_us = 0
    for wait_us, share, _, calls, _ in asks:
        true_us += wait_us
        delay_us = start_of(ahead_us, true_us, burst) - start_of(right_us, true_us, burst)
        assert 0 <= delay_us <= apart_us  # what a worker whose clock is right meets
        right_us = reserve(right_us, true_us, calls=calls, burst=burst)
        ahead_us = reserve(ahead_us, true_us + int(apart_us * share), calls=calls, burst=burst)
        assert right_us is not None
        assert ahead_us is not None
        assert right_us <= ahead_us <= right_us + apart_us


def test_who_cannot_wait_for_a_clock_that_is_ahead_gets_no_room_and_is_told_until_when() -> None:
    tat_us = reserve(None, 5_000_000)  # by a clock 5 s ahead
    answer = gcra_reserve(tat_us, now_us=0, latest_us=4_000_000, interval_us=INTERVAL_US, calls=1, burst_calls=1)
    assert answer == Full(free_at_us=5_000_000 + INTERVAL_US)
    assert start_of(tat_us, 5_000_000 + INTERVAL_US, 1) == 5_000_000 + INTERVAL_US  # and no longer than that


# -- clocks that step back


@settings(deadline=None)
@given(
    tat_us=st.none() | st.integers(0, 10**9),
    now_us=st.integers(10**8, 10**9),
    step_us=st.integers(0, 10**8),
    burst=st.integers(1, 5),
)
def test_a_step_back_starts_nothing_in_the_past_and_delays_by_the_step_at_most(
    tat_us: int | None, now_us: int, step_us: int, burst: int
) -> None:
    wait_us = start_of(tat_us, now_us, burst) - now_us
    after_us = start_of(tat_us, now_us - step_us, burst) - (now_us - step_us)
    assert 0 <= wait_us <= after_us <= wait_us + step_us


# -- holders that die


@settings(deadline=None)
@given(
    burst=st.integers(1, 4),
    asks=st.lists(
        st.tuples(st.integers(0, 5 * INTERVAL_US), st.integers(1, 5), st.booleans()), min_size=1, max_size=40
    ),
)
def test_a_holder_that_dies_costs_the_others_its_permits_and_no_more(
    burst: int, asks: list[tuple[int, int, bool]]
) -> None:
    """Beside the same asks without those who died: everybody starts later by at most their permits' time."""
    with_them: int | None = None
    without: int | None = None
    now_us = lost = 0
    for wait_us, calls, dies in asks:
        now_us += wait_us
        later_us = start_of(with_them, now_us, burst) - start_of(without, now_us, burst)
        assert 0 <= later_us <= lost * INTERVAL_US
        with_them = reserve(with_them, now_us, calls=calls, burst=burst)
        if dies:
            lost += calls
        else:
            without = reserve(without, now_us, calls=calls, burst=burst)


@pytest.mark.parametrize("deaths", [0, 1, 7])
def test_of_the_slots_that_eager_callers_fill_the_dead_take_their_own(deaths: int) -> None:
    items = Items()
    granted = [items.reserve(ONE, turn=0, now_us=0, latest_us=99 * INTERVAL_US) for _ in range(100)]
    used = [slots for number, slots in enumerate(granted) if slots is not None and number >= deaths]
    assert len(used) == 100 - deaths
    assert items.reserve(ONE, turn=0, now_us=0, latest_us=99 * INTERVAL_US) is None
