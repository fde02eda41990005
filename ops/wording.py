"""How things read: failures on one line, signatures, times, counts, tables, and text that came from outside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from shared.domain.job import Flag
from shared.errors import SluiceError


def sentence_of(error: SluiceError) -> str:
    """The error's sentence, with its detail in brackets where it has one that the sentence does not hold."""
    text = str(error)
    sentence = text.removesuffix(error.detail).strip()
    return f"{sentence} ({error.detail})" if error.detail and sentence else text


def plain(text: str) -> str:
    """Text from outside as a terminal may show it: an id may hold any Unicode, and a terminal obeys some of it."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def signature(flag: Flag, *, with_time: bool = False) -> str:
    """Who and why, to stand behind "by": `ada (arn:aws:...) at 2026-11-30 12:00:00 UTC: the upstream is down`."""
    when = f" at {moment(flag.at_ms)}" if with_time else ""
    return f"{flag.by}{when}: {plain(flag.why)}"


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


def cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def aligned(rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """A table of text: the first columns, `left` of them, are aligned to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
