"""The learned rate: one decision a minute, no evidence from idleness, bounded recovery, and the loop that it closes."""

from __future__ import annotations

from itertools import pairwise
from math import inf, isfinite, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.domain.settings import RatePolicy, UpstreamSettings
from shared.domain.upstream import Decision, Learned, rate_in_force
from shared.pacer.rate import MARGIN, RECOVERY_WINDOWS, WindowCounts, first, learn, learn_all, rate_during

MINUTE = 60_000
UPSTREAM = UpstreamSettings(name="inference", endpoint="http://localhost", limit_per_s=8.0)
HALVING = replace(UPSTREAM, rate_policy=RatePolicy.HALVING)
SETTLED = Learned(rate_per_s=4.0, good_per_s=4.0)

FULL = 240  # calls of a minute at 4/s


def window(
    minute: int = 0, calls: int = FULL, refusals: int = 0, holds: int = 0, binding: bool | None = None
) -> WindowCounts:
    return WindowCounts(start_ms=minute * MINUTE, calls=calls, refusals=refusals, holds=holds, binding=binding)


def after(learned: Learned, seen: WindowCounts, upstream: UpstreamSettings = UPSTREAM) -> Learned:
    return learn(learned, seen, upstream=upstream, now_ms=seen.start_ms + MINUTE + 2_000)


def clean_minutes(learned: Learned, minutes: int, upstream: UpstreamSettings = UPSTREAM, start: int = 0) -> Learned:
    """Punctual ticks, each after a minute in which all of the allowance was used and nothing was refused."""
    for minute in range(start, start + minutes):
        calls = round(rate_during(learned, minute * MINUTE) * 60)
        learned = after(learned, window(minute, calls=max(1, calls), binding=True), upstream)
    return learned


# -- one window, one decision


@pytest.mark.parametrize("upstream", [UPSTREAM, HALVING], ids=["measured", "halving"])
def test_nine_refusals_in_one_window_decrease_once(upstream: UpstreamSettings) -> None:
    once = after(SETTLED, window(calls=FULL, refusals=9), upstream)
    assert once.rate_per_s < 4.0
    for _ in range(9):
        assert after(once, window(calls=FULL, refusals=9), upstream) == once


def test_halving_halves_and_measured_goes_to_just_under_what_was_accepted() -> None:
    refused = window(calls=200, refusals=40)  # 161 accepted at most in a minute, a sixth of the time held
    assert after(SETTLED, refused, HALVING).rate_per_s == 2.0
    measured = after(SETTLED, refused)
    assert measured.decision is Decision.DECREASED
    assert measured.rate_per_s == pytest.approx(2.868, abs=0.001)
    assert 161 / 60 < measured.rate_per_s < 4.0


def test_a_decrease_is_never_below_the_factor() -> None:
    assert after(SETTLED, window(calls=240, refusals=230)).rate_per_s == 2.0


@pytest.mark.parametrize("upstream", [UPSTREAM, HALVING], ids=["measured", "halving"])
def test_five_refused_windows_of_one_rate_found_by_one_tick_decrease_once(upstream: UpstreamSettings) -> None:
    windows = [window(minute, calls=240, refusals=120) for minute in range(5)]
    together = learn_all(SETTLED, reversed(windows), upstream=upstream, now_ms=302_000)
    alone = learn(SETTLED, windows[0], upstream=upstream, now_ms=302_000)
    assert together.rate_per_s == alone.rate_per_s == 2.0
    assert together.window_ms == 4 * MINUTE


def test_five_clean_windows_of_one_rate_found_by_one_tick_raise_once() -> None:
    windows = [window(minute) for minute in range(5)]
    together = learn_all(SETTLED, windows, upstream=UPSTREAM, now_ms=302_000)
    assert together.rate_per_s == pytest.approx(4.14)
    assert together.decision is Decision.UNTRIED


@pytest.mark.parametrize(
    "nothing",
    [window(calls=0), window(-1), window(-2)],
    ids=["no calls", "decided before", "older than that"],
)
def test_these_windows_change_nothing_at_all(nothing: WindowCounts) -> None:
    learned = replace(SETTLED, window_ms=-MINUTE)
    assert after(learned, nothing) is learned


def test_a_window_that_still_runs_is_not_judged() -> None:
    assert learn(SETTLED, window(refusals=100), upstream=UPSTREAM, now_ms=59_999) is SETTLED


def test_skipped_windows_do_not_matter() -> None:
    assert after(after(SETTLED, window(3)), window(9)).decision is Decision.PROBED


# -- what is evidence, and of what


