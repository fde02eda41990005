"""min(R, W/S) - A: whether it drains, when, what binds, and what would change it."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, inf, isfinite, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.numbers import exact
from shared.operate.capacity import Bound, CapacityPlan, MatchSample, Shape, plan


def planned(**changes: Any) -> CapacityPlan:
    """2,400 waiting, 10 jobs/s arrive, the upstream allows 40, 50 slots of 1 s; but for what is given."""
    given_values: dict[str, Any] = {
        "pending": 2400,
        "arrivals_per_s": 10,
        "limit_per_s": 40,
        "slots": 50,
        "service_s": 1,
    }
    return plan(**(given_values | changes))


def test_2400_jobs_drain_in_80_s() -> None:
    drain = planned()
    assert (drain.drains, drain.net_rate_per_s, drain.drain_s, drain.ticks) == (True, 30.0, 80.0, 2)
    assert drain.binding is Bound.UPSTREAM
    assert drain.sentences[:2] == (
        "2400 jobs drain in 80 s at 30/s net of arrivals.",
        "Raising slots does nothing: the upstream binds.",
    )
    assert drain.warnings == ()


def test_with_35_arrivals_in_480_s() -> None:
    assert (planned(arrivals_per_s=35).drain_s, planned(arrivals_per_s=35).ticks) == (480.0, 8)


@pytest.mark.parametrize("arrivals", [40, 41])
def test_with_40_arrivals_never_and_it_says_so(arrivals: int) -> None:
    never = planned(arrivals_per_s=arrivals)
    assert (never.drains, never.drain_s, never.ticks) == (False, None, None)
    assert never.net_rate_per_s == 40 - arrivals
    assert never.sentences[0] == f"It will not drain: {arrivals} jobs/s arrive, the upstream allows 40."
    assert never.sentences[-1] == "Or fewer than 40 jobs/s may arrive."


def test_where_the_slots_bind_it_says_how_many_are_enough() -> None:
    drain = planned(slots=30, service_s=2)
    assert (drain.binding, drain.net_rate_per_s) == (Bound.SLOTS, 5.0)
    assert drain.sentences[1] == (
        "More slots raise the rate up to 80 slots (40 jobs/s), where the upstream binds; "
        "raising the upstream's limit does nothing."
    )


def test_where_both_bind_neither_alone_helps() -> None:
    assert planned(slots=40).sentences[1] == "Upstream and slots bind at the same rate: raising one alone does nothing."


def test_fewer_matches_than_slots_bind() -> None:
    drain = planned(shape=Shape(ready_matches=20))
    assert (drain.binding, drain.net_rate_per_s) == (Bound.MATCHES, 10.0)
    assert drain.sentences[1].startswith("Only more ready matches help")


def test_a_share_and_calls_per_job_divide_the_limit() -> None:
    drain = planned(share=0.7, calls_per_job=2)
    assert (drain.upstream_rate_per_s, drain.net_rate_per_s, drain.drain_s) == (14.0, 4.0, 600.0)


def test_without_an_upstream_the_slots_bind() -> None:
    drain = planned(limit_per_s=None)
    assert (drain.binding, drain.upstream_rate_per_s, drain.drain_s) == (Bound.SLOTS, None, 60.0)
    assert drain.sentences[1] == "More slots or a shorter service time raise the rate; no upstream bounds it."


def test_nothing_waiting_is_drained_unless_arrivals_exceed_the_capacity() -> None:
    assert planned(pending=0).drain_s == planned(pending=0, arrivals_per_s=40).drain_s == 0.0
    assert planned(pending=0, arrivals_per_s=41).drains is False


def test_a_drain_of_decades_is_none() -> None:
    drain = planned(arrivals_per_s=39.9999999999)
    assert (drain.drains, drain.drain_s) == (False, None)
    assert "ten years" in drain.sentences[0]


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (
            Shape(longest_chunk_s=112, chunk_room_s=110, chunk_source="p95, measured from 40 samples"),
            "The wrong tool for a job that cannot be cut: a chunk takes 112 s (p95, measured from 40 samples) and the"
            " function's timeout leaves it 110 s. Make the chunks smaller, or run the job where nothing times out.",
        ),
        (
            Shape(sample=MatchSample(rows=400, matches=21, largest=380)),
            "The wrong tool for one match that holds everything: 380 of the 400 waiting rows that were looked at (the"
            " oldest of each list) are of one match, which runs them one after another, for 380 s at least; 21 of 50"
            " slots have something to do. A finer match id helps, more slots or a higher limit do not.",
        ),
        (
            Shape(undeferred_s=86_400),
            "The wrong tool for a pool that never saturates: in 24 hours no row has had to wait for a later tick. A"
            " plain queue with this worker would do, without pacer and ledger.",
        ),
    ],
)
def test_it_says_when_it_is_the_wrong_tool(shape: Shape, says: str) -> None:
    (warning,) = planned(shape=shape).warnings
    assert warning == says


@pytest.mark.parametrize(
    "shape",
    [
        Shape(longest_chunk_s=109.9, chunk_room_s=110, undeferred_s=86_399, ready_matches=50),
        Shape(sample=MatchSample(rows=400, matches=21, largest=200)),  # half of them is not most of them
        Shape(sample=MatchSample(rows=400, matches=50, largest=300)),  # every slot has a match of its own
        Shape(sample=MatchSample(rows=1, matches=1, largest=1)),
        Shape(sample=MatchSample(rows=0, matches=0, largest=0)),
    ],
)
def test_it_does_not_warn_of_what_is_right(shape: Shape) -> None:
    assert planned(shape=shape).warnings == ()


@pytest.mark.parametrize("name", ["arrivals_per_s", "limit_per_s", "service_s", "share", "calls_per_job", "interval_s"])
@pytest.mark.parametrize("bad", [-1, nan, inf])
def test_a_number_that_is_none_is_refused_by_name(name: str, bad: float) -> None:
    with pytest.raises(ValueError, match=name):
        planned(**{name: bad})


@pytest.mark.parametrize("name", ["limit_per_s", "share", "calls_per_job", "interval_s"])
def test_zero_is_refused_where_it_divides_or_stops_everything(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        planned(**{name: 0})


@pytest.mark.parametrize("name", ["pending", "slots"])
def test_less_than_nothing_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        planned(**{name: -1})


positive = st.floats(1e-3, 1e6)


@given(
    pending=st.integers(0, 10**9),
    arrivals=st.floats(0, 1e6),
    limit=st.none() | positive | st.just(1e308),
    slots=st.integers(0, 10**6),
    service=st.floats(0, 1e6),
    share=st.floats(1e-6, 1),
    calls=positive | st.just(1e-300),
    matches=st.none() | st.integers(0, 10**6),
)
def test_it_is_the_formula_and_every_number_is_finite(
    pending: int,
    arrivals: float,
    limit: float | None,
    slots: int,
    service: float,
    share: float,
    calls: float,
    matches: int | None,
) -> None:
    drain = plan(
        pending=pending,
        arrivals_per_s=arrivals,
        limit_per_s=limit,
        slots=slots,
        service_s=service,
        share=share,
        calls_per_job=calls,
        shape=Shape(ready_matches=matches),
    )
    assert isfinite(drain.net_rate_per_s)
    assert drain.drains == (drain.drain_s is not None) == (drain.ticks is not None)
    assert all(sentence and "\n" not in sentence for sentence in drain.sentences + drain.warnings)
    if drain.drain_s is not None and drain.ticks is not None:
        assert isfinite(drain.drain_s)
        assert drain.drain_s >= 0
        assert abs(drain.ticks - drain.drain_s / 60) <= 1
    running = slots if matches is None else min(slots, matches)
    capacity = running / max(exact(service, name="s"), Fraction(1, 1000))
    if limit is not None:
        capacity = min(capacity, exact(limit, name="l") * exact(share, name="h") / exact(calls, name="c"))
    net = capacity - exact(arrivals, name="a")
    if pending and net > 0 and pending / net < 10**8:
        assert drain.drain_s == float(pending / net)
        assert drain.ticks == ceil(pending / net / 60)
    if net <= 0 < pending:
        assert not drain.drains
