"""What an operator sets in place of what Sluice would calculate: a number, its signature, and until when."""

from __future__ import annotations

from math import isfinite

from shared.core.flags import Flag
from shared.core.values import frozen


@frozen
class RateOverride:
    """An upper bound of a class's rate, in jobs per second. `until_ms` None: until somebody clears it."""

    rate_per_s: float
    flag: Flag
    until_ms: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.rate_per_s, bool) or not isfinite(self.rate_per_s) or self.rate_per_s <= 0:
            raise ValueError(f"rate_per_s must be finite and above 0, got {self.rate_per_s}")

    def holds(self, now_ms: int) -> bool:
        return self.until_ms is None or now_ms < self.until_ms


def rate_bound(override: RateOverride | None, *, now_ms: int) -> float | None:
    """The bound in force, or None: there is none, or it is over."""
    return override.rate_per_s if override is not None and override.holds(now_ms) else None
