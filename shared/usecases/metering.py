"""What a tick tells CloudWatch. One dimension, the job class; finite numbers only (I11, I12, TRAPS 28)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shared.core import stats
from shared.core.eta import Eta
from shared.core.runs import TickLine
from shared.core.settings import ClassSettings
from shared.core.stats import StatsWindow
from shared.ports import Ports


RETRIED: Final = (stats.FAILURES, stats.REFUSALS, stats.HOLDS, stats.OUTAGES, stats.CRASHES, stats.TRANSPORT_DEATHS)
"""What sends a row back to wait, or would if its bound were not reached."""


def emit_tick(
    ports: Ports, settings: ClassSettings, line: TickLine, eta: Eta, last_minute: Sequence[StatsWindow]
) -> None:
    """One set of values per closed tick. `DrainEtaMinutes` is absent while there is none to say.

    `last_minute` is the last closed window of the statistics: what the workers did, where the rest is what waits.
    """
    values: dict[str, float] = {
        "Ticks": 1,
        "BudgetRows": line.budget,
        "AdmittedRows": line.admitted,
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
        "StartsPerMinute": stats.total(last_minute, stats.STARTS),
        "RetriesPerMinute": stats.total(last_minute, *RETRIED),
        "RatePerSecond": line.rate_per_s,
        "OldestEligibleAgeSeconds": line.oldest_age_s,
        "Paused": float(line.paused),
        "DrainStalled": float(eta.state.will_not_drain),
    }
    if eta.seconds is not None:
        values["DrainEtaMinutes"] = eta.seconds / 60
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
