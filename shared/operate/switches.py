"""What an operator does to a class: pause, halt and resume it (I10), bound its rate, open and close its webhook.

Each change is signed: who, why, when.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Final

from shared.domain.control import RateOverride
from shared.domain.job import Flag
from shared.errors import InvalidInput
from shared.ports import Ports
from shared.steps.turns import HANDOVER_LEASE_MS

_POLL_S: Final = 0.5
"""How often the command looks whether a tick still owns the lock."""


def pause(ports: Ports, job_class: str, *, by: str, why: str) -> Flag:
    """Stop admission and return once that is committed: nothing more of this class is admitted afterwards.

    The flag is set first. A tick that read control before it may still be claiming, so the command waits until no such
    tick owns the lock, and at least `HANDOVER_LEASE_MS`. What is in flight settles; delayed retries stay.
    """
    signature = signed(ports, by, why, expected="why the class is paused")
    ports.ledger.set_pause(job_class, signature)
    _wait_committed(ports, job_class, signature)
    ports.log.event("paused", job_class=job_class)
    return signature


def halt(ports: Ports, job_class: str, *, by: str, why: str) -> Flag:
    """Pause, and let workers give their jobs back: at the next chunk, at most `FRESH_MS` after they read control last.

    Returns when nothing more is admitted. Chunks that run then end in their own time, and their progress is kept.
    """
    signature = signed(ports, by, why, expected="why the class is halted")
    ports.ledger.set_halt(job_class, signature)
    _wait_committed(ports, job_class, signature)
    ports.log.event("halted", job_class=job_class)
    return signature


def resume(ports: Ports, job_class: str, *, by: str, why: str) -> Flag:
    """End pause and halt: the next tick admits again. What each lane was owed at the pause is still owed."""
    signature = signed(ports, by, why, expected="why the class is resumed")
    ports.ledger.resume(job_class, signature)
    ports.log.event("resumed", job_class=job_class)
    return signature


def switch_webhook(ports: Ports, job_classes: Sequence[str], *, closed: bool, by: str, why: str) -> Flag:
    """Let the webhook admit runs of these classes or not, at once: a run that slips in is skipped by its tick."""
    signature = signed(ports, by, why, expected="why the webhook is switched")
    for job_class in job_classes:
        ports.ledger.switch_webhook(job_class, signature, closed=closed)
        ports.log.event("webhook_closed" if closed else "webhook_opened", job_class=job_class)
    return signature


def rate_override(
    ports: Ports, rate_per_s: float | None, *, by: str, why: str, for_s: float | None = None
) -> RateOverride:
    """A bound of a class's rate in jobs per second, for `for_s` or until it is cleared; None clears it.

    A bound and not a command: what upstream and slots allow still holds. Nothing is written yet. InvalidInput for a
    rate of 0 (that is a pause), below it or not finite, and for a time that is none.
    """
    signature = signed(ports, by, why, expected="why the rate is set")
    if rate_per_s is not None and (not isfinite(rate_per_s) or rate_per_s <= 0):
        raise InvalidInput("rate", got=f"{rate_per_s:g}", expected="jobs per second above 0; `pause` stops a class")
    if for_s is not None and (not isfinite(for_s) or for_s <= 0):
        raise InvalidInput("--for", got=f"{for_s / 60:g}", expected="minutes above 0")
    until_ms = None if for_s is None else signature.at_ms + round(for_s * 1000)
    return RateOverride(rate_per_s=rate_per_s, flag=signature, until_ms=until_ms)


def set_rate(ports: Ports, job_class: str, override: RateOverride) -> None:
    """From the class's next tick on. Who clears a bound signs for it too, and that stays."""
    ports.ledger.set_rate(job_class, override)
    if override.rate_per_s is None:
        ports.log.event("rate_cleared", job_class=job_class)
    else:
        ports.log.event("rate_set", job_class=job_class, rate_per_s=override.rate_per_s)


def signed(ports: Ports, by: str, why: str, *, expected: str) -> Flag:
    """The signature under a change. InvalidInput without a reason: whoever comes later reads it."""
    if not why.strip():
        raise InvalidInput("reason", got="an empty string", expected=expected)
    return Flag(by=by, why=why, at_ms=ports.clock.now_ms())


def _wait_committed(ports: Ports, job_class: str, signature: Flag) -> None:
    """Until no tick that may have read control before the change owns the lock, and no handover is under way."""
    control = ports.ledger.read_control(job_class)
    earlier_owner = control.lock_owner
    while True:
        now_ms = ports.clock.now_ms()
        free = control.lock_owner != earlier_owner or not earlier_owner or control.lock_until_ms < now_ms
        if free and now_ms >= signature.at_ms + HANDOVER_LEASE_MS:
            return
        ports.clock.sleep(_POLL_S)
        control = ports.ledger.read_control(job_class)
