"""The live allowance: how much is kept, that nothing is earned twice or lost, and what its record says."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.domain import lifecycle
from shared.domain.control import SLICES, Allowance, Grant
from shared.domain.job import Job, Lane, LaneCounts, State
from shared.domain.work_index import LeaveIndex, Nominee
from shared.pacer.decide import Binding, Snapshot, TickPlan, plan_tick
from shared.pacer.measures import Arrived, expected_rows
from shared.submit.submission import admitted_at_once, may_spend

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000
PLENTY = 10**6

SNAPSHOT = Snapshot(
    interval_s=60,
    lateness_s=15,
    live_share=0.3,
    max_inflight=10**6,
    concurrency=40,
    service_s=2,
    upstream_rate_per_s=2,
    planned_at_ms=NOW_MS - MINUTE_MS,
)
"""120 rows a tick, of which live has 36."""

JOB = Job(job_id="j", job_class="c", match_id="m", payload="{}", due_ms=NOW_MS, eligible_ms=NOW_MS, nonce="n")


# -- how many rows to expect


def every(interval_s: int, *rows: int) -> list[Arrived]:
    return [Arrived(rows=each, elapsed_ms=interval_s * 1000) for each in rows]


def test_nobody_is_expected_before_somebody_came() -> None:
    assert expected_rows([], interval_s=60) == 0
    assert expected_rows(every(60, 0, 0, 0), interval_s=60) == 0


@pytest.mark.parametrize("mean", [1, 9, 100, 2500])
def test_steady_arrivals_are_expected_with_two_deviations_of_margin(mean: int) -> None:
    assert expected_rows(every(60, *[mean] * 15), interval_s=60) == pytest.approx(mean + 2 * sqrt(mean), abs=1)


def test_a_tick_that_was_late_or_missed_changes_nothing() -> None:
    assert expected_rows([*every(60, 50, 50), *every(120, 100), *every(75, 62)], interval_s=60) in range(64, 67)


def test_arrivals_that_end_are_forgotten_within_minutes() -> None:
    kept = [expected_rows(every(60, *[100] * 5, *[0] * quiet), interval_s=60) for quiet in range(12)]
    assert kept == sorted(kept, reverse=True)
    assert kept[3] < 60
    assert kept[11] <= 5
    one = [expected_rows(every(60, 1, *[0] * quiet), interval_s=60) for quiet in range(12)]
    assert one == [3, 2, 1, 1, 1, 1, *[0] * 6]


@settings(deadline=None)
@given(
    st.lists(st.builds(Arrived, rows=st.integers(0, 10**6), elapsed_ms=st.integers(-1000, 10**9)), max_size=16),
    st.integers(60, 3600),
)
def test_what_is_expected_is_a_number_of_rows_that_what_came_explains(arrived: list[Arrived], every_s: int) -> None:
    expected = expected_rows(arrived, interval_s=every_s)
    late = any(interval.elapsed_ms > every_s * 1000 for interval in arrived)
    assert expected > 0 or late or not arrived or arrived[-1].rows == 0
    most = max((each.rows for each in arrived), default=0) * len(arrived)
    assert 0 <= expected <= most + 2 * sqrt(most) + 1


# -- what a plan keeps


def test_what_is_expected_is_kept_of_the_live_share_and_the_rest_is_lent() -> None:
    plan = plan_tick(replace(SNAPSHOT, expected_live=20, waiting=LaneCounts(recovery=PLENTY)), NOW_MS)
    assert (plan.budget, plan.live, plan.recovery, plan.granted) == (120, 0, 100, 20)
    most = plan_tick(replace(SNAPSHOT, expected_live=500, waiting=LaneCounts(recovery=PLENTY)), NOW_MS)
    assert (most.recovery, most.granted, most.binding) == (84, 36, Binding.EDGE)


def test_rows_that_wait_come_before_rows_that_are_expected() -> None:
    plan = plan_tick(replace(SNAPSHOT, expected_live=30, waiting=LaneCounts(live=20, recovery=PLENTY)), NOW_MS)
    assert (plan.live, plan.recovery, plan.granted) == (20, 84, 16)


def test_a_share_that_recovery_does_not_need_is_kept_for_arrivals_too() -> None:
    plan = plan_tick(replace(SNAPSHOT, expected_live=90, waiting=LaneCounts(recovery=5)), NOW_MS)
    assert (plan.recovery, plan.granted, plan.binding) == (5, 90, Binding.WAITING)


@pytest.mark.parametrize(("paused", "planned"), [(True, False), (False, True)])  # a repair counts as planned
def test_a_paused_or_planned_run_grants_nothing(paused: bool, planned: bool) -> None:
    seen = replace(SNAPSHOT, expected_live=20, returned=9, waiting=LaneCounts(recovery=PLENTY))
    plan = plan_tick(replace(seen, paused=paused, planned=planned), NOW_MS)
    assert (plan.budget, plan.live, plan.recovery, plan.granted) == (0, 0, 0, 0)


rows = st.integers(0, 300)
snapshots = st.builds(
    replace,
    st.just(SNAPSHOT),
    expected_live=rows,
    returned=rows,
    in_flight=rows,
    unseen=rows,
    max_inflight=st.integers(1, 500),
    live_share=st.integers(0, 100).map(lambda percent: percent / 100),
    waiting=st.builds(LaneCounts, live=rows, recovery=rows),
)


@settings(deadline=None)
@given(snapshots)
def test_claims_and_grant_are_the_budget_as_far_as_anybody_wants_it(seen: Snapshot) -> None:
    plan = plan_tick(seen, NOW_MS)
    assert plan.live + plan.recovery + plan.granted == min(plan.budget, seen.waiting.total + seen.expected_live)
    assert min(plan.live, plan.recovery, plan.granted) >= 0
    assert plan.granted <= seen.expected_live
    assert plan.granted == 0 or plan.live == seen.waiting.live
    assert plan.budget + seen.in_flight + seen.unseen <= max(seen.max_inflight, seen.in_flight + seen.unseen)


def ticks(
    rate_per_s: float, share: float, expected: int, spent_share: float, count: int, *, lateness_s: float = 60
) -> list[tuple[TickPlan, int]]:
    """Plans under a backlog, each with the rows that submitters spent of its grant; all work ends in time."""
    seen = replace(SNAPSHOT, upstream_rate_per_s=rate_per_s, live_share=share, expected_live=expected)
    seen = replace(seen, lateness_s=lateness_s)
    seen = replace(seen, waiting=LaneCounts(recovery=PLENTY))
    made = []
    for number in range(count):
        plan = plan_tick(seen, NOW_MS + number * MINUTE_MS)
        spent = int(plan.granted * spent_share)
        seen = replace(seen, carry=plan.carry, planned_at_ms=plan.planned_at_ms, returned=plan.granted - spent)
        made.append((plan, spent))
    return made


rates = st.integers(1, 400).map(lambda hundredths: hundredths / 100)
parts = st.integers(0, 10).map(lambda tenths: tenths / 10)


@settings(deadline=None)
@given(rates, parts, st.integers(0, 60), parts)
def test_nothing_is_earned_twice_and_nothing_is_lost(rate: float, share: float, expected: int, spent: float) -> None:
    made = ticks(rate, share, expected, spent, 20, lateness_s=10**6)  # the level does not bind, and drops nothing
    (last, spent_last) = made[-1]
    admitted = sum(plan.recovery + plan.live + used for plan, used in made)
    left = last.granted - spent_last
    assert admitted + left == int(Fraction(str(rate)) * 60 * len(made))


@pytest.mark.parametrize("spent_share", [0.0, 1.0])
def test_at_0_3_rows_a_tick_neither_lane_starves_whether_the_kept_rows_are_spent_or_not(spent_share: float) -> None:
    made = ticks(0.005, 0.3, 2, spent_share, 1000)
    recovery, live = sum(plan.recovery for plan, _ in made), sum(spent for _, spent in made)
    assert recovery >= 0.7 * 300 - 1
    assert live == (90 if spent_share else 0)
    assert recovery + live in (299, 300)


# -- the record


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-5_000, 200_000), st.integers(1, 9)), max_size=20), st.integers(-5_000, 200_000))
def test_the_record_never_says_fewer_rows_than_were_spent_lately(spendings: list[tuple[int, int]], since: int) -> None:
    grant = Grant.of(200, run_id="r", at_ms=NOW_MS, minute_ms=NOW_MS, interval_s=60)
    found = Allowance(job_class="c", granted=200, granted_ms=grant.at_ms, slice_ms=grant.slice_ms)
    spent = [0] * SLICES
    for after_ms, count in spendings:
        spent[found.slice_at(NOW_MS + after_ms)] += count
    found = replace(found, spent=tuple(spent), missed=7)
    lately = sum(count for after_ms, count in spendings if after_ms >= since)
    assert lately <= found.used_since(NOW_MS + since) <= found.used
    assert (found.unspent, found.arrived) == (200 - found.used, found.used + 7)


def test_what_was_spent_half_a_minute_ago_is_not_counted_as_unseen() -> None:
    found = Allowance(job_class="c", spent=(*[0] * 5, 9, *[0] * 6), granted_ms=NOW_MS, slice_ms=5_000)
    assert (found.used_since(NOW_MS + 25_000), found.used_since(NOW_MS + 55_000)) == (9, 0)


def test_a_grant_of_hours_is_counted_in_slices_of_its_interval() -> None:
    grant = Grant.of(5, run_id="r", at_ms=NOW_MS + 4_000, minute_ms=NOW_MS, interval_s=3600)
    assert (grant.slice_ms, grant.hand_until_ms) == (300_000, NOW_MS + 3_600_000)


# -- the row


@pytest.mark.parametrize(
    ("changes", "spends"),
    [
        ({}, True),
        ({"due_ms": NOW_MS + 1}, False),  # not yet
        ({"due_ms": NOW_MS - 299_999}, True),
        ({"due_ms": NOW_MS - 300_000}, False),  # recovery by now
        ({"state": State.BEHIND}, False),
    ],
)
def test_only_live_work_that_is_due_spends(changes: dict[str, object], spends: bool) -> None:
    job = replace(JOB, **changes)
    assert may_spend(job, now_ms=NOW_MS, live_window_s=300) is spends


def test_the_row_is_as_a_claim_of_the_granting_tick_would_have_left_it() -> None:
    allowance = Allowance(job_class="c", rows=1, run_id="c@minute", hand_until_ms=NOW_MS + MINUTE_MS)
    at_once = admitted_at_once(JOB, allowance, now_ms=NOW_MS)
    place = lifecycle.place_of(JOB)
    assert not isinstance(place, LeaveIndex)
    claim = lifecycle.claim(
        Nominee(job_id="j", match_id="m", epoch=0, key=place),
        job_class="c",
        lane=Lane.LIVE,
        run_id="c@minute",
        nonce="n",
        now_ms=NOW_MS,
        hand_until_ms=NOW_MS + MINUTE_MS,
    )
    assert at_once == lifecycle.after(JOB, claim)
    assert lifecycle.place_of(at_once) == claim.place
