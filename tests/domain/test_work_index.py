"""The index keys: text order is the order of the numbers, and a key says what it was made of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain import work_index

times = st.integers(0, 10**15 - 1)
epochs = st.integers(0, 10**8 - 1)
copies = st.integers(0, 10**6 - 1)
places = st.tuples(times, epochs, copies)
near = st.integers(0, 3)
close_places = st.tuples(near, near, near) | st.tuples(st.integers(8, 12), st.integers(98, 102), st.integers(8, 12))


@given(one=places | close_places, two=places | close_places)
def test_text_order_is_numeric_order(one: tuple[int, int, int], two: tuple[int, int, int]) -> None:
    texts = [work_index.position(time_ms, epoch=epoch, copy=copy) for time_ms, epoch, copy in (one, two)]
    assert (texts[0] < texts[1]) == (one < two)
    assert (texts[0] == texts[1]) == (one == two)
    without_copy = [work_index.position(time_ms, epoch=epoch) for time_ms, epoch, _ in (one, two)]
    assert (without_copy[0] < without_copy[1]) == (one[:2] < two[:2])


@given(row=places, now_ms=times)
def test_a_range_that_ends_at_a_time_holds_exactly_what_is_before_it(row: tuple[int, int, int], now_ms: int) -> None:
    time_ms, epoch, copy = row
    for position in (
        work_index.position(time_ms, epoch=epoch),
        work_index.position(time_ms, epoch=epoch, copy=copy),
    ):
        assert (position < work_index.at(now_ms)) == (time_ms < now_ms)


@given(row=places)
def test_a_key_gives_back_its_time_and_its_copy(row: tuple[int, int, int]) -> None:
    time_ms, epoch, copy = row
    flying = work_index.inflight("job", "thumbs", sent_at_ms=time_ms, epoch=epoch, copy=copy)
    assert (work_index.time_of(flying), work_index.copy_of(flying)) == (time_ms, copy)
    waits = work_index.waiting("job", "thumbs", priority=0, retried=False, eligible_ms=time_ms, epoch=epoch)
    behind = work_index.behind("job", "thumbs", due_ms=time_ms, epoch=epoch)
    dead = work_index.dead("thumbs", died_ms=time_ms, epoch=epoch)
    assert [work_index.time_of(key) for key in (waits, behind, dead)] == [time_ms] * 3


def test_a_time_before_the_epoch_sorts_first() -> None:
    assert work_index.at(-5) == work_index.at(0)


@given(job_id=st.text(st.characters(exclude_categories=[])))
def test_a_job_keeps_its_shard_wherever_it_stands(job_id: str) -> None:
    shard = work_index.shard_of(job_id)
    assert 0 <= shard < work_index.SHARDS
    keys = [
        work_index.waiting(job_id, "c", priority=0, retried=False, eligible_ms=0, epoch=0),
        work_index.inflight(job_id, "c", sent_at_ms=0, epoch=0, copy=0),
        work_index.behind(job_id, "c", due_ms=0, epoch=0),
    ]
    assert {key.partition.rsplit("#", 1)[1] for key in keys} == {str(shard)}


@pytest.mark.parametrize(
    ("change", "partition"),
    [
        ({}, "thumbs#waiting#0#1"),
        ({"priority": 2}, "thumbs#waiting#2#1"),
        ({"retried": True}, "thumbs#retry#0#1"),
    ],
)
def test_priorities_and_retried_rows_stand_apart(change: dict[str, Any], partition: str) -> None:
    arguments: dict[str, Any] = {"priority": 0, "shard": 1, "retried": False, **change}
    assert work_index.waiting_partition("thumbs", **arguments) == partition
