"""How a chunk that raised an error ends, and how long its row waits before it is tried again (facts F37, F38).

Every error has one consequence for the row, and only a failure of the job's own code burns an attempt (I9). Jitter is
an argument in 0..1 (1 excluded) and only ever lengthens a wait: what failed together returns one by one.
"""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from shared.domain import lifecycle, stats
from shared.domain.job import Job
from shared.domain.lifecycle import Move
from shared.domain.settings import ClassSettings, RetrySettings
from shared.errors import PermitUnavailable, QuotaExhausted, Refused, Retryable, SluiceError, UpstreamHeld

LONGEST_RETRY_AFTER_S: Final = 3600.0
"""What an upstream may ask for at most; a longer wish is read as this."""

REFUSAL_WAIT_S: Final = 5.0
"""The wait after a refusal that names none."""

_SPREAD: Final = 0.5
"""Jitter adds up to this share of the wait ..."""

_LEAST_SPREAD_S: Final = 1.0
"""... and where the wait is short, up to this much: also those who may return at once do not do so together."""

_DATE: Final = re.compile(r"[A-Za-z]{3,9},? [0-9A-Za-z:, +-]{1,64}")

_SECONDS: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")


def ending_of(
    error: Exception, job: Job, settings: ClassSettings, *, now_ms: int, jitter: float, nonce: str
) -> tuple[Move, str]:
    """The move that an error means for the row, and the counter that it belongs to."""
    match error:
        case Refused(retry_after_s=retry_after_s):
            counter = stats.HOLDS if isinstance(error, UpstreamHeld) else stats.REFUSALS
            delay_s = after_refusal_s(retry_after_s, jitter)
        case PermitUnavailable(free_at_ms=free_at_ms):
            counter, delay_s = stats.NO_PERMIT, max(0, free_at_ms - now_ms) / 1000 + jitter
        case QuotaExhausted() | Retryable():
            counter, delay_s = stats.OUTAGES, backoff_s(1, settings.retry, jitter)
        case _:
            return own_failure(error, job, settings, now_ms=now_ms, jitter=jitter, nonce=nonce)
    eligible_ms = now_ms + round(delay_s * 1000)
    return lifecycle.release(job, reason=reason_of(error), eligible_ms=eligible_ms, nonce=nonce), counter


def own_failure(
    error: Exception, job: Job, settings: ClassSettings, *, now_ms: int, jitter: float, nonce: str
) -> tuple[Move, str]:
    """The job's own code failed: one attempt more, and death at the class's limit."""
    attempts, reason = job.attempts + 1, reason_of(error)
    if attempts >= settings.retry.max_attempts:
        return lifecycle.die(job, reason=reason, now_ms=now_ms, nonce=nonce, attempts=attempts), stats.DEATHS
    eligible_ms = now_ms + round(backoff_s(attempts, settings.retry, jitter) * 1000)
    return lifecycle.fail(job, reason=reason, eligible_ms=eligible_ms, nonce=nonce), stats.FAILURES


def reason_of(error: Exception) -> str:
    """A low-cardinality code: the error's own, or its type's name. Never its text, which may hold anything (I12)."""
    return error.code if isinstance(error, SluiceError) else type(error).__name__


def backoff_s(attempts: int, retry: RetrySettings, jitter: float) -> float:
    """Seconds until the next attempt, after `attempts` failed ones: base x 2^(attempts - 1), at most `max_delay_s`,
    plus up to half of that as jitter. ValueError if `jitter` is not in 0..1."""
    doublings = min(max(0, attempts - 1), 60)
    return _spread(min(retry.base_delay_s * 2.0**doublings, retry.max_delay_s), jitter)


def after_refusal_s(retry_after_s: float | None, jitter: float) -> float:
    """Seconds until a refused row is eligible again: what the upstream asked for (at most an hour), else 5 s, plus up
    to half of that, at least up to a second, as jitter. ValueError if `jitter` is not in 0..1."""
    return _spread(REFUSAL_WAIT_S if retry_after_s is None else _clamped(retry_after_s), jitter)


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


def _spread(wait_s: float, jitter: float) -> float:
    if not 0 <= jitter < 1:
        raise ValueError(f"jitter must be in 0..1, 1 excluded, got {jitter}")
    return wait_s + max(_LEAST_SPREAD_S, wait_s * _SPREAD) * jitter


def _clamped(seconds: float) -> float:
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER_S)
