"""Staged recovery: after a resume, a deployment's pause or an outage the rate comes back in steps (DESIGN section 9).

What changed meanwhile is unknown: the upstream's limit, the code, what the backlog does to both. So a class starts at
half of its calculated rate, looks at one whole window, and takes the next step only while it makes headway, retries
stay in budget and its starts were within the allowance.

It never blocks for ever. A step that is too slow to make headway against the arrivals is not a reason to stay on it: if
retries and starts are in order the next one comes after `HEADWAY_WINDOWS`. And after `PATIENCE_WINDOWS` it comes in any
case: what is wrong by then is the business of the learned rate and of the abort rules.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from math import isfinite
from typing import Final

from shared.core.stats import WINDOW_MS
from shared.core.values import frozen

SHARES: Final = (0.5, 0.75, 1.0)
"""Of the calculated rate, step by step; the last is full."""

RETRY_BUDGET: Final = 0.1
"""Rows that came back (refused, held, failed) per row started; above it a window does not count as good."""

HEADWAY_WINDOWS: Final = 2
PATIENCE_WINDOWS: Final = 5

LONGEST_WINDOWS: Final = PATIENCE_WINDOWS * (len(SHARES) - 1)
"""Observed windows after which any stage is full."""

GAP_INTERVALS: Final = 3
"""A class whose last plan is this many tick intervals old was away: an outage of ours, or a deployment."""


class Cause(StrEnum):
    """Why a stage began."""

    RESUMED = "resumed"
    AWAY = "away"
    OUTAGE = "outage"


@frozen
class Stage:
    """Where a recovery stands; None in place of a stage means full rate. Plain values, part of what a tick remembers.

    `number` counts the steps taken; `since_ms` is when this one came into force. `oldest_age_s` and `pending` are as
    the last observation, or the start, saw them. `windows` were observed at this step, the last of them `window_ms`.
    """

    cause: Cause
    since_ms: int
    oldest_age_s: float
    pending: int
    number: int = 0
    windows: int = 0
    window_ms: int = -1

    @property
    def share(self) -> float:
        return SHARES[min(max(0, self.number), len(SHARES) - 1)]

    @property
    def full(self) -> bool:
        return self.number >= len(SHARES) - 1


@frozen
class Observed:
    """One closed window that begins at `window_ms`, and the backlog at `now_ms`.

    `starts` and `retries` are rows begun and rows that came back in it; `compliant`: calls stayed in the allowance.
    """

    window_ms: int
    now_ms: int
    oldest_age_s: float
    pending: int
    starts: int
    retries: int
    compliant: bool = True

    def __post_init__(self) -> None:
        for name in ("oldest_age_s", "pending", "starts", "retries"):
            value = getattr(self, name)
            if not isfinite(value) or value < 0:
                raise ValueError(f"{name} must be finite and not negative, got {value}")


def was_away(planned_at_ms: int | None, *, now_ms: int, interval_s: float) -> bool:
    """True if the last plan is so old that ticks must have been missing. Before the first plan there is no backlog."""
    return planned_at_ms is not None and now_ms - planned_at_ms > GAP_INTERVALS * interval_s * 1000


def begin(cause: Cause, *, now_ms: int, oldest_age_s: float, pending: int) -> Stage:
    """The first step. A second cause during a recovery begins it anew."""
    return Stage(cause=cause, since_ms=now_ms, oldest_age_s=oldest_age_s, pending=pending)


def limit(stage: Stage | None, rate_per_s: float) -> float:
    """The calculated rate as far as the stage lets it through. ValueError if the rate is negative or not finite."""
    if not isfinite(rate_per_s) or rate_per_s < 0:
        raise ValueError(f"rate_per_s must be finite and not negative, got {rate_per_s}")
    return rate_per_s if stage is None else rate_per_s * stage.share


def step(stage: Stage, observed: Observed) -> Stage:
    """The stage after one more window: a step up or the same step, never down. Drop it once it is `full`.

    A window that was observed before, or of which less than half ran at this step, changes nothing.

    Headway is a falling oldest age, a falling backlog or an empty one. The age alone would misread a backlog that
    became due at one moment, as bulk submissions do: its oldest row gets older until the last is claimed.
    """
    if stage.full or observed.window_ms <= stage.window_ms:
        return stage
    if observed.window_ms + WINDOW_MS // 2 < stage.since_ms or observed.window_ms + WINDOW_MS > observed.now_ms:
        return stage
    seen = replace(
        stage,
        windows=stage.windows + 1,
        window_ms=observed.window_ms,
        oldest_age_s=observed.oldest_age_s,
        pending=observed.pending,
    )
    if not _may_go_on(stage, seen, observed):
        return seen
    return replace(seen, number=stage.number + 1, windows=0, since_ms=observed.now_ms)


def _may_go_on(before: Stage, seen: Stage, observed: Observed) -> bool:
    if seen.windows >= PATIENCE_WINDOWS:
        return True
    in_budget = observed.retries <= RETRY_BUDGET * observed.starts
    if not (in_budget and observed.compliant):
        return False
    fell = observed.oldest_age_s < before.oldest_age_s or observed.pending < before.pending
    return fell or observed.pending == 0 or seen.windows >= HEADWAY_WINDOWS