@pytest.mark.parametrize(
    ("seen", "decision"),
    [
        (window(calls=FULL, binding=False), Decision.UNUSED),
        (window(calls=FULL, holds=1), Decision.HELD),  # a 503 says nothing of the limit
        (window(calls=FULL, holds=200), Decision.HELD),
        (window(calls=FULL, refusals=1), Decision.TOLERATED),  # below the threshold of 2 %
        (window(calls=20, refusals=1), Decision.TOLERATED),  # above it, and yet one refusal
    ],
)
def test_no_increase_and_no_decrease(seen: WindowCounts, decision: Decision) -> None:
    learned = after(SETTLED, seen)
    assert (learned.rate_per_s, learned.decision) == (4.0, decision)


def test_that_an_allowance_was_not_used_is_believed_when_its_counters_had_time_to_come() -> None:
    """83 % of it are counted 2 s after the minute. A minute later the rest has come, or there was no more."""
    assert after(SETTLED, window(calls=200)) is SETTLED
    rest = learn(SETTLED, window(calls=FULL), upstream=UPSTREAM, now_ms=2 * MINUTE + 2_000)
    assert rest.decision is Decision.PROBED
    same = learn(SETTLED, window(calls=200), upstream=UPSTREAM, now_ms=2 * MINUTE + 2_000)
    assert (same.rate_per_s, same.decision) == (4.0, Decision.UNUSED)


@pytest.mark.parametrize("seen", [window(calls=FULL), window(calls=150, binding=True)])
def test_a_clean_used_window_increases(seen: WindowCounts) -> None:
    assert after(SETTLED, seen).rate_per_s == pytest.approx(4 * 1.035)


def test_one_refusal_in_1000_calls_is_noise() -> None:
    fast = replace(UPSTREAM, limit_per_s=80.0)
    learned = Learned(rate_per_s=40.0, good_per_s=40.0)
    assert after(learned, window(calls=2400, refusals=2), fast).decision is Decision.PROBED
    assert after(learned, window(calls=2400, refusals=3), fast).decision is Decision.TOLERATED


def test_few_refusals_that_hold_much_decrease_at_the_second_window() -> None:
    """At 48/s against 40/s every refusal holds a second: 0.8 % are refused, and a quarter of the allowance is lost."""
    fast = replace(UPSTREAM, limit_per_s=80.0)
    once = after(Learned(rate_per_s=48.0, good_per_s=48.0), window(0, calls=2070, refusals=17), fast)
    assert (once.rate_per_s, once.decision) == (48.0, Decision.TOLERATED)
    twice = after(once, window(1, calls=2070, refusals=17), fast)
    assert twice.decision is Decision.DECREASED
    assert 0.9 * 40 < twice.rate_per_s < 40


def test_below_the_last_good_rate_it_climbs_fast_and_stops_just_below_it() -> None:
    learned = replace(SETTLED, rate_per_s=2.0)
    rates = [clean_minutes(learned, minutes).rate_per_s for minutes in range(5)]
    assert rates == pytest.approx([2.0, 3.28, 3.707, 3.849, 3.92], abs=0.05)
    assert MARGIN * 4.0 == 3.92


def test_beyond_it_the_steps_begin_small_and_grow() -> None:
    wide = replace(UPSTREAM, limit_per_s=80.0)
    rates = [clean_minutes(SETTLED, minutes, wide).rate_per_s for minutes in range(7)]
    steps = [later / earlier - 1 for earlier, later in pairwise(rates)]
    assert steps == pytest.approx([0.035, 0.084, 0.2016, 0.4838, 1.0, 1.0], abs=0.001)


def test_a_refused_probe_is_withdrawn_to_just_under_the_good_rate() -> None:
    probing = after(SETTLED, window(0))
    withdrawn = after(probing, window(1, calls=246, refusals=2))
    assert (withdrawn.rate_per_s, withdrawn.decision) == (3.92, Decision.WITHDRAWN)
    assert withdrawn.good_per_s == 4.0


def test_short_of_a_refused_rate_a_step_is_half_of_the_way_at_most() -> None:
    learned = replace(SETTLED, refused_per_s=5.0, probes=5)
    assert after(learned, window(0)).rate_per_s == 4.5


def test_what_a_dying_second_of_the_old_rate_refused_is_not_held_against_the_new_one() -> None:
    """The decrease comes into force 2 s into the next window: 16 calls at 8/s against a limit of 4/s."""
    down = after(first(HALVING), window(0, calls=320, refusals=80), HALVING)
    assert down.rate_per_s == 4.0
    assert after(down, window(1, calls=240, refusals=6), HALVING).rate_per_s == 4.0


# -- a few refusals at the ceiling


def test_a_few_refusals_at_the_ceiling_trim_a_hundredth() -> None:
    trimmed = after(first(UPSTREAM), window(0, calls=470, refusals=2))
    assert trimmed.rate_per_s == pytest.approx(7.92)
    assert trimmed.decision is Decision.TRIMMED
    halved = after(first(HALVING), window(0, calls=470, refusals=2), HALVING)
    assert (halved.rate_per_s, halved.decision) == (8.0, Decision.TOLERATED)


