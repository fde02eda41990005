"""Which rows a tick takes: spread over the matches, oldest first, and no match beyond what it can run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain import work_index
from shared.domain.work_index import Nominee
from shared.pacer.claim import choose, enough, fair_cap, hard_cap, merge, per_match


def row(match_id: str, eligible_ms: int) -> Nominee:
    job_id = f"{match_id}-{eligible_ms}"
    key = work_index.waiting(job_id, "thumbs", priority=0, retried=False, eligible_ms=eligible_ms, epoch=0)
    return Nominee(job_id=job_id, match_id=match_id, epoch=0, key=key)


def rows(matches: str) -> list[Nominee]:
    return [row(match_id, age) for age, match_id in enumerate(matches)]


def ids(nominees: list[Nominee]) -> list[str]:
    return [nominee.job_id for nominee in nominees]


@pytest.mark.parametrize(
    ("seconds", "service_s", "cap"),
    [
        (60, 10, 6),
        (60, 25, 3),  # the third starts before the tick and ends after it
        (60, 600, 1),
        (0, 10, 1),  # the tick is late already
        (60, 0.1, 600),  # 600.0000000000001 in floats
        (60, 0, 60_000),  # a service time of 0 is read as 1 ms
    ],
)
def test_a_match_may_have_what_it_can_start_in_series_before_the_next_tick(
    seconds: float, service_s: float, cap: int
) -> None:
    assert hard_cap(seconds, service_s) == cap


def test_a_time_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="service_s"):
        hard_cap(60, float("nan"))


@pytest.mark.parametrize(("budget", "slots", "cap"), [(100, 10, 10), (101, 10, 11), (3, 10, 1), (0, 10, 1), (5, 0, 5)])
def test_the_fair_cap_spreads_a_budget_over_the_slots(budget: int, slots: int, cap: int) -> None:
    assert fair_cap(budget, slots) == cap


def test_every_matchs_first_row_comes_before_any_matchs_second() -> None:
    assert ids(choose(rows("aaabbc"), budget=5, cap=9)) == ["a-0", "b-3", "c-5", "a-1", "b-4"]


def test_a_match_of_100_rows_leaves_room_for_the_younger_ones() -> None:
    chosen = choose(rows("a" * 100 + "bcd"), budget=8, cap=3)
    assert per_match(chosen) == {"a": 3, "b": 1, "c": 1, "d": 1}


def test_what_a_match_has_in_flight_counts_against_its_cap_and_its_turn() -> None:
    chosen = choose(rows("aaabb"), budget=9, cap=3, in_flight_by_match={"a": 2, "z": 5})
    assert ids(chosen) == ["b-3", "b-4", "a-0"]


def test_reading_may_stop_once_the_capped_matches_fill_the_budget() -> None:
    assert not enough({"a": 100, "b": 1}, budget=5, cap=3)
    assert enough({"a": 100, "b": 2}, budget=5, cap=3)
    assert not enough({"a": 100, "b": 2}, budget=5, cap=3, in_flight_by_match={"a": 1})
    assert enough({}, budget=0, cap=3)


def test_streams_merge_by_time_and_are_read_only_as_far_as_needed() -> None:
    read: list[int] = []

    def stream() -> Iterator[Nominee]:
        for age in range(0, 100, 2):
            read.append(age)
            yield row("a", age)

    merged = merge(stream(), [row("b", 1), row("b", 3)], [])
    assert [next(merged).job_id for _ in range(3)] == ["a-0", "b-1", "a-2"]
    assert len(read) <= 3


@settings(deadline=None)
@given(
    matches=st.text("abcdef", max_size=40),
    budget=st.integers(-1, 50),
    cap=st.integers(0, 6),
    in_flight=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 8)),
)
def test_the_choice_is_as_large_as_the_caps_allow_and_keeps_each_matchs_order(
    matches: str, budget: int, cap: int, in_flight: dict[str, int]
) -> None:
    chosen = choose(rows(matches), budget=budget, cap=cap, in_flight_by_match=in_flight)
    taken = per_match(chosen)
    room = {match: max(0, cap - in_flight.get(match, 0)) for match in set(matches)}
    assert all(taken[match] <= room[match] for match in taken)
    assert len(chosen) == min(max(0, budget), sum(min(count, room[m]) for m, count in Counter(matches).items()))
    assert enough(Counter(matches), budget=budget, cap=cap, in_flight_by_match=in_flight) == (len(chosen) >= budget)
    for match in taken:
        ages = [nominee.key.position for nominee in chosen if nominee.match_id == match]
        assert ages == [nominee.key.position for nominee in rows(matches) if nominee.match_id == match][: taken[match]]


@settings(deadline=None)
@given(streams=st.lists(st.lists(st.integers(0, 10**12)), max_size=5))
def test_a_merge_is_sorted_and_loses_nothing(streams: list[list[int]]) -> None:
    merged = list(merge(*([row("m", age) for age in sorted(ages)] for ages in streams)))
    assert [work_index.time_of(nominee.key) for nominee in merged] == sorted(age for ages in streams for age in ages)


@given(seconds=st.integers(1, 10_000), service_ms=st.integers(1, 10_000_000))
def test_one_job_less_than_the_cap_always_ends_before_the_tick(seconds: int, service_ms: int) -> None:
    cap = hard_cap(seconds, service_ms / 1000)
    assert (cap - 1) * Fraction(service_ms, 1000) < seconds
