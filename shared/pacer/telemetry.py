"""What the counters of closed minutes say that somebody should be woken for. Numbers for alarms, never conditions.

What a tick tells CloudWatch. One dimension, the job class; finite numbers only (I11, I12, fact F27).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from shared.domain import stats
from shared.domain.control import Origin, TickLine
from shared.domain.job import SLUICE
from shared.domain.settings import ClassSettings
from shared.domain.stats import StatsWindow
from shared.errors import LedgerUnavailable
from shared.pacer.cost import Spending, spent
from shared.pacer.forecast import Eta, eta_trend
from shared.pacer.snapshot import Gathered, windows_at
from shared.ports import Ports

IDLE_WINDOWS: Final = 5
"""Closed minutes in which no worker may have done anything before waiting rows look forgotten."""

PATIENCE_S: Final = 900
"""A rate that starts less than one row in this time leaves rows waiting by design."""


class Signals(Struct, frozen=True, kw_only=True):
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


def emit_tick(
    ports: Ports, settings: ClassSettings, seen: Gathered, line: TickLine, eta: Eta, cost: Spending | None
) -> None:
    """One set of values per closed tick. What cannot be said is absent: a gap in a graph is honest, a zero is not."""
    values = _rows(line) | _stops(seen) | _drain(seen, eta) | _workers(settings, seen, line, eta) | _money(seen, cost)
    ports.metrics.emit(settings.name, values)
    ports.log.event(
        "tick_closed",
        job_class=settings.name,
        run=line.run_id,
        budget=line.budget,
        admitted=line.admitted,
        confirmed=line.confirmed,
        swept=line.swept,
        binding=line.binding,
        pending=line.pending,
        eta_state=eta.state.value,
    )


def _rows(line: TickLine) -> dict[str, float]:
    """What waits, what was let in, and why not more."""
    return {
        "Ticks": 1,
        "BudgetRows": line.budget,
        "AdmittedRows": line.admitted,
        "AllowanceRows": line.granted,
        "ConfirmedMessages": line.confirmed,
        "SweptRows": line.swept,
        "DeferredRows": max(0, line.waiting.total - line.admitted),
        "WaitingLiveRows": line.waiting.live,
        "WaitingRecoveryRows": line.waiting.recovery,
        "LaterRows": line.later,
        "BehindRows": line.behind,
        "InFlightRows": line.in_flight,
        "DeadRows": line.dead,
        "PendingRows": line.pending,
        "RatePerSecond": line.rate_per_s,
        "OldestEligibleAgeSeconds": line.oldest_age_s,
    }


def _stops(seen: Gathered) -> dict[str, float]:
    """Whether it admits at all, and whether it was Sluice itself that stopped it: then a person has to look."""
    pause = seen.control.pause
    return {
        "Paused": float(not seen.control.admits),
        "StoppedItself": float(pause is not None and pause.by == SLUICE),
    }


def _drain(seen: Gathered, eta: Eta) -> dict[str, float]:
    """When it will be over, and whether that moves. `DrainStalled` stands where no time could be said (I11)."""
    trend = eta_trend(seen.control.history, eta)
    minutes = {
        "DrainEtaMinutes": eta.seconds,
        "DrainEtaChangeMinutes": trend.change_s,
        "DrainEtaAccelerationMinutes": trend.acceleration_s,
    }
    return {"DrainStalled": float(eta.state.will_not_drain)} | _known(minutes, per=60)


def _workers(settings: ClassSettings, seen: Gathered, line: TickLine, eta: Eta) -> dict[str, float]:
    """What the workers did. The first two are of the last closed minute, the counts of what settled since."""
    history, last_minute = seen.control.history, seen.windows[:1]
    found = signals(settings, line, eta, seen.windows, before_ms=history[-1].at_ms if history else None)
    chunk = seen.measures.long_chunk_s
    values: dict[str, float] = {
        "StartsPerMinute": stats.total(last_minute, stats.STARTS),
        "RetriesPerMinute": stats.total(last_minute, *stats.RETRIED),
        "Calls": found.calls,
        "Refusals": found.refusals,
        "Completions": found.completions,
        "HopCaps": found.hop_caps,
        "DeadLetters": found.dead_letters,
        "PermitsStarved": found.permits_starved,
        "WaitingWithoutStarts": float(found.waiting_without_starts),
        "AbortFired": float(seen.abort is not None),
        "DeferredAtZero": float(found.deferred_at_zero),
    }
    observed = {
        "RefusalRatio": found.refusal_ratio,
        "P95ChunkSeconds": None if chunk.origin is Origin.DECLARED else chunk.value,
        "UpstreamRatePerSecond": None if seen.upstream is None else seen.upstream.rate_per_s,
    }
    return values | _known(observed)


def _money(seen: Gathered, cost: Spending | None) -> dict[str, float]:
    """Spent since the tick before, and what of it was for nothing; `SpendUsd` is what the abort rule judges."""
    said = None if cost is None else {"CostUsd": cost.total_usd, "WasteUsd": cost.waste_usd}
    return (said or {}) | _known(
        {"CostPerJobUsd": None if cost is None else cost.per_job_usd, "SpendUsd": seen.spend_usd}
    )


def _known(values: Mapping[str, float | None], *, per: float = 1) -> dict[str, float]:
    return {name: value / per for name, value in values.items() if value is not None}


MOST_MINUTES: Final = 60
"""Ticks further apart than this say nothing of their cost: it would take more reads than it is worth."""


def cost_of_tick(ports: Ports, settings: ClassSettings, seen: Gathered, line: TickLine) -> Spending | None:
    """None where not all of its minutes can be read. A cost is never worth a tick."""
    history = seen.control.history
    minutes_ms = minutes_since(line.at_ms, history[-1].at_ms if history else None)
    if len(minutes_ms) > MOST_MINUTES:
        return None
    try:
        found = windows_at(ports, settings, seen, minutes_ms)
    except LedgerUnavailable:
        return None
    windows = [found[start_ms] for start_ms in minutes_ms]
    return spent(windows, settings, ticks=1, rows=line.pending + line.dead, prices=seen.prices)