def test_after_a_trim_it_goes_half_of_the_way_back_again_and_again() -> None:
    trimmed = after(first(UPSTREAM), window(0, calls=470, refusals=2))
    rates = [clean_minutes(trimmed, minutes, start=1).rate_per_s for minutes in range(5)]
    assert rates == pytest.approx([7.92, 7.96, 7.98, 7.99, 7.995])
    assert clean_minutes(trimmed, 30, start=1).rate_per_s < 8.0


def test_ten_of_456_are_few_once_and_a_limit_that_fell_when_the_lower_rate_meets_them_too() -> None:
    once = after(first(UPSTREAM), window(0, calls=456, refusals=10))
    assert once.decision is Decision.TRIMMED
    between = after(once, window(1, calls=456, refusals=10))  # both rates were in force in it
    assert between.decision is Decision.TOLERATED
    assert after(between, window(2, calls=456, refusals=10)).decision is Decision.DECREASED
    many = after(first(UPSTREAM), window(0, calls=320, refusals=40))
    assert many.decision is Decision.DECREASED


# -- the bounds


@pytest.mark.parametrize("bad", [0.0, -1.0, nan, inf, True])
def test_a_rate_that_is_none_is_refused_by_name(bad: float) -> None:
    with pytest.raises(ValueError, match="rate_per_s"):
        replace(SETTLED, rate_per_s=bad)
    with pytest.raises(ValueError, match="good_per_s"):
        replace(SETTLED, good_per_s=bad)
    with pytest.raises(ValueError, match="limit_per_s"):
        rate_in_force(SETTLED, replace(UPSTREAM, limit_per_s=bad))


@pytest.mark.parametrize("bad", [0.0, -1.0, nan, inf, 2.0])
def test_a_floor_that_is_none_is_refused_by_name(bad: float) -> None:
    with pytest.raises(ValueError, match="floor_share"):
        after(SETTLED, window(0), replace(UPSTREAM, floor_share=bad))


@pytest.mark.parametrize("count", ["calls", "refusals", "holds"])
def test_a_negative_count_is_refused_by_name(count: str) -> None:
    with pytest.raises(ValueError, match=count):
        replace(window(), **{count: -1})


def test_the_rate_follows_a_limit_that_a_deployment_lowers_at_once() -> None:
    assert rate_in_force(first(UPSTREAM), replace(UPSTREAM, limit_per_s=2.0)) == 2.0
    assert rate_in_force(None, UPSTREAM) == 8.0


rates = st.floats(0.16, 8.0)
learned_states = st.builds(
    Learned,
    rate_per_s=rates,
    good_per_s=rates,
    refused_per_s=st.none() | rates,
    previous_per_s=st.none() | rates,
    probes=st.integers(-2, 30),
    refused_windows=st.integers(0, 5),
)
minutes_seen = st.lists(
    st.tuples(st.integers(0, 700), st.integers(0, 700), st.integers(0, 50), st.sampled_from([None, True, False])),
    max_size=12,
)


@given(learned=learned_states, policy=st.sampled_from(RatePolicy))
def test_from_anywhere_90_percent_of_the_ceiling_is_reached_in_the_stated_windows(
    learned: Learned, policy: RatePolicy
) -> None:
    upstream = replace(UPSTREAM, rate_policy=policy)
    assert clean_minutes(learned, RECOVERY_WINDOWS, upstream).rate_per_s >= 0.9 * 8.0


@given(learned=learned_states, seen=minutes_seen, policy=st.sampled_from(RatePolicy))
def test_whatever_is_counted_the_rate_stays_within_its_bounds_and_repeats_change_nothing(
    learned: Learned, seen: list[tuple[int, int, int, bool | None]], policy: RatePolicy
) -> None:
    upstream = replace(UPSTREAM, rate_policy=policy)
    for minute, (calls, refusals, holds, binding) in enumerate(seen):
        counts = window(minute, calls, refusals, holds, binding)
        later = after(learned, counts, upstream)
        assert isfinite(later.rate_per_s)
        assert 0.16 <= later.rate_per_s <= 8.0
        assert after(later, counts, upstream) is later
        if refusals > 0.001 * calls or holds > 0.001 * calls:
            assert later.rate_per_s <= rate_in_force(learned, upstream)
        if calls == 0:
            assert later is learned
        learned = later


@given(seen=minutes_seen)
def test_windows_are_applied_in_order_however_they_are_given(seen: list[tuple[int, int, int, bool | None]]) -> None:
    windows = [window(minute, *counts) for minute, counts in enumerate(seen)]
    now_ms = len(windows) * MINUTE
    in_order = learn_all(SETTLED, windows, upstream=UPSTREAM, now_ms=now_ms)
    assert learn_all(SETTLED, windows[::-1], upstream=UPSTREAM, now_ms=now_ms) == in_order
    assert learn_all(in_order, windows, upstream=UPSTREAM, now_ms=now_ms) == in_order
