"""Every error that Sluice raises on purpose.

The first line of a class's docstring is the message an operator reads. Whether trying again can help is in the type
(`Retryable`, `Permanent`). `code` is the low-cardinality reason for metrics and the row's last error: the name of the
class in this file, as in `ledger_unavailable`, unless it says another. Neither ever holds a payload, a token or a
person's identifier (I12). Standard library only.
"""

from __future__ import annotations

import re


class SluiceError(Exception):
    """Something went wrong."""

    code = "error"

    def __init_subclass__(cls) -> None:
        if "code" not in vars(cls) and cls.__module__ == __name__:
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, detail: str = "") -> None:
        self.detail = detail
        super().__init__(detail)

    def __str__(self) -> str:
        message = (type(self).__doc__ or "").strip().splitlines()[0]
        return f"{message} {self.detail}".strip()


class Retryable(SluiceError):
    """A later attempt can succeed."""


class Permanent(SluiceError):
    """No later attempt will succeed until something is changed."""


class Unforeseen(Permanent):
    """Something failed that nobody foresaw:"""


# -- what an engineer or an operator typed


class ConfigError(Permanent):
    """The configuration is not valid."""

    code = "config"

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("\n".join(faults))


class InvalidInput(Permanent):
    """The input is not valid: it names the field, the value's kind and what was expected."""

    def __init__(self, field: str, *, got: str, expected: str) -> None:
        self.field = field
        self.got = got
        self.expected = expected
        super().__init__(f"{field}: got {got}, expected {expected}")

    def __str__(self) -> str:
        return self.detail


class JobsRefused(Permanent):
    """A producer made jobs that were refused:"""


# -- the ledger, the queue, the shared permits


class LedgerUnavailable(Retryable):
    """The ledger did not answer in time."""


class LeaseEnded(Retryable):
    """The worker's lease on the message ended before its work did."""


class QueueUnavailable(Retryable):
    """The queue did not answer in time."""


class StorageUnavailable(Retryable):
    """The object store did not answer in time."""


class ObjectMissing(Permanent):
    """An object that the job points at does not exist."""


# -- the webhook


class SecretUnavailable(Retryable):
    """The webhook's secret could not be read."""


class SecretUnusable(Permanent):
    """The webhook's secret is missing, too short or not ASCII: nobody is let in."""


class RotationRefused(Permanent):
    """A step of the secret's rotation does not fit the secret's versions."""


class TriggerUnavailable(Retryable):
    """The pacer could not be asked for a tick."""


# -- what only operators reach


class MappingsUnavailable(Retryable):
    """The event source mappings could not be read or changed."""


class MappingMissing(Permanent):
    """A lane has not got one event source mapping: deploy first."""


class NotVerified(Retryable):
    """The event source mappings have not taken the new bound in time."""


class HistoryUnavailable(Retryable):
    """The metrics of the past could not be read."""


# -- the upstream


class Refused(Retryable):
    """The upstream said no: it asks for fewer calls. Never burns an attempt (I9)."""

    def __init__(self, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__()


class UpstreamHeld(Refused):
    """The upstream is overloaded (503, 529): wait with jitter, its limit did not change."""

    code = "held"


class PermitUnavailable(Retryable):
    """No permit is free before the worker's deadline."""

    code = "no_permit"

    def __init__(self, free_at_ms: int) -> None:
        self.free_at_ms = free_at_ms
        super().__init__()


class UpstreamFailed(Retryable):
    """The upstream could not be reached, or answered with a server error."""


class UpstreamRejected(Permanent):
    """The upstream rejected the call (4xx): the job's own failure."""


class QuotaExhausted(Permanent):
    """The upstream's quota is used up: the class pauses."""


# -- a job's own code


class JobFailure(Permanent):
    """The job's own code failed: burns an attempt."""


class NoProgress(JobFailure):
    """A chunk returned the cursor it was given, or one that it had already committed."""


class BadChunk(JobFailure):
    """A chunk returned a cursor or an output that is too large or is not JSON."""


class BadAnswer(JobFailure):
    """The upstream answered with something that the job's kind cannot use."""


class BadPayload(JobFailure):
    """The job's payload lacks a field that its kind needs."""
