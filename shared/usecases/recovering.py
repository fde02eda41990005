"""Where a class's staged recovery stands at a tick: begun, a step further, or over (DESIGN section 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shared.core import recovery, stats
from shared.core.pacing import Snapshot, calculated_rate_per_s
from shared.core.recovery import Cause, Observed, Stage
from shared.core.runs import Control
from shared.core.settings import ClassSettings
from shared.core.stats import StatsWindow
from shared.usecases.learning import UpstreamSight


def stage_of(
    settings: ClassSettings,
    control: Control,
    windows: Sequence[StatsWindow],
    upstream: UpstreamSight | None,
    *,
    pending: int,
    oldest_age_s: int,
    now_ms: int,
) -> Stage | None:
    """The stage that this tick runs at; None is full rate. While paused there is none: the resume begins one."""
    if not settings.staged_recovery or not control.admits:
        return None
    cause = _cause(settings, control, now_ms)
    if cause is not None:
        return recovery.begin(cause, now_ms=now_ms, oldest_age_s=oldest_age_s, pending=pending) if pending else None
    stage = control.stage
    for window in sorted(windows, key=lambda each: each.start_ms):
        if stage is None:
            return None
        observed = Observed(
            window_ms=window.start_ms,
            now_ms=now_ms,
            oldest_age_s=oldest_age_s,
            pending=pending,
            starts=stats.total([window], stats.STARTS),
            retries=stats.total([window], *stats.RETRIED),
            compliant=upstream is None or upstream.calls <= upstream.allowed_calls,
        )
        stage = recovery.step(stage, observed)
    return None if stage is None or stage.full else stage


def _cause(settings: ClassSettings, control: Control, now_ms: int) -> Cause | None:
    """A resume that no admitting tick has seen yet, after a pause that one has; or ticks that were missing.

    A repair counts as a tick: where only the webhook admits runs, hours between two of them are no outage.
    """
    admitting_ms = max((line.at_ms for line in control.history if not line.paused), default=None)
    paused_until_now = bool(control.history) and control.history[-1].paused
    if paused_until_now and control.resumed is not None and control.resumed.at_ms > (admitting_ms or 0):
        return Cause.RESUMED
    seen = [each for each in (control.planned_at_ms, *(line.at_ms for line in control.history)) if each is not None]
    last_ms = max(seen, default=None)
    return Cause.AWAY if recovery.was_away(last_ms, now_ms=now_ms, interval_s=settings.tick_interval_s) else None


def staged(snapshot: Snapshot, stage: Stage | None) -> Snapshot:
    """The snapshot with the stage's part of the calculated rate as a bound of its own."""
    if stage is None:
        return snapshot
    bound_per_s = recovery.limit(stage, calculated_rate_per_s(snapshot))
    source = f"staged recovery since {stage.cause}: {stage.share:.0%} of the calculated rate"
    return replace(
        snapshot, override_rate_per_s=bound_per_s, sources={**snapshot.sources, "override_rate_per_s": source}
    )
