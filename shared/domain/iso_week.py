"""ISO weeks as text, like `2026-W53`: from Monday 00:00 UTC on, and of the year that their Thursday lies in.

A file of its own: the producer of the weekly reports and the kind that writes them mean the same week.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

DAYS: Final = 7

_WEEK: Final = re.compile(r"([0-9]{4})-W([0-9]{2})")

_DAY_MS: Final = 86_400_000


def day_of(moment_ms: int) -> date:
    return datetime.fromtimestamp(moment_ms / 1000, tz=UTC).date()


def week_of(day: date) -> str:
    """Not of the day's own year: 2027-01-03 lies in 2026-W53, and 2024-12-30 in 2025-W01."""
    year, week, _ = day.isocalendar()
    return f"{year:04d}-W{week:02d}"


def week_before(moment_ms: int) -> str:
    """The last week that was over at this moment."""
    return week_of(day_of(moment_ms) - timedelta(days=DAYS))


def first_day(week: str) -> date:
    """The week's Monday. ValueError where `week` is no ISO week: 2027 has no W53, and no year has a W00."""
    parts = _WEEK.fullmatch(week)
    if parts is None:
        raise ValueError("not like 2026-W53")
    return date.fromisocalendar(int(parts[1]), int(parts[2]), 1)


def days_of(week: str) -> list[date]:
    """Monday to Sunday. ValueError where `week` is no ISO week."""
    return [first_day(week) + timedelta(days=number) for number in range(DAYS)]


def day_after(week: str) -> date:
    """The first day that is not the week's any more. ValueError where `week` is no ISO week."""
    return first_day(week) + timedelta(days=DAYS)


def end_ms(week: str) -> int:
    """The first moment after the week. ValueError where `week` is no ISO week."""
    return (day_after(week) - date(1970, 1, 1)).days * _DAY_MS
