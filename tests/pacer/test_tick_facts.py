"""A tick's facts: small, enough to make its plan again, and readable by the next version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.domain.control import Carry, TickLine
from shared.domain.job import LaneCounts
from shared.pacer.decide import Snapshot, TickPlan, explain, pack, plan_tick

NOW_MS = 1_800_000_000_000
NANO = 10**9

snapshots = st.builds(
    Snapshot,
    interval_s=st.integers(60, 3600),
    lateness_s=st.floats(0, 100),
    live_share=st.floats(0, 1),
    max_inflight=st.integers(1, 100_000),
    concurrency=st.integers(1, 1000),
    service_s=st.floats(0, 1000),
    ready_matches=st.none() | st.integers(0, 1000),
    upstream_rate_per_s=st.none() | st.floats(0, 1000),
    upstream_share=st.floats(0, 1),
    calls_per_job=st.floats(0.1, 100),
    override_rate_per_s=st.none() | st.floats(0, 100),
    planned_at_ms=st.none() | st.integers(NOW_MS - 10**6, NOW_MS),
    carry=st.builds(lambda part, rest: Carry(live=part, recovery=rest), st.integers(-NANO, NANO), st.integers(0, NANO)),
    waiting=st.builds(LaneCounts, live=st.integers(0, 5000), recovery=st.integers(0, 5000)),
    in_flight=st.integers(0, 2000),
    unseen=st.integers(0, 200),
    returned=st.integers(0, 200),
    expected_live=st.integers(0, 200),
    paused=st.booleans(),
    planned=st.booleans(),
    sources=st.just({}) | st.just({"service_s": "measured from 240 samples"}),
)


def line_of(plan: TickPlan, facts: str) -> TickLine:
    seen = plan.snapshot
    return TickLine(
        run_id="c@2027-01-15T08:00Z",
        at_ms=NOW_MS,
        paused=seen.paused,
        waiting=seen.waiting,
        later=0,
        behind=0,
        in_flight=seen.in_flight,
        dead=0,
        budget=plan.budget,
        admitted=plan.live + plan.recovery,
        confirmed=0,
        swept=0,
        rate_per_s=plan.rate_per_s,
        binding=plan.binding.value,
        oldest_age_s=0,
        eta_s=None,
        facts=facts,
    )


@given(snapshots)
def test_the_same_plan_comes_of_the_line_again(snapshot: Snapshot) -> None:
    plan = plan_tick(snapshot, NOW_MS)
    found = explain(line_of(plan, pack(snapshot)))

    assert found is not None
    assert found.snapshot == snapshot
    assert found.plan == plan


@given(snapshots)
def test_facts_are_small(snapshot: Snapshot) -> None:
    assert len(pack(snapshot)) < 600


TYPICAL = Snapshot(
    interval_s=60,
    lateness_s=15.0,
    live_share=0.3,
    max_inflight=1000,
    concurrency=20,
    service_s=4.0,
    waiting=LaneCounts(recovery=500),
)


@pytest.mark.parametrize("facts", ["", "{}", "[1]", "no JSON", '{"interval_s":60}', '{"carry":[1]}'])
def test_a_line_that_does_not_say_enough_explains_nothing(facts: str) -> None:
    assert explain(line_of(plan_tick(TYPICAL, NOW_MS), facts)) is None


def test_facts_of_another_version_are_read_as_far_as_they_are_known() -> None:
    facts = pack(TYPICAL).replace("{", '{"moon_phase":0.5,', 1)
    found = explain(line_of(plan_tick(TYPICAL, NOW_MS), facts))

    assert found is not None
    assert found.snapshot == replace(TYPICAL)
