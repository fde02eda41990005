"""The lane splitter: exact at any rate, no lane starves, what is lent does not accrue (I8, fact F35)."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.control import Carry
from shared.domain.job import LaneCounts
from shared.domain.numbers import NANO, exact
from shared.pacer.decide import LaneSplit, split

PLENTY = LaneCounts(live=10**6, recovery=10**6)
ONLY_LIVE = LaneCounts(live=10**6)
ONLY_RECOVERY = LaneCounts(recovery=10**6)

shares = st.integers(0, 100).map(lambda percent: Fraction(percent, 100))
earnings = st.one_of(st.integers(0, 3 * NANO), st.integers(0, 10).map(lambda rows: rows * NANO))


def run(
    earned_rows: Iterable[float], share: float | Fraction, waiting: LaneCounts = PLENTY, ceiling: int = 10**9
) -> list[LaneSplit]:
    carry, ticks = Carry(), []
    for rows in earned_rows:
        nrows = int(exact(rows, name="rows") * NANO)
        tick = split(earned_nrows=nrows, carry=carry, live_share=share, ceiling_rows=ceiling, waiting=waiting)
        ticks.append(tick)
        carry = tick.carry
    return ticks


def live(ticks: list[LaneSplit]) -> int:
    return sum(tick.live for tick in ticks)


def recovery(ticks: list[LaneSplit]) -> int:
    return sum(tick.recovery for tick in ticks)


@pytest.mark.parametrize("waiting", [ONLY_LIVE, ONLY_RECOVERY, PLENTY])
def test_a_rate_of_0_3_rows_a_tick_admits_exactly_3_in_10_ticks(waiting: LaneCounts) -> None:
    ticks = run([0.3] * 10, 0.3, waiting)
    assert live(ticks) + recovery(ticks) == 3
    assert [tick.live + tick.recovery for tick in ticks] == [0, 0, 0, 1, 0, 0, 1, 0, 0, 1]


def test_a_budget_of_1_with_a_live_share_of_0_3_gives_live_3_of_10() -> None:
    ticks = run([1] * 10, 0.3)
    assert (live(ticks), recovery(ticks)) == (3, 7)


def test_a_share_of_29_percent_of_100_rows_is_29() -> None:
    assert run([100], 0.29)[0] == LaneSplit(live=29, recovery=71, carry=Carry())


def test_neither_lane_starves_at_0_3_rows_a_tick() -> None:
    ticks = run([0.3] * 1000, 0.3)
    assert (live(ticks), recovery(ticks)) == (90, 210)


def test_an_idle_lane_lends_its_rows_and_is_owed_nothing_for_them() -> None:
    lent = run([10], 0.3, ONLY_RECOVERY)[-1]
    assert (lent.live, lent.recovery, lent.carry) == (0, 10, Carry())
    fraction = run([10.4], 0.3, ONLY_LIVE)[-1]
    assert (fraction.live, fraction.recovery, fraction.carry) == (10, 0, Carry(live=400_000_000))


def test_a_lent_share_comes_back_in_the_next_tick() -> None:
    lent = split(earned_nrows=10 * NANO, carry=Carry(), live_share=0.3, ceiling_rows=99, waiting=ONLY_RECOVERY)
    back = split(earned_nrows=10 * NANO, carry=lent.carry, live_share=0.3, ceiling_rows=99, waiting=PLENTY)
    assert (back.live, back.recovery) == (3, 7)


def test_what_neither_lane_wants_is_dropped() -> None:
    few = split(
        earned_nrows=int(9.5 * NANO),
        carry=Carry(),
        live_share=0.3,
        ceiling_rows=99,
        waiting=LaneCounts(live=1, recovery=2),
    )
    assert (few.live, few.recovery) == (1, 2)
    assert few.carry == Carry(live=150_000_000, recovery=350_000_000)


def test_a_ceiling_drops_the_rows_above_it_and_keeps_the_fraction() -> None:
    capped = run([50.25], 0.3, ceiling=10)[0]
    assert (capped.live, capped.recovery) == (3, 7)
    assert capped.carry.live + capped.carry.recovery == 250_000_000


def test_a_lane_that_is_often_idle_cannot_take_every_row() -> None:
    """One live row arrives after each that was served, so its lane is idle for a tick now and then."""
    carry, live_waits, taken = Carry(), False, [0, 0]
    for _ in range(1000):
        waiting = LaneCounts(live=int(live_waits), recovery=10**6)
        tick = split(earned_nrows=NANO // 10, carry=carry, live_share=0.6, ceiling_rows=9, waiting=waiting)
        carry, live_waits = tick.carry, tick.live == 0
        taken[0] += tick.live
        taken[1] += tick.recovery
    assert sum(taken) == 100
    assert taken[1] >= 40


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_share_that_is_none_is_refused_by_name(share: float) -> None:
    with pytest.raises(ValueError, match="live_share"):
        split(earned_nrows=0, carry=Carry(), live_share=share, ceiling_rows=1, waiting=PLENTY)


def test_negative_earnings_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="earned_nrows"):
        split(earned_nrows=-1, carry=Carry(), live_share=0.3, ceiling_rows=1, waiting=PLENTY)


@settings(deadline=None)
@given(earned=st.lists(earnings, min_size=1, max_size=40), share=shares)
def test_while_both_lanes_wait_each_has_its_share_to_within_a_row_after_every_tick(
    earned: list[int], share: Fraction
) -> None:
    carry, had = Carry(), [0, 0]
    for nrows in earned:
        tick = split(earned_nrows=nrows, carry=carry, live_share=share, ceiling_rows=10**9, waiting=PLENTY)
        assert abs(tick.carry.live) <= NANO
        assert abs(tick.carry.recovery) <= NANO
        budget = tick.live + tick.recovery
        assert tick.live >= int(share * budget)
        assert tick.recovery >= int((1 - share) * budget)
        had[0] += tick.live
        had[1] += tick.recovery
        assert abs(had[0] - share * sum(had)) <= 1
        carry = tick.carry
    assert sum(had) == sum(earned) // NANO


@settings(deadline=None)
@given(earned=st.lists(earnings, min_size=1, max_size=30), share=shares)
def test_over_any_ticks_in_a_row_each_lane_that_waits_has_its_floor(earned: list[int], share: Fraction) -> None:
    """Whatever was split before: no lane pays for a row that it had earlier."""
    carry, ticks = Carry(), []
    for nrows in earned:
        tick = split(earned_nrows=nrows, carry=carry, live_share=share, ceiling_rows=10**9, waiting=PLENTY)
        ticks.append(tick)
        carry = tick.carry
    for first, last in combinations(range(len(ticks) + 1), 2):
        some = ticks[first:last]
        budget = live(some) + recovery(some)
        assert live(some) >= int(share * budget)
        assert recovery(some) >= int((1 - share) * budget)


@st.composite
def ticks_with_gaps(draw: st.DrawFn) -> list[tuple[int, LaneCounts, Fraction, int]]:
    counts = st.builds(LaneCounts, live=st.integers(0, 4), recovery=st.integers(0, 4))
    return draw(st.lists(st.tuples(earnings, counts, shares, st.integers(-3, 8)), min_size=1, max_size=30))


@settings(deadline=None)
@given(ticks=ticks_with_gaps())
def test_whatever_comes_the_parts_sum_and_no_fraction_is_lost_or_invented(
    ticks: list[tuple[int, LaneCounts, Fraction, int]],
) -> None:
    carry, earned_in_all = Carry(), 0
    for nrows, waiting, share, ceiling in ticks:
        whole = (nrows + carry.live + carry.recovery) // NANO
        tick = split(earned_nrows=nrows, carry=carry, live_share=share, ceiling_rows=ceiling, waiting=waiting)
        assert tick.live + tick.recovery == min(max(0, min(whole, ceiling)), waiting.total)
        assert 0 <= tick.live <= waiting.live
        assert 0 <= tick.recovery <= waiting.recovery
        assert abs(tick.carry.live) <= NANO
        assert abs(tick.carry.recovery) <= NANO
        earned_in_all += nrows
        carry = tick.carry
        assert carry.live + carry.recovery == earned_in_all % NANO


@settings(deadline=None)
@given(
    ticks=st.lists(st.tuples(earnings, st.integers(0, 3)), min_size=30, max_size=60),
    share=shares.filter(lambda share: Fraction(1, 5) <= share <= Fraction(4, 5)),
    live_is_fickle=st.booleans(),
)
def test_a_lane_that_always_waits_has_its_share_whatever_the_other_does(
    ticks: list[tuple[int, int]], share: Fraction, live_is_fickle: bool
) -> None:
    carry, had, total = Carry(), 0, 0
    for nrows, arrivals in ticks:
        waiting = LaneCounts(live=arrivals, recovery=99) if live_is_fickle else LaneCounts(live=99, recovery=arrivals)
        tick = split(earned_nrows=nrows, carry=carry, live_share=share, ceiling_rows=99, waiting=waiting)
        carry = tick.carry
        had += tick.recovery if live_is_fickle else tick.live
        total += tick.live + tick.recovery
    steady = 1 - share if live_is_fickle else share
    assert had >= steady * total - 1


@settings(deadline=None)
@given(live_carry=st.integers(-(10**12), 10**12), recovery_carry=st.integers(-(10**12), 10**12), share=shares)
def test_a_carry_that_was_edited_by_hand_is_worth_less_than_a_row(
    live_carry: int, recovery_carry: int, share: Fraction
) -> None:
    carry = Carry(live=live_carry, recovery=recovery_carry)
    tick = split(earned_nrows=2 * NANO, carry=carry, live_share=share, ceiling_rows=99, waiting=PLENTY)
    assert tick.live + tick.recovery == 2
    assert 0 <= tick.carry.live + tick.carry.recovery < NANO
    assert abs(tick.carry.live) <= NANO
