"""How a chunk that raised an error ends: every error has one consequence for the row, and few burn an attempt (I9)."""

from __future__ import annotations

from shared.domain import lifecycle, stats
from shared.domain.job import SLUICE, Flag, Job
from shared.domain.lifecycle import Move
from shared.domain.settings import ClassSettings, UpstreamSettings
from shared.errors import PermitUnavailable, QuotaExhausted, Refused, Retryable, SluiceError, UpstreamHeld
from shared.ports import Ports
from shared.steps.tally import Tally
from shared.worker.retry import after_refusal_s, backoff_s


def ending_of(
    error: Exception, job: Job, settings: ClassSettings, *, now_ms: int, jitter: float, nonce: str
) -> tuple[Move, str]:
    """The move that an error means, and the counter that it belongs to. `jitter` is in [0, 1)."""

    def release(delay_s: float, counter: str) -> tuple[Move, str]:
        eligible_ms = now_ms + round(delay_s * 1000)
        return lifecycle.release(job, reason=reason_of(error), eligible_ms=eligible_ms, nonce=nonce), counter

    match error:
        case Refused(retry_after_s=retry_after_s):
            counter = stats.HOLDS if isinstance(error, UpstreamHeld) else stats.REFUSALS
            return release(after_refusal_s(retry_after_s, jitter), counter)
        case PermitUnavailable(free_at_ms=free_at_ms):
            return release(max(0, free_at_ms - now_ms) / 1000 + jitter, stats.NO_PERMIT)
        case QuotaExhausted() | Retryable():
            return release(backoff_s(1, settings.retry, jitter), stats.OUTAGES)
        case _:
            return _failure(error, job, settings, now_ms=now_ms, jitter=jitter, nonce=nonce)


def _failure(
    error: Exception, job: Job, settings: ClassSettings, *, now_ms: int, jitter: float, nonce: str
) -> tuple[Move, str]:
    attempts, reason = job.attempts + 1, reason_of(error)
    if attempts >= settings.retry.max_attempts:
        return lifecycle.die(job, reason=reason, now_ms=now_ms, nonce=nonce, attempts=attempts), stats.DEATHS
    eligible_ms = now_ms + round(backoff_s(attempts, settings.retry, jitter) * 1000)
    return lifecycle.fail(job, reason=reason, eligible_ms=eligible_ms, nonce=nonce), stats.FAILURES


def reason_of(error: Exception) -> str:
    """A low-cardinality code: the error's own, or its type's name. Never its text, which may hold anything (I12)."""
    return error.code if isinstance(error, SluiceError) else type(error).__name__


def tell_everyone(
    error: Exception, ports: Ports, settings: ClassSettings, upstream: UpstreamSettings | None, tally: Tally
) -> None:
    """What an error means beyond its job: a refusal holds the shared permits, an exhausted quota pauses the class."""
    if isinstance(error, Refused) and error.retry_after_s is not None and upstream is not None:
        ports.limiter.hold(upstream, until_ms=ports.clock.now_ms() + round(error.retry_after_s * 1000))
    if isinstance(error, QuotaExhausted):
        flag = Flag(by=SLUICE, why="the upstream's quota is used up", at_ms=ports.clock.now_ms())
        if ports.ledger.pause_unless_paused(settings.name, flag):
            tally.add(stats.QUOTA_PAUSES)
