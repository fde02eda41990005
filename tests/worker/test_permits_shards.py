"""Permits in several items: together what one item would give, and no item idle while others have lines (I7)."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.domain.settings import CALLS_PER_SHARD, shards_for, shards_of
from shared.worker.permits import MOST_ASKED, Part, parts_of, parts_to_ask
from tests.worker.permit_items import Items, most_in, upstream

SECOND_US = 1_000_000

Limits = st.floats(0.01, 20_000)


@pytest.mark.parametrize(
    ("limit_per_s", "shards"), [(0.1, 1), (500, 1), (500.1, 2), (1_000, 2), (1_001, 3), (100_000, 200)]
)
def test_one_more_item_for_each_500_calls_a_second(limit_per_s: float, shards: int) -> None:
    assert shards_for(limit_per_s) == shards


def test_the_number_of_items_does_not_follow_the_learned_rate() -> None:
    declared = upstream(2_000, burst_calls=6)
    for learned_per_s, interval_us in ((None, 2_000), (2_000.0, 2_000), (800.0, 5_000), (40.0, 100_000)):
        parts = parts_of(replace(declared, learned_per_s=learned_per_s))
        assert [part.burst_calls for part in parts] == [2, 2, 1, 1]
        assert {part.interval_us for part in parts} == {interval_us}


def test_there_are_never_more_items_than_calls_in_the_burst() -> None:
    assert [part.burst_calls for part in parts_of(upstream(5_000, burst_calls=3))] == [1, 1, 1]


@settings(deadline=None)
@given(limit=Limits, burst=st.integers(1, 100), learned=st.floats(0.02, 1), per_shard=st.floats(1, 1_000))
def test_the_parts_are_the_whole(limit: float, burst: int, learned: float, per_shard: float) -> None:
    declared = upstream(limit, burst_calls=burst, learned_per_s=limit * learned)
    parts = parts_of(declared, calls_per_shard=per_shard)

    assert sum(part.burst_calls for part in parts) == burst
    assert min(part.burst_calls for part in parts) >= 1
    assert sum(Fraction(SECOND_US, part.interval_us) for part in parts) <= Fraction(str(declared.permits_per_s))
    if shards_of(declared, calls_per_shard=per_shard) == shards_for(limit, calls_per_shard=per_shard):
        assert all(SECOND_US / part.interval_us <= per_shard + 1e-6 for part in parts)


@settings(deadline=None)
@given(
    per_shard=st.sampled_from((1.0, 7.0, 40.0, 500.0)),
    shards=st.integers(1, 6),
    burst=st.integers(6, 20),
    asks=st.lists(
        # the time since the last ask, the worker's turn, the calls, the patience
        st.tuples(
            st.integers(0, 2 * SECOND_US) | st.integers(0, 300),
            st.integers(0, 50),
            st.integers(1, 8),
            st.sampled_from((0, 1_000, SECOND_US, 60 * SECOND_US)),
        ),
        min_size=1,
        max_size=60,
    ),
)
def test_any_sliding_window_over_all_items_holds_at_most_the_limit_and_the_burst(
    per_shard: float, shards: int, burst: int, asks: list[tuple[int, int, int, int]]
) -> None:
    limit = Fraction(str(per_shard)) * shards
    parts = parts_of(upstream(float(limit), burst_calls=burst), calls_per_shard=per_shard)
    assert len(parts) == shards
    items, now_us, starts = Items(), 0, list[int]()
    for wait_us, turn, calls, patience_us in asks:
        now_us += wait_us
        granted = items.reserve(parts, turn=turn, now_us=now_us, latest_us=now_us + patience_us, calls=calls)
        starts += () if granted is None else granted[1]
    for window_us in (0, 1_000, SECOND_US, 10 * SECOND_US):
        assert most_in(starts, window_us) <= limit * window_us / SECOND_US + burst


# -- work conservation


def granted_share(
    workers: int, shards: int, *, busy: float, seed: int, turn_of: Callable[[int, int], int] | None = None
) -> float:
    """What workers get of an allowance of 40/s that they ask for one permit after the other, over a minute.

    Each works for a while after its call has started; all of them together could use 1 / `busy` of the allowance.
    """
    draw = random.Random(seed)
    limit_per_s, work_us = 40.0, busy * workers / 40.0 * SECOND_US
    parts = parts_of(upstream(limit_per_s, burst_calls=shards), calls_per_shard=limit_per_s / shards)
    items, end_us = Items(), 60 * SECOND_US
    turns = [draw.randrange(1 << 16) for _ in range(workers)]
    asking = [(int(draw.random() * work_us), worker) for worker in range(workers)]
    heapq.heapify(asking)
    starts: list[int] = []
    while asking:
        now_us, worker = heapq.heappop(asking)
        turns[worker] += 1
        turn = turns[worker] if turn_of is None else turn_of(worker, shards)
        granted = items.reserve(parts, turn=turn, now_us=now_us, latest_us=end_us)
        if granted is not None:
            starts += granted[1]
            heapq.heappush(asking, (granted[1][0] + int(work_us * draw.uniform(0.8, 1.2)), worker))
    return len(starts) / (limit_per_s * end_us / SECOND_US)


@settings(deadline=None, max_examples=25)
@given(
    shards=st.integers(1, 8),
    workers_an_item=st.integers(4, 10),
    busy=st.floats(0.05, 0.8),
    seed=st.integers(0, 2**16),
)
def test_workers_that_ask_evenly_get_at_least_95_percent_of_the_allowance(
    shards: int, workers_an_item: int, busy: float, seed: int
) -> None:
    assert granted_share(shards * workers_an_item, shards, busy=busy, seed=seed) >= 0.95


def test_with_draws_instead_of_turns_an_item_falls_idle_while_others_have_lines() -> None:
    draw = random.Random(5)
    turns = granted_share(50, 8, busy=0.8, seed=5)
    draws = granted_share(50, 8, busy=0.8, seed=5, turn_of=lambda _, shards: draw.randrange(shards))
    assert draws < 0.95 <= turns


def test_an_item_without_room_sends_the_worker_on_and_a_few_of_them_are_enough_for_a_no() -> None:
    parts = parts_of(upstream(50.0, burst_calls=5), calls_per_shard=10.0)
    items = Items()
    for turn in range(4):
        assert items.reserve(parts, turn=turn, now_us=0, latest_us=0) is not None  # item 4 is free
    assert items.reserve(parts, turn=0, now_us=0, latest_us=0) is None
    granted = items.reserve(parts, turn=2, now_us=0, latest_us=0)
    assert granted is not None
    assert granted[0].shard == 4
    assert [part.shard for part in parts_to_ask(parts, 4)] == [4, 0, 1]
    assert len(parts_to_ask(parts_of(upstream(9.0)), 7)) == 1
    assert MOST_ASKED == 3


# -- a deployment that changes the number of items


def together_per_s(*views: tuple[Part, ...]) -> Fraction:
    """Calls a second that all items may start while workers with these views of them run side by side."""
    fastest_us: dict[int, int] = {}
    for part in (part for view in views for part in view):
        fastest_us[part.shard] = min(fastest_us.get(part.shard, part.interval_us), part.interval_us)
    return sum((Fraction(SECOND_US, us) for us in fastest_us.values()), Fraction(0))


@settings(deadline=None)
@given(limits=st.tuples(Limits, Limits))
def test_two_deployments_side_by_side_start_less_than_one_items_calls_beyond_the_larger_limit(
    limits: tuple[float, float],
) -> None:
    old, new = (parts_of(upstream(limit, burst_calls=shards_for(limit))) for limit in limits)
    together = together_per_s(old, new)

    assert together < max(limits) + CALLS_PER_SHARD
    small, large = sorted((old, new), key=len)
    if small[0].interval_us >= large[0].interval_us:
        assert together <= Fraction(str(max(limits)))


@settings(deadline=None)
@given(
    counts=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    asks=st.lists(
        st.tuples(st.integers(0, SECOND_US) | st.integers(0, 300), st.integers(0, 20), st.booleans()),
        min_size=1,
        max_size=60,
    ),
)
def test_a_window_of_two_deployments_holds_what_the_faster_and_the_burstier_of_them_allow(
    counts: tuple[int, int], asks: list[tuple[int, int, bool]]
) -> None:
    views = [parts_of(upstream(9.5 * shards, burst_calls=2 * shards + 1), calls_per_shard=10.0) for shards in counts]
    items, now_us, starts = Items(), 0, list[int]()
    for wait_us, turn, is_new in asks:
        now_us += wait_us
        granted = items.reserve(views[is_new], turn=turn, now_us=now_us)
        assert granted is not None
        starts += granted[1]
    for window_us in (0, SECOND_US, 10 * SECOND_US):
        allowed = 0
        for shard in range(max(counts)):
            known = [part for view in views for part in view if part.shard == shard]
            longest_us = max(part.tolerance_us for part in known)
            allowed += 1 + (window_us + longest_us) // min(part.interval_us for part in known)
        assert most_in(starts, window_us) <= allowed
