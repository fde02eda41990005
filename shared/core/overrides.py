"""What an operator sets in place of what Sluice would calculate: a number, its signature, and until when.

The last word stands, also that there is no number any more: who took an override away is as much of a question.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

from shared.core.flags import Flag
from shared.core.values import frozen

BY_OPERATOR: Final = "set by an operator"
"""An override as the source of a number."""


@frozen
class RateOverride:
    """An upper bound of a class's rate, in jobs per second. `until_ms` None: until somebody clears it.

    `rate_per_s` None: somebody did. The flag then says who, and nothing is bound.
    """

    rate_per_s: float | None
    flag: Flag
    until_ms: int | None = None

    def __post_init__(self) -> None:
        rate = self.rate_per_s
        if rate is not None and (isinstance(rate, bool) or not isfinite(rate) or rate <= 0):
            raise ValueError(f"rate_per_s must be finite and above 0, got {rate}")

    def holds(self, now_ms: int) -> bool:
        return self.rate_per_s is not None and (self.until_ms is None or now_ms < self.until_ms)


def rate_bound(override: RateOverride | None, *, now_ms: int) -> float | None:
    """The bound in force, or None: there is none, or it is over."""
    return override.rate_per_s if override is not None and override.holds(now_ms) else None


@frozen
class SlotsOverride:
    """How many workers a class may have, in place of the configured slots. `slots` None: those again.

    Written before the mappings are touched, and once more with `verified_ms` when both were read back: without it a
    command died between the two, or runs now. `before` are the slots that were verified last before it: the way back.
    """

    slots: int | None
    flag: Flag
    before: int
    verified_ms: int | None = None

    def __post_init__(self) -> None:
        for name in ("slots", "before"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")

    def wanted(self, configured: int) -> int:
        return configured if self.slots is None else self.slots

    def in_force(self, configured: int) -> int:
        """What the mappings allow for certain: until they are verified, the smaller of before and wanted."""
        wanted = self.wanted(configured)
        return min(wanted, self.before) if self.verified_ms is None else wanted

    @property
    def settled(self) -> bool:
        """Verified, and nothing but the configuration: there is no override any more."""
        return self.slots is None and self.verified_ms is not None


def slots_in_force(override: SlotsOverride | None, *, configured: int) -> int:
    """The slots that a tick may plan with."""
    return configured if override is None else override.in_force(configured)


def slots_source(override: SlotsOverride | None) -> str:
    if override is None or override.settled:
        return "configured"
    return BY_OPERATOR if override.verified_ms is not None else f"{BY_OPERATOR}, not verified yet"


def override_sources(rate: RateOverride | None, concurrency: SlotsOverride | None, *, now_ms: int) -> dict[str, str]:
    """The factors of a tick that an operator set, for `explain`; none where nothing is overridden."""
    found = {} if rate_bound(rate, now_ms=now_ms) is None else {"override_rate_per_s": BY_OPERATOR}
    if concurrency is not None and not concurrency.settled:
        found["concurrency"] = slots_source(concurrency)
    return found
