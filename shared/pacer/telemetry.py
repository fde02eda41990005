"""What a tick tells CloudWatch, and what in the counters of closed minutes somebody should be woken for.

One dimension, the job class; finite numbers only (I11, I12, fact F27). Numbers for alarms, never conditions.
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
from shared.pacer.cost import Spending, minutes_since
from shared.pacer.decide import Decision
from shared.pacer.forecast import Eta, eta_trend
from shared.pacer.snapshot import Gathered
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


def _forgotten(settings: ClassSettings, line: TickLine, windows: Sequence[StatsWindow]) -> bool:
    """Rows wait, the rate would start some, and no worker began or ended a chunk: a mapping is off, or a schedule is.

    Ended chunks count too: what began with a long one is only written when it ends.
    """
    if line.paused or not line.waiting.total or line.rate_per_s * PATIENCE_S < 1:
        return False
    recent = windows[: max(IDLE_WINDOWS, settings.tick_interval_s * 1000 // stats.WINDOW_MS)]
    return stats.total(recent, stats.STARTS, stats.RESUMES, stats.CHUNKS) == 0


def _unpaced(settings: ClassSettings, line: TickLine, eta: Eta) -> bool:
    """Everything that waits is let in at once, and yet the work takes more than two ticks: the budget believes in a
    rate that the workers do not reach, and the backlog lies in the queue instead of the table."""
    slow = eta.seconds is not None and eta.seconds > 2 * settings.tick_interval_s
    return slow and line.admitted > 0 and line.waiting.total <= line.admitted


def emit_tick(ports: Ports, gathered: Gathered, decision: Decision, line: TickLine, cost: Spending | None) -> None:
    """One set of values per closed tick. What cannot be said is absent: a gap in a graph is honest, a zero is not."""
    settings, eta = gathered.settings, decision.forecast
    values = _rows(line) | _stops(gathered) | _drain(gathered, eta)
    values |= _workers(gathered, decision, line) | _money(decision, cost)
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


def _stops(gathered: Gathered) -> dict[str, float]:
    """Whether it admits at all, and whether it was Sluice itself that stopped it: then a person has to look."""
    pause = gathered.control.pause
    return {
        "Paused": float(not gathered.control.admits),
        "StoppedItself": float(pause is not None and pause.by == SLUICE),
    }


def _drain(gathered: Gathered, eta: Eta) -> dict[str, float]:
    """When it will be over, and whether that moves. `DrainStalled` stands where no time could be said (I11)."""
    trend = eta_trend(gathered.control.history, eta)
    minutes = {
        "DrainEtaMinutes": eta.seconds,
        "DrainEtaChangeMinutes": trend.change_s,
        "DrainEtaAccelerationMinutes": trend.acceleration_s,
    }
    return {"DrainStalled": float(eta.state.will_not_drain)} | _known(minutes, per=60)


def _workers(gathered: Gathered, decision: Decision, line: TickLine) -> dict[str, float]:
    """What the workers did. The first two are of the last closed minute, the counts of what settled since."""
    windows = gathered.windows
    last_minute = windows[:1]
    counted = signals(gathered.settings, line, decision.forecast, windows, before_ms=gathered.last_tick_ms)
    chunk = gathered.measures.long_chunk_s
    values: dict[str, float] = {
        "StartsPerMinute": stats.total(last_minute, stats.STARTS),
        "RetriesPerMinute": stats.total(last_minute, *stats.RETRIED),
        "Calls": counted.calls,
        "Refusals": counted.refusals,
        "Completions": counted.completions,
        "HopCaps": counted.hop_caps,
        "DeadLetters": counted.dead_letters,
        "PermitsStarved": counted.permits_starved,
        "WaitingWithoutStarts": float(counted.waiting_without_starts),
        "AbortFired": float(decision.abort is not None),
        "DeferredAtZero": float(counted.deferred_at_zero),
    }
    observed = {
        "RefusalRatio": counted.refusal_ratio,
        "P95ChunkSeconds": None if chunk.origin is Origin.DECLARED else chunk.value,
        "UpstreamRatePerSecond": None if gathered.upstream is None else gathered.upstream.rate_per_s,
    }
    return values | _known(observed)


def _money(decision: Decision, cost: Spending | None) -> dict[str, float]:
    """Spent since the tick before, and what of it was for nothing; `SpendUsd` is what the abort rule judges."""
    total = {} if cost is None else {"CostUsd": cost.total_usd, "WasteUsd": cost.waste_usd}
    return total | _known({"CostPerJobUsd": None if cost is None else cost.per_job_usd, "SpendUsd": decision.spend_usd})


def _known(values: Mapping[str, float | None], *, per: float = 1) -> dict[str, float]:
    return {name: value / per for name, value in values.items() if value is not None}
