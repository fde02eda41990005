"""When a drain stops by itself, and when it must not."""

from __future__ import annotations

from math import inf, isfinite, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.domain.settings import AbortRules
from shared.pacer.abort import AbortReason, Health, judge

RULES = AbortRules(spend_usd=10.0)
OFF = AbortRules(age_windows=None, excess_share=None, retry_share=None, dead_share=None, spend_usd=None)
HEALTHY = Health(
    oldest_age_s=600,
    pending=5000,
    starts=240,
    arrivals=60,
    completions=230,
    calls=480,
    allowance_calls=480,
    spend_usd=0.1,
)


def minutes(**series: list[Any]) -> list[Health]:
    """Healthy windows but for what is given, one value a window."""
    length = max(len(values) for values in series.values())
    return [replace(HEALTHY, **{name: values[at] for name, values in series.items()}) for at in range(length)]


def reason(windows: list[Health], rules: AbortRules = RULES) -> AbortReason | None:
    found = judge(windows, rules)
    return None if found is None else found.reason


def test_at_the_end_of_a_drain_where_only_what_fails_is_left_retries_may_grow() -> None:
    growing = {"retries": [8, 16, 30], "starts": [40, 40, 30], "arrivals": [0, 0, 0]}

    assert reason(minutes(**growing, pending=[90, 60, 50])) is None
    assert reason(minutes(**growing, pending=[5000, 4980, 4970])) is AbortReason.RETRY_GROWTH


BROKEN = [
    (minutes(oldest_age_s=[600, 660, 720]), AbortReason.AGE_RISING),
    (minutes(calls=[480, 506]), AbortReason.OVER_ALLOWANCE),  # 5 % of 480 is 24, and one for the window's edge
    (minutes(retries=[20, 60, 180]), AbortReason.RETRY_GROWTH),  # 240 starts - 60 arrivals = 180
    (minutes(deaths=[0, 0, 180]), AbortReason.DEAD_RATIO),  # 180 of 870
    (minutes(spend_usd=[4.0, 4.0, 2.01]), AbortReason.SPEND),
]


@pytest.mark.parametrize(("windows", "expected"), BROKEN, ids=[expected.value for _, expected in BROKEN])
def test_each_rule_fires_at_its_bound_and_none_when_it_is_off(windows: list[Health], expected: AbortReason) -> None:
    assert reason(windows) is expected
    assert judge(windows, OFF) is None


WITHIN = [
    minutes(oldest_age_s=[600, 660, 660]),
    minutes(oldest_age_s=[600, 660]),  # one rise only: two windows make three points
    minutes(oldest_age_s=[600, 660, 720], pending=[5000, 4800, 4600]),  # due at one moment, and draining
    minutes(calls=[480, 505]),
    minutes(calls=[900], allowance_calls=[None]),  # no upstream
    minutes(retries=[180, 180, 180]),  # many, but they do not grow
    minutes(retries=[1, 2, 3], starts=[60, 60, 60]),  # they grow, and are three
    minutes(retries=[20, 60, 179]),
    minutes(deaths=[0, 0, 170]),
    minutes(completions=[5], deaths=[14]),  # 19 rows say nothing
    minutes(spend_usd=[4.0, 4.0, 2.0]),
]


@pytest.mark.parametrize("windows", WITHIN, ids=range(len(WITHIN)))
def test_within_its_bounds_a_drain_goes_on(windows: list[Health]) -> None:
    assert judge(windows, RULES) is None


def test_the_reason_comes_with_its_numbers() -> None:
    found = judge(minutes(oldest_age_s=[600, 660, 720]), RULES)
    assert found is not None
    assert found.sentence == "the oldest row's age rose from 600 to 720 s and nothing drained"


def test_calls_beyond_the_allowance_are_named_before_an_old_row() -> None:
    windows = minutes(oldest_age_s=[600, 660, 720], calls=[900, 900, 900])
    assert reason(windows) is AbortReason.OVER_ALLOWANCE


def test_longer_patience_with_the_age_can_be_asked_for() -> None:
    windows = minutes(oldest_age_s=[1, 2, 3, 4, 5, 6])
    assert reason(windows, AbortRules(age_windows=5)) is AbortReason.AGE_RISING
    assert reason(windows, AbortRules(age_windows=6)) is None


def test_without_windows_there_is_nothing_to_judge() -> None:
    assert judge([], RULES) is None


@pytest.mark.parametrize("bad", [-1.0, nan, inf])
@pytest.mark.parametrize("name", ["excess_share", "retry_share", "dead_share", "spend_usd"])
def test_a_bound_that_is_none_is_refused_by_name(name: str, bad: float) -> None:
    with pytest.raises(ValueError, match=name):
        replace(RULES, **{name: bad})


def test_a_rise_over_no_windows_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="age_windows"):
        AbortRules(age_windows=0)


counts = st.integers(0, 1000)
any_health = st.builds(
    Health,
    oldest_age_s=st.floats(0, 1e6),
    pending=counts,
    starts=counts,
    arrivals=counts,
    completions=counts,
    retries=counts,
    deaths=counts,
    calls=counts,
    allowance_calls=st.none() | st.floats(0, 1000),
    spend_usd=st.floats(0, 5),
)


@given(windows=st.lists(any_health, max_size=8), excess=st.none() | st.floats(0, 5), dead=st.none() | st.floats(0, 1))
def test_looser_bounds_never_stop_what_tighter_ones_let_go(
    windows: list[Health], excess: float | None, dead: float | None
) -> None:
    rules = AbortRules(excess_share=excess, dead_share=dead)
    looser = AbortRules(
        excess_share=None if excess is None else excess * 2,
        dead_share=None if dead is None else dead * 2,
        age_windows=3,
    )
    assert judge(windows, OFF) is None
    if judge(windows, rules) is None:
        assert judge(windows, looser) is None


@given(windows=st.lists(any_health, max_size=8))
def test_a_sentence_is_one_short_line_of_figures(windows: list[Health]) -> None:
    found = judge(windows, RULES)
    if found is not None:
        assert len(found.sentence) < 120
        assert "\n" not in found.sentence
        assert isfinite(len(found.sentence))
