"""How things read: failures on one line, times, counts, and text that came from outside."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from shared.errors import SluiceError


def said(error: SluiceError) -> str:
    """The error's sentence, with its detail in brackets where it has one that the sentence does not hold."""
    text = str(error)
    sentence = text.removesuffix(error.detail).strip()
    return f"{sentence} ({error.detail})" if error.detail and sentence else text


def plain(text: str) -> str:
    """Text from outside as a terminal may show it: an id may hold any Unicode, and a terminal obeys some of it."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def moment(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: float) -> str:
    """Two units at most: what a person plans with."""
    whole = round(seconds)
    for unit, size, smaller, small in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def dollars(usd: float) -> str:
    """1,234.50 or 0.0000213: cents, or three digits of what is less than a cent."""
    if not 0 < usd < 0.01:
        return f"{usd:,.2f}"
    return f"{usd:.{2 - math.floor(math.log10(usd))}f}"


def counted(number: int, noun: str) -> str:
    """1 job, 2 jobs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
