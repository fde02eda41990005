"""What the counters of closed minutes say that somebody should be woken for. Numbers for alarms, never conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shared.core import stats
from shared.core.eta import Eta
from shared.core.runs import TickLine
from shared.core.settings import ClassSettings
from shared.core.stats import StatsWindow
from shared.core.values import frozen

IDLE_WINDOWS: Final = 5
"""Closed minutes in which no worker may have done anything before waiting rows look forgotten."""

PATIENCE_S: Final = 900
"""A rate that starts less than one row in this time leaves rows waiting by design."""


@frozen
class Signals:
    """`refusal_ratio` None: no calls. The counts are of the minutes that settled since the tick before."""

    calls: int
    refusals: int
    completions: int
    hop_caps: int
    dead_letters: int
    permits_starved: int
    refusal_ratio: float | None
    waiting_without_starts: bool
    deferred_at_zero: bool


def signals(
    settings: ClassSettings, line: TickLine, eta: Eta, windows: Sequence[StatsWindow], *, before_ms: int | None
) -> Signals:
    """`windows` are the last closed minutes, newest first; `before_ms` is when the tick before was."""
    wanted = set(minutes_since(line.at_ms, before_ms))
    settled = [window for window in windows if window.start_ms in wanted]
    calls, refusals = stats.total(settled, stats.CALLS), stats.total(settled, stats.REFUSALS)
    return Signals(
        calls=calls,
        refusals=refusals,
        completions=stats.total(settled, stats.COMPLETIONS),
        hop_caps=stats.total(settled, stats.HOP_CAPS),
        dead_letters=stats.total(settled, stats.TRANSPORT_DEATHS),
        permits_starved=stats.total(settled, stats.NO_PERMIT),
        refusal_ratio=min(1.0, refusals / calls) if calls > 0 else None,
        waiting_without_starts=_forgotten(settings, line, windows),
        deferred_at_zero=_unpaced(settings, line, eta),
    )


def minutes_since(now_ms: int, before_ms: int | None) -> list[int]:
    """The minutes that closed since the tick before, newest first, each once, but a minute late: workers flush every
    30 s, so that the counters of a minute that has just closed are not all there."""
    closed = 1 if before_ms is None else (stats.window_of(now_ms) - stats.window_of(before_ms)) // stats.WINDOW_MS
    last_ms = stats.window_of(now_ms) - 2 * stats.WINDOW_MS
    return [last_ms - number * stats.WINDOW_MS for number in range(closed)]


def _forgotten(settings: ClassSettings, line: TickLine, windows: Sequence[StatsWindow]) -> bool:
    """Rows wait, the rate would start some, and no worker began or ended a chunk: a mapping is off, or a schedule is.

    Ended chunks count too: what began with a long one is only written when it ends.
    """
    if line.paused or not line.waiting.total or line.rate_per_s * PATIENCE_S < 1:
        return False
    seen = windows[: max(IDLE_WINDOWS, settings.tick_interval_s * 1000 // stats.WINDOW_MS)]
    return stats.total(seen, stats.STARTS, stats.RESUMES, stats.CHUNKS) == 0


def _unpaced(settings: ClassSettings, line: TickLine, eta: Eta) -> bool:
    """Everything that waits is let in at once, and yet the work takes more than two ticks: the budget believes in a
    rate that the workers do not reach, and the backlog lies in the queue instead of the table."""
    slow = eta.seconds is not None and eta.seconds > 2 * settings.tick_interval_s
    return slow and line.admitted > 0 and line.waiting.total <= line.admitted
