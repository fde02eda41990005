"""ISO weeks, most of all where the year ends: checked against a list of turns of the year, not by the same formula."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.iso_week import days_of, end_ms, first_day, week_before, week_of


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("day", "week"),
    [
        ("2020-12-31", "2020-W53"),
        ("2021-01-03", "2020-W53"),  # January, and still last year's week
        ("2021-01-04", "2021-W01"),
        ("2024-12-29", "2024-W52"),
        ("2024-12-30", "2025-W01"),  # December, and already next year's week
        ("2026-01-01", "2026-W01"),
        ("2026-12-28", "2026-W53"),
        ("2027-01-03", "2026-W53"),
        ("2027-01-04", "2027-W01"),
        ("2000-02-29", "2000-W09"),
    ],
)
def test_a_week_belongs_to_the_year_of_its_thursday(day: str, week: str) -> None:
    assert week_of(date.fromisoformat(day)) == week


@pytest.mark.parametrize(
    ("moment", "week"),
    [
        ("2027-01-04T00:00:00", "2026-W53"),  # the first moment at which it is over
        ("2027-01-03T23:59:59.999", "2026-W52"),
        ("2027-01-10T23:59:59.999", "2026-W53"),  # a schedule that is late by days reports the same week
        ("2025-01-06T03:00:00", "2025-W01"),
        ("2024-12-30T03:00:00", "2024-W52"),
    ],
)
def test_the_week_before_a_moment_is_the_last_one_that_was_over(moment: str, week: str) -> None:
    assert week_before(ms(moment)) == week
    assert end_ms(week) <= ms(moment)


@pytest.mark.parametrize(
    "week", ["2027-W53", "2026-W54", "2026-W00", "2026-53", "2026-W5", "", "2026-W٥٣", "0000-W01", "2026-W53\n"]
)
def test_a_week_that_does_not_exist_is_no_week(week: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        days_of(week)


@given(st.dates(min_value=date(1971, 1, 11), max_value=date(2099, 12, 31)))
def test_every_day_is_one_of_the_seven_of_its_week_and_of_no_other(day: date) -> None:
    week = week_of(day)
    days = days_of(week)
    assert day in days
    assert (len(days), days[0].weekday(), first_day(week)) == (7, 0, days[0])
    assert week_of(days[-1] + timedelta(days=1)) > week
    assert end_ms(week) == ms(f"{days[-1] + timedelta(days=1)}T00:00:00")
