"""The tick's decision: what it admits over hours, what bounds it, and that every number of it can be recomputed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from shared.domain.control import Carry
from shared.domain.job import LaneCounts
from shared.pacer.decide import Binding, RateBinding, Snapshot, TickPlan, plan_tick

NOW = 1_800_000_000_000
PLENTY = LaneCounts(live=10**6, recovery=10**6)

SNAPSHOT = Snapshot(
    interval_s=60,
    lateness_s=15,
    live_share=0.3,
    max_inflight=1000,
    concurrency=40,
    service_s=2,
    ready_matches=30,
    upstream_rate_per_s=8,
    upstream_share=0.5,
    calls_per_job=2,
    planned_at_ms=NOW - 60_000,
    waiting=PLENTY,
)


def minute_ticks(snapshot: Snapshot, count: int) -> list[TickPlan]:
    """Plans of consecutive punctual ticks; everything admitted is finished before the next one."""
    plans = []
    for tick in range(count):
        plan = plan_tick(snapshot, NOW + tick * 60_000)
        snapshot = replace(snapshot, carry=plan.carry, planned_at_ms=plan.planned_at_ms)
        plans.append(plan)
    return plans


def drained_per_s(
    snapshot: Snapshot, *, starts_per_s: int, hours: int, late_s: Callable[[int], int] = lambda tick: 0
) -> float:
    """Completions per second over the second half of a run in steps of a second; ticks see the true in flight."""
    length_s, service_s, interval_s = hours * 3600, int(snapshot.service_s), int(snapshot.interval_s)
    tick_at = {tick * interval_s + late_s(tick) for tick in range(length_s // interval_s)}
    queued = running = done = 0
    ends: Counter[int] = Counter()
    for second in range(length_s):
        running -= ends[second]
        done += ends[second] if second >= length_s // 2 else 0
        if second in tick_at:
            plan = plan_tick(replace(snapshot, in_flight=queued + running), second * 1000)
            snapshot = replace(snapshot, carry=plan.carry, planned_at_ms=plan.planned_at_ms)
            queued += plan.live + plan.recovery
        starts = min(queued, starts_per_s, snapshot.concurrency - running)
        queued -= starts
        running += starts
        ends[second + service_s] += starts
    return done / (length_s - length_s // 2)


# -- what it adds up to over hours


@pytest.mark.parametrize("service_s", [60, 1200])  # rate x interval - in flight gave 7.1 and 1.5
def test_8_jobs_a_second_at_300_s_ticks_stay_above_7_6(service_s: int) -> None:
    snapshot = replace(
        SNAPSHOT,
        interval_s=300,
        service_s=service_s,
        concurrency=10_000,
        ready_matches=None,
        max_inflight=20_000,
        upstream_share=1.0,
        calls_per_job=1,
        planned_at_ms=None,
    )
    assert drained_per_s(snapshot, starts_per_s=8, hours=3) > 7.6


def test_minute_ticks_of_which_every_second_one_is_59_s_late_lose_nothing() -> None:
    snapshot = replace(SNAPSHOT, lateness_s=59, upstream_share=1.0, calls_per_job=1, planned_at_ms=None)
    late = drained_per_s(snapshot, starts_per_s=8, hours=1, late_s=lambda tick: 59 * (tick % 2))
    assert late == pytest.approx(8, rel=0.001)


@pytest.mark.parametrize("waiting", [LaneCounts(live=999), LaneCounts(recovery=999), PLENTY])
def test_0_3_rows_a_tick_admit_3_in_10_ticks(waiting: LaneCounts) -> None:
    plans = minute_ticks(replace(SNAPSHOT, override_rate_per_s=0.005, waiting=waiting), 10)
    assert sum(plan.live + plan.recovery for plan in plans) == 3


def test_a_budget_of_1_a_tick_with_a_live_share_of_0_3_gives_live_3_of_10() -> None:
    plans = minute_ticks(replace(SNAPSHOT, concurrency=1, service_s=60), 10)
    assert [plan.budget for plan in plans] == [1] * 10
    assert sum(plan.live for plan in plans) == 3


# -- one tick


def test_a_tick_of_2_jobs_a_second_admits_120_and_says_why() -> None:
    plan = plan_tick(SNAPSHOT, NOW)
    assert (plan.rate_per_s, plan.rate_binding) == (2.0, RateBinding.UPSTREAM)  # 8 x 0.5 / 2
    assert (plan.edge_rows, plan.level_rows, plan.cap_rows) == (120, 154, 1000)  # 2 x 60, 2 x 77
    assert (plan.budget, plan.live, plan.recovery, plan.binding) == (120, 36, 84, Binding.EDGE)


BINDINGS: list[tuple[dict[str, Any], int, Binding]] = [
    ({}, 120, Binding.EDGE),
    ({"in_flight": 100}, 54, Binding.LEVEL),
    ({"max_inflight": 50}, 50, Binding.MAX_INFLIGHT),
    ({"max_inflight": 50, "in_flight": 60}, 0, Binding.MAX_INFLIGHT),
    ({"waiting": LaneCounts(live=5)}, 120, Binding.WAITING),
    ({"waiting": LaneCounts(), "ready_matches": 0}, 0, Binding.WAITING),
    ({"paused": True}, 0, Binding.PAUSED),
    ({"planned": True}, 0, Binding.RESUMED),
    ({"planned_at_ms": None}, 120, Binding.EDGE),  # the first tick earns one interval
    ({"planned_at_ms": NOW - 86_400_000}, 154, Binding.LEVEL),  # a day's outage does not pile up
    ({"planned_at_ms": NOW - 400}, 0, Binding.EDGE),  # a duplicate just after
    ({"planned_at_ms": NOW + 5_000}, 0, Binding.EDGE),  # a clock that went back
]


@pytest.mark.parametrize(("change", "budget", "binding"), BINDINGS)
def test_the_budget_and_what_bounds_it(change: dict[str, Any], budget: int, binding: Binding) -> None:
    plan = plan_tick(replace(SNAPSHOT, **change), NOW)
    assert (plan.budget, plan.binding) == (budget, binding)


RATES: list[tuple[dict[str, Any], float, RateBinding]] = [
    ({}, 2.0, RateBinding.UPSTREAM),
    ({"service_s": 60}, 0.5, RateBinding.SLOTS),  # 30 ready matches / 60 s
    ({"service_s": 60, "ready_matches": 99}, 40 / 60, RateBinding.SLOTS),  # the concurrency
    ({"service_s": 60, "ready_matches": None}, 40 / 60, RateBinding.SLOTS),
    ({"override_rate_per_s": 0.25}, 0.25, RateBinding.OVERRIDE),
    ({"override_rate_per_s": 99}, 2.0, RateBinding.UPSTREAM),  # an override never raises the rate
    ({"override_rate_per_s": 0}, 0.0, RateBinding.OVERRIDE),
    ({"upstream_rate_per_s": 0}, 0.0, RateBinding.UPSTREAM),
    ({"upstream_rate_per_s": None}, 15.0, RateBinding.SLOTS),
    ({"calls_per_job": 0}, 15.0, RateBinding.SLOTS),  # jobs that call nothing are not bound by it
    ({"calls_per_job": 0, "service_s": 0}, 30_000.0, RateBinding.SLOTS),  # a service time of 0 is read as 1 ms
    ({"ready_matches": 0}, 0.0, RateBinding.SLOTS),
]


@pytest.mark.parametrize(("change", "rate_per_s", "binding"), RATES)
def test_the_rate_and_what_bounds_it(change: dict[str, Any], rate_per_s: float, binding: RateBinding) -> None:
    plan = plan_tick(replace(SNAPSHOT, **change), NOW)
    assert (plan.rate_per_s, plan.rate_binding) == (rate_per_s, binding)


def test_a_pause_freezes_the_carry_and_earns_nothing_until_the_tick_after_it() -> None:
    owed = Carry(live=400_000_000, recovery=100_000_000)
    paused = plan_tick(replace(SNAPSHOT, paused=True, carry=owed), NOW)
    assert (paused.live, paused.recovery, paused.carry, paused.planned_at_ms) == (0, 0, owed, NOW)
    after = replace(SNAPSHOT, carry=paused.carry, planned_at_ms=paused.planned_at_ms)
    assert plan_tick(after, NOW + 10_000).edge_rows == 20


def test_a_resumed_run_admits_nothing_and_leaves_what_its_first_owner_stored() -> None:
    stored = replace(SNAPSHOT, planned=True, carry=Carry(live=900_000_000))
    plan = plan_tick(stored, NOW)
    assert (plan.live, plan.recovery) == (0, 0)
    assert (plan.carry, plan.planned_at_ms) == (stored.carry, stored.planned_at_ms)


NUMBERS = ["interval_s", "lateness_s", "service_s", "upstream_rate_per_s", "upstream_share", "calls_per_job"]
NUMBERS += ["override_rate_per_s", "live_share"]


@pytest.mark.parametrize("value", [nan, inf, -1.0])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_is_none_is_refused_by_name(name: str, value: float) -> None:
    change: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=name):
        plan_tick(replace(SNAPSHOT, **change), NOW)


def test_a_factor_tells_where_its_value_came_from() -> None:
    plan = plan_tick(replace(SNAPSHOT, sources={"service_s": "declared"}), NOW)
    sources = {factor.name: factor.source for factor in plan.factors}
    assert sources["service_s"] == "declared"
    assert sources["interval_s"] == "configured"
    assert sources["override_rate_per_s"] == "does not apply"
    assert sources["budget"] == "max(0, min(edge_rows, level_rows, cap_rows))"


# -- for any snapshot

rates = st.one_of(st.none(), st.floats(0, 1000), st.integers(0, 100).map(lambda tenths: tenths / 10))
snapshots = st.builds(
    Snapshot,
    interval_s=st.sampled_from([60, 300, 900]),
    lateness_s=st.floats(0, 900),
    live_share=st.floats(0, 1),
    max_inflight=st.integers(0, 5000),
    concurrency=st.integers(1, 200),
    service_s=st.floats(0, 2000),
    ready_matches=st.none() | st.integers(0, 300),
    upstream_rate_per_s=rates,
    upstream_share=st.floats(0, 1),
    calls_per_job=st.floats(0, 50),
    override_rate_per_s=rates,
    planned_at_ms=st.none() | st.integers(NOW - 10_000_000, NOW + 10_000),
    carry=st.builds(
        lambda live, fraction: Carry(live=live, recovery=fraction - live),
        st.integers(-(10**8), 10**9),
        st.integers(0, 10**9 - 1),
    ),
    waiting=st.builds(LaneCounts, live=st.integers(0, 3000), recovery=st.integers(0, 3000)),
    in_flight=st.integers(0, 6000),
    paused=st.sampled_from([False, False, False, True]),
    planned=st.sampled_from([False, False, False, True]),
)


@settings(deadline=None, max_examples=30)
@given(snapshot=snapshots)
def test_i1_what_is_admitted_stays_within_the_budget_and_max_inflight(snapshot: Snapshot) -> None:
    plan = plan_tick(snapshot, NOW)
    assert plan.live >= 0
    assert plan.recovery >= 0
    assert plan.live + plan.recovery == min(plan.budget, snapshot.waiting.total)
    assert plan.budget + snapshot.in_flight <= max(snapshot.max_inflight, snapshot.in_flight)
    assert plan.budget <= max(0, plan.edge_rows)
    if snapshot.paused or snapshot.planned:
        assert plan.budget == 0


@settings(deadline=None, max_examples=30)
@given(snapshot=snapshots, now_ms=st.integers(NOW, NOW + 10**7))
def test_the_factors_alone_give_the_same_plan(snapshot: Snapshot, now_ms: int) -> None:
    plan = plan_tick(snapshot, now_ms)
    said = {factor.name: factor.value for factor in plan.factors}
    inputs: dict[str, Any] = {each.name: said[each.name] for each in structs.fields(Snapshot) if each.name in said}
    again = plan_tick(
        Snapshot(
            **inputs,
            planned_at_ms=now_ms - round(1000 * (said["elapsed_s"] or 0)),
            carry=Carry(live=int(said["carry_live_nrows"] or 0), recovery=int(said["carry_recovery_nrows"] or 0)),
            waiting=LaneCounts(live=int(said["waiting_live"] or 0), recovery=int(said["waiting_recovery"] or 0)),
            paused=snapshot.paused,
            planned=snapshot.planned,
        ),
        now_ms,
    )
    same: dict[str, Any] = {"factors": (), "planned_at_ms": 0, "snapshot": snapshot}
    assert replace(again, **same) == replace(plan, **same)
    assert said["budget"] == plan.budget


@settings(deadline=None, max_examples=30)
@given(snapshot=snapshots, more=st.integers(1, 1000))
def test_the_budget_never_falls_with_rate_or_time_and_never_rises_with_what_is_in_flight(
    snapshot: Snapshot, more: int
) -> None:
    budget = plan_tick(snapshot, NOW).budget
    assert plan_tick(snapshot, NOW + more * 1000).budget >= budget or snapshot.planned_at_ms is None
    assert plan_tick(replace(snapshot, in_flight=snapshot.in_flight + more), NOW).budget <= budget
    assert plan_tick(replace(snapshot, concurrency=snapshot.concurrency + more), NOW).budget >= budget
    if snapshot.override_rate_per_s is not None:
        raised = replace(snapshot, override_rate_per_s=snapshot.override_rate_per_s + more)
        assert plan_tick(raised, NOW).budget >= budget


@settings(deadline=None, max_examples=30)
@given(
    tenths=st.integers(1, 100),
    share=st.integers(0, 10).map(lambda tenth: tenth / 10),
    gaps_s=st.lists(st.integers(0, 75), min_size=1, max_size=20),
)
def test_in_the_long_run_rate_x_time_is_admitted_to_within_a_row(tenths: int, share: float, gaps_s: list[int]) -> None:
    snapshot = replace(SNAPSHOT, override_rate_per_s=tenths / 100, live_share=share, planned_at_ms=NOW)
    now_ms, live, recovery = NOW, 0, 0
    for gap_s in gaps_s:
        now_ms += gap_s * 1000
        plan = plan_tick(snapshot, now_ms)
        snapshot = replace(snapshot, carry=plan.carry, planned_at_ms=plan.planned_at_ms)
        live, recovery = live + plan.live, recovery + plan.recovery
    earned = Fraction(tenths, 100) * sum(gaps_s)
    assert earned - 1 < live + recovery <= earned
    assert abs(live - Fraction(str(share)) * (live + recovery)) <= 1
