"""What one trigger of the pacer sets going: its own tick, then the runs that somebody admitted and nobody executed.

The webhook admits a run with one write and then asks for its tick; it may die in between, or meet a repair that holds
the lock. Both leave an open run, and the next tick of the class, of whatever kind, executes it here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shared.core.runs import SCHEDULE, Run, TickLine, minutes_to_look_at
from shared.core.settings import ClassSettings, Schedule, Settings
from shared.core.values import frozen
from shared.ports import Ports
from shared.usecases.tick import CLAIM_MARGIN_MS, TickReport, TickRequest, run_tick

EXECUTED_AT_ONCE: Final = 3
"""Open runs that one invocation executes. Each of them spends what was earned: after the first, little is left."""

_NOT_OURS: Final = ("skipped", "left")
"""Another tick holds the lock, and looks for open runs itself when it is done."""


@frozen
class PaceReport:
    """The trigger's own tick, and the open runs of others that were executed after it."""

    tick: TickReport
    executed: tuple[TickReport, ...] = ()


def pace(ports: Ports, settings: Settings, job_class: ClassSettings, request: TickRequest) -> PaceReport:
    """Run the tick that was asked for. The schedule of a class that only the webhook drives asks for a repair."""
    repair = job_class.schedule is Schedule.REPAIR and request.source == SCHEDULE
    upstream = settings.upstream_of(job_class)
    # Before our own tick adds its line: how far back to look is how long no tick has looked.
    history = ports.ledger.read_control(job_class.name).history if job_class.webhook else ()
    own = run_tick(ports, job_class, upstream, replace(request, repair=repair))
    if not job_class.webhook or own.outcome in _NOT_OURS:
        return PaceReport(tick=own)
    executed: list[TickReport] = []
    for number, run in enumerate(_open_runs(ports, settings, job_class, history)):
        if ports.clock.now_ms() >= request.deadline_ms - CLAIM_MARGIN_MS:
            break
        if number >= EXECUTED_AT_ONCE:
            # Three plans within seconds of one another have spent all that was earned. Owned ones are left for later.
            ports.ledger.skip_run(run.key, reason="superseded")
            continue
        ports.log.event("open_run_found", job_class=job_class.name, run=run.key.run_id, source=run.source)
        executed.append(run_tick(ports, job_class, upstream, _request_for(run, request, number)))
    return PaceReport(tick=own, executed=tuple(executed))


def _open_runs(ports: Ports, settings: Settings, job_class: ClassSettings, history: tuple[TickLine, ...]) -> list[Run]:
    minutes_ms = minutes_to_look_at(
        history,
        now_ms=ports.clock.now_ms(),
        interval_s=job_class.tick_interval_s,
        max_age_s=settings.webhook.max_age_s,
        max_ahead_s=settings.webhook.max_ahead_s,
    )
    return ports.ledger.open_runs(job_class.name, minutes_ms=minutes_ms)


def _request_for(run: Run, request: TickRequest, number: int) -> TickRequest:
    return replace(
        request, scheduled_ms=run.key.minute_ms, source=run.source, nonce=f"{request.nonce}-{number}", repair=False
    )
