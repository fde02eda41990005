"""What operators set: bounds that end, and slots that count as little as is certain until they are verified."""

from __future__ import annotations

import pytest

from shared.domain.control import (
    RateOverride,
    SlotsOverride,
    override_sources,
    rate_bound,
    slots_in_force,
    slots_source,
)
from shared.domain.job import Flag

FLAG = Flag(by="ada", why="x", at_ms=0)
CONFIGURED = 20


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf"), True])
def test_a_rate_that_is_none_is_refused_by_name(rate: float) -> None:
    with pytest.raises(ValueError, match="rate_per_s"):
        RateOverride(rate_per_s=rate, flag=FLAG)


@pytest.mark.parametrize(
    ("override", "bound"),
    [
        (None, None),
        (RateOverride(rate_per_s=2.0, flag=FLAG), 2.0),
        (RateOverride(rate_per_s=2.0, flag=FLAG, until_ms=101), 2.0),
        (RateOverride(rate_per_s=2.0, flag=FLAG, until_ms=100), None),  # over at that moment
        (RateOverride(rate_per_s=None, flag=FLAG), None),  # somebody cleared it
    ],
)
def test_a_bound_holds_until_its_end_or_until_it_is_cleared(override: RateOverride | None, bound: float | None) -> None:
    assert rate_bound(override, now_ms=100) == bound


@pytest.mark.parametrize(
    ("slots", "before", "verified", "in_force", "source"),
    [
        (8, 20, True, 8, "set by an operator"),
        (8, 20, False, 8, "set by an operator, not verified yet"),  # a cut counts at once
        (40, 20, True, 40, "set by an operator"),
        (40, 20, False, 20, "set by an operator, not verified yet"),  # a raise counts when it is there
        (None, 8, True, 20, "configured"),
        (None, 8, False, 8, "set by an operator, not verified yet"),
        (None, 40, False, 20, "set by an operator, not verified yet"),
    ],
)
def test_ticks_plan_with_what_is_certain(
    slots: int | None, before: int, verified: bool, in_force: int, source: str
) -> None:
    override = SlotsOverride(slots=slots, flag=FLAG, before=before, verified_ms=1 if verified else None)

    assert slots_in_force(override, configured=CONFIGURED) == in_force
    assert slots_source(override) == source
    assert slots_in_force(None, configured=CONFIGURED) == CONFIGURED


def test_only_what_is_overridden_has_a_source_of_its_own() -> None:
    bound = RateOverride(rate_per_s=2.0, flag=FLAG, until_ms=100)
    override = SlotsOverride(slots=8, flag=FLAG, before=20, verified_ms=1)
    back = SlotsOverride(slots=None, flag=FLAG, before=8, verified_ms=1)

    assert override_sources(None, None, now_ms=0) == {}
    assert override_sources(bound, override, now_ms=0).keys() == {"override_rate_per_s", "concurrency"}
    assert override_sources(bound, back, now_ms=100) == {}


@pytest.mark.parametrize("field", ["slots", "before"])
def test_slots_that_are_none_are_refused_by_name(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        SlotsOverride(**{"slots": 8, "before": 20, "flag": FLAG} | {field: 0})  # type: ignore[arg-type]
