"""What one closed minute says of an upstream: its calls, its refusals, and the limit that they amount to."""

from __future__ import annotations

from typing import Final

from shared.core.stats import WINDOW_MS
from shared.core.values import frozen

NOISE_SHARE: Final = 0.001
"""Up to this share of the calls refused or held, a window is clean: 1 in 1,000, and none of fewer calls."""


@frozen
class WindowCounts:
    """All classes' calls to one upstream in one closed UTC minute that begins at `start_ms`.

    `calls` includes the refused (429) and the held (503, 529). `binding` overrides the judgement whether the allowance
    was used, for whoever knows better than the counters; None: it was if the calls are 90 % of it.
    """

    start_ms: int
    calls: int
    refusals: int = 0
    holds: int = 0
    binding: bool | None = None

    def __post_init__(self) -> None:
        for name, count in (("calls", self.calls), ("refusals", self.refusals), ("holds", self.holds)):
            if count < 0:
                raise ValueError(f"{name} must not be negative, got {count}")
        if self.start_ms % WINDOW_MS:
            raise ValueError(f"start_ms must be a whole minute, got {self.start_ms}")

    @property
    def clean(self) -> bool:
        return self.refusals + self.holds <= NOISE_SHARE * self.calls

    @property
    def refused(self) -> bool:
        return self.refusals > NOISE_SHARE * self.calls

    @property
    def refused_share(self) -> float:
        """At most 1: calls count when made, refusals when answered, so that a window may hold more of these."""
        return min(1.0, self.refusals / max(1, self.calls))

    @property
    def accepted_per_s(self) -> float:
        """At most: one call more than was counted, which is how exact a window is; it matters at 3 calls a minute."""
        return (max(0, self.calls - self.refusals - self.holds) + 1) * 1000 / WINDOW_MS


def limit_estimate(window: WindowCounts, ran_per_s: float) -> float:
    """Calls per second that the limit seems to allow, from a window in which the rate `ran_per_s` was refused.

    The calls that are missing from the allowance were held by refusals; in half of the time that they take the
    upstream is taken to have saved up for later, in the other half to have let its limit go to waste.
    """
    active_s = min(window.calls / ran_per_s, WINDOW_MS / 1000)
    return window.accepted_per_s * 2 / (1 + active_s * 1000 / WINDOW_MS)
