"""Staged recovery: after a resume, a deployment's pause or an outage the rate comes back in steps (protocol: recovery).

What changed meanwhile is unknown: the upstream's limit, the code, what the backlog does to both. So a class starts at
half of its calculated rate, looks at one whole window, and takes the next step only while it makes headway, retries
stay in budget and its starts were within the allowance.

It never blocks for ever. A step that is too slow to make headway against the arrivals is not a reason to stay on it: if
retries and starts are in order the next one comes after `HEADWAY_WINDOWS`. And after `PATIENCE_WINDOWS` it comes in any
case: what is wrong by then is the business of the learned rate and of the abort rules.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from shared.domain import stats
from shared.domain.control import SHARES, Cause, Control, Stage
from shared.domain.settings import ClassSettings
from shared.domain.stats import WINDOW_MS
from shared.pacer.snapshot import Gathered

RETRY_BUDGET: Final = 0.1
"""Rows that came back (refused, held, failed) per row started; above it a window does not count as good."""

HEADWAY_WINDOWS: Final = 2
"""Good windows after which the next step comes although the backlog does not fall."""

PATIENCE_WINDOWS: Final = 5
"""Windows after which the next step comes in any case."""

LONGEST_WINDOWS: Final = PATIENCE_WINDOWS * (len(SHARES) - 1)
"""Observed windows after which any stage is full."""

GAP_INTERVALS: Final = 3
"""A class whose last plan is this many tick intervals old was away: an outage of ours, or a deployment."""


class Observed(Struct, frozen=True, kw_only=True):
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


def stage_of(gathered: Gathered) -> Stage | None:
    """The stage that this tick runs at; None is full rate. While paused there is none: the resume begins one."""
    settings, control = gathered.settings, gathered.control
    if not settings.staged_recovery or not control.admits:
        return None
    backlog = {"now_ms": gathered.now_ms, "oldest_age_s": gathered.oldest_age_s, "pending": gathered.pending}
    cause = _cause(settings, control, gathered.now_ms)
    if cause is not None:
        return begin(cause, **backlog) if gathered.pending else None
    stage, upstream = control.stage, gathered.upstream
    for window in reversed(gathered.windows):
        if stage is None:
            return None
        observed = Observed(
            window_ms=window.start_ms,
            starts=stats.total([window], stats.STARTS),
            retries=stats.total([window], *stats.RETRIED),
            compliant=upstream is None or upstream.calls <= upstream.allowed_calls,
            **backlog,
        )
        stage = step(stage, observed)
    return None if stage is None or stage.full else stage


def _cause(settings: ClassSettings, control: Control, now_ms: int) -> Cause | None:
    """A resume that no admitting tick has seen yet, after a pause that one has; or ticks that were missing.

    A repair counts as a tick: where only the webhook admits runs, hours between two of them are no outage.
    """
    admitting_ms = max((line.at_ms for line in control.history if not line.paused), default=None)
    paused_until_now = bool(control.history) and control.history[-1].paused
    if paused_until_now and control.resumed is not None and control.resumed.at_ms > (admitting_ms or 0):
        return Cause.RESUMED
    ticks_ms = [control.planned_at_ms, *(line.at_ms for line in control.history)]
    last_ms = max((at_ms for at_ms in ticks_ms if at_ms is not None), default=None)
    return Cause.AWAY if was_away(last_ms, now_ms=now_ms, interval_s=settings.tick_interval_s) else None
