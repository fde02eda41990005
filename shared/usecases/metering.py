"""What a tick tells CloudWatch. One dimension, the job class; finite numbers only (I11, I12, TRAPS 28)."""

from __future__ import annotations

from collections.abc import Mapping

from shared.core import stats
from shared.core.cost import Spending
from shared.core.eta import Eta, eta_trend
from shared.core.flags import SLUICE
from shared.core.measures import Origin
from shared.core.runs import TickLine
from shared.core.settings import ClassSettings
from shared.core.signals import signals
from shared.ports import Ports
from shared.usecases.gathering import Gathered


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
