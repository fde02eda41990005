"""How long a row waits before it is tried again: after its own failure, and after an upstream's refusal (TRAPS 39, 40).

Jitter is an argument in 0..1 (1 excluded) and only ever lengthens a wait: what failed together returns one by one.
"""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from shared.domain.settings import RetrySettings

LONGEST_RETRY_AFTER_S: Final = 3600.0
"""What an upstream may ask for at most; a longer wish is read as this."""

REFUSAL_WAIT_S: Final = 5.0
"""The wait after a refusal that names none."""

_SPREAD: Final = 0.5

_LEAST_SPREAD_S: Final = 1.0

_DATE: Final = re.compile(r"[A-Za-z]{3,9},? [0-9A-Za-z:, +-]{1,64}")

_SECONDS: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")


def parse_retry_after(value: str | None, *, now_ms: int) -> float | None:
    """Seconds to wait, 0..3600, from a Retry-After header: a number or an HTTP date (RFC 9110, 10.2.3).

    Never raises. Fractions are taken, negative numbers and dates gone by are 0, anything else is None.
    """
    text = "" if value is None else value.strip(" \t\r\n")
    if _SECONDS.fullmatch(text):
        return _clamped(float(text))
    if not _DATE.fullmatch(text):
        return None
    try:
        date = parsedate_to_datetime(text)
        aware = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        return _clamped(aware.timestamp() - now_ms / 1000)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def backoff_s(attempts: int, retry: RetrySettings, jitter: float) -> float:
    """Seconds until the next attempt, after `attempts` failed ones: base x 2^(attempts - 1), at most `max_delay_s`,
    plus up to half of that as jitter. ValueError if `jitter` is not in 0..1."""
    doublings = min(max(0, attempts - 1), 60)
    return _spread(min(retry.base_delay_s * 2.0**doublings, retry.max_delay_s), jitter)


def after_refusal_s(retry_after_s: float | None, jitter: float) -> float:
    """Seconds until a refused row is eligible again: what the upstream asked for (at most an hour), else 5 s, plus up
    to half of that, at least up to a second, as jitter. ValueError if `jitter` is not in 0..1."""
    return _spread(REFUSAL_WAIT_S if retry_after_s is None else _clamped(retry_after_s), jitter)


def _spread(wait_s: float, jitter: float) -> float:
    if not 0 <= jitter < 1:
        raise ValueError(f"jitter must be in 0..1, 1 excluded, got {jitter}")
    return wait_s + max(_LEAST_SPREAD_S, wait_s * _SPREAD) * jitter


def _clamped(seconds: float) -> float:
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER_S)
