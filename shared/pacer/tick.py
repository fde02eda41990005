"""The minute that a trigger stands for: from its scheduled time, never from "now" (I6, fact F24).

One tick of the pacer: admit the run, gather, decide, apply (protocol: the tick).

The middle step is `shared.pacer.decide.plan_tick`; everything here reads for it or carries out what it said.

What one trigger of the pacer sets going: its own tick, then the runs that somebody admitted and nobody executed.

The webhook admits a run with one write and then asks for its tick; it may die in between, or meet a repair that holds
the lock. Both leave an open run, and the next tick of the class, of whatever kind, executes it here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from shared.domain.control import (
    HISTORY_TICKS,
    RECENT_ADMISSIONS,
    REPAIR_MARK,
    SCHEDULE,
    WEBHOOK,
    Admission,
    Busy,
    Ended,
    Grant,
    Run,
    RunKey,
    Taken,
    TickClose,
    TickLine,
    TickMemory,
    minutes_to_look_at,
)
from shared.domain.settings import LOCK_MARGIN_S, ClassSettings, Schedule, Settings, UpstreamSettings
from shared.errors import InvalidInput, LedgerUnavailable
from shared.pacer import decide
from shared.pacer.claim import claim_and_send, sweep
from shared.pacer.decide import TickPlan, plan_tick
from shared.pacer.forecast import drain_eta
from shared.pacer.health import stop_if_harmful
from shared.pacer.snapshot import Gathered, gather, snapshot_of
from shared.pacer.telemetry import cost_of_tick, emit_tick
from shared.ports import Ports

_UNEXPANDED: Final = re.compile(r"<aws\.scheduler\.[a-z-]+>")
"""What a scheduler that does not know its own context attributes delivers; the local emulator is one."""


def scheduled_ms_of(event: Mapping[str, Any], *, now_ms: int) -> int:
    """`event["scheduled_at"]` (ISO 8601 with an offset or Z) in milliseconds; `now_ms` where the trigger has none.

    Raises `InvalidInput` for anything else: a tick of a guessed minute could be a second run of another.
    """
    value = event.get("scheduled_at")
    if value is None or (isinstance(value, str) and _UNEXPANDED.fullmatch(value)):
        return now_ms
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidInput("scheduled_at", got=f"a {type(value).__name__}", expected="an ISO 8601 time with an offset")
    # Down, never to the nearest: 11:59:59.9999 is not the next minute, whose run would be another.
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


LOCK_MARGIN_MS: Final = LOCK_MARGIN_S * 1000
"""How long the class lock outlasts the pacer's own end (rule 4)."""

CLAIM_MARGIN_MS: Final = LOCK_MARGIN_S * 1000
"""How long before its end the pacer stops planning and claiming (rule 4): time to send, sweep and close."""


class TickRequest(Struct, frozen=True, kw_only=True):
    """One invocation of the pacer. `deadline_ms` is when its process is killed; `nonce` is new in every invocation.

    `repair`: sweep under a lock of its own and leave the minute's run to whoever may admit it.
    """

    scheduled_ms: int
    source: str
    nonce: str
    deadline_ms: int
    repair: bool = False


class TickReport(Struct, frozen=True, kw_only=True):
    """What came of it. `outcome`: closed, duplicate, skipped, left (open, for the repair that holds the lock), or lost
    (the lock went to someone else on the way)."""

    run_id: str
    outcome: str
    plan: TickPlan | None = None
    admitted: int = 0
    confirmed: int = 0
    swept: int = 0


def run_tick(
    ports: Ports, settings: ClassSettings, upstream: UpstreamSettings | None, request: TickRequest
) -> TickReport:
    """Run the tick of (class, minute of `scheduled_ms`), once, whatever repeats of it there are (I6)."""
    key = replace(RunKey.of(settings.name, request.scheduled_ms), repair=request.repair)
    now_ms = ports.clock.now_ms()
    ports.ledger.admit_run(key, source=request.source, now_ms=now_ms)
    # Rule 5: the class lock and "this run is open" are taken in one transaction.
    taken = ports.ledger.take_run(
        key, owner=request.nonce, now_ms=now_ms, until_ms=request.deadline_ms + LOCK_MARGIN_MS
    )
    match taken:
        case Ended():
            return _leave(ports, key, "duplicate")
        case Busy(run_id=run_id):
            if run_id == key.run_id:
                return _leave(ports, key, "duplicate")
            if run_id.endswith(REPAIR_MARK):
                return _leave(ports, key, "left")
            ports.ledger.skip_run(key, reason="overlap")
            return _leave(ports, key, "skipped")
        case Taken(planned=planned):
            return _own(ports, settings, upstream, request, key, planned=planned)


def _leave(ports: Ports, key: RunKey, outcome: str) -> TickReport:
    ports.log.event("tick_left", job_class=key.job_class, run=key.run_id, outcome=outcome)
    return TickReport(run_id=key.run_id, outcome=outcome)


def _own(
    ports: Ports,
    settings: ClassSettings,
    upstream: UpstreamSettings | None,
    request: TickRequest,
    key: RunKey,
    *,
    planned: bool,
) -> TickReport:
    stop_ms = request.deadline_ms - CLAIM_MARGIN_MS
    try:
        seen = gather(ports, settings, upstream, plans=not (planned or request.repair))
        sweeps_only = planned or request.repair or _revoked(request, seen)
        seen = seen if sweeps_only else stop_if_harmful(ports, settings, seen)
        plan = plan_tick(snapshot_of(settings, seen, resumed=sweeps_only), seen.now_ms)
        # Rule 5: planned before the first claim, so that nothing is ever planned twice.
        ours = sweeps_only or (
            ports.clock.now_ms() < stop_ms and ports.ledger.plan_run(key, owner=request.nonce, plan=_memory(seen, plan))
        )
    except LedgerUnavailable:
        ports.ledger.drop_lock(key, owner=request.nonce)
        raise
    if not ours:
        ports.ledger.drop_lock(key, owner=request.nonce)
        return _leave(ports, key, "lost")
    admitted, confirmed = claim_and_send(
        ports,
        settings,
        plan,
        key=key,
        nonce=request.nonce,
        stop_ms=stop_ms,
        inflight=Counter(_matches(seen)),
        service_s=seen.measures.service_s.value,
    )
    swept = sweep(ports, settings, seen.inflight, now_ms=seen.now_ms)
    line = _line(key, seen, plan, admitted=admitted, confirmed=confirmed, swept=swept)
    skipped = "" if planned or request.repair else _nothing_done_because(request, seen, line)
    return _close(ports, settings, request, key, seen, plan, line, skipped)


def _close(
    ports: Ports,
    settings: ClassSettings,
    request: TickRequest,
    key: RunKey,
    seen: Gathered,
    plan: TickPlan,
    line: TickLine,
    skipped: str,
) -> TickReport:
    eta = drain_eta(seen.control.history, now_ms=line.at_ms, pending=line.pending, paused=line.paused, later=line.later)
    cost = cost_of_tick(ports, settings, seen, line)
    said = replace(line, eta_s=eta.seconds, cost="" if cost is None else cost.packed())
    close = replace(_close_of(ports, settings, key, seen, said), skipped=skipped)
    closed = ports.ledger.close_run(key, owner=request.nonce, close=close)
    if closed:
        emit_tick(ports, settings, seen, said, eta, cost)
    return TickReport(
        run_id=key.run_id,
        outcome="closed" if closed else "lost",
        plan=plan,
        admitted=line.admitted,
        confirmed=line.confirmed,
        swept=line.swept,
    )


def _revoked(request: TickRequest, seen: Gathered) -> bool:
    """The webhook was closed after it had admitted this run: what it was let in for is not done any more."""
    return request.source == WEBHOOK and seen.control.webhook_closed


def _nothing_done_because(request: TickRequest, seen: Gathered, line: TickLine) -> str:
    """Why the run closes as skipped, for whoever asks what came of it; empty where it did its work."""
    if _revoked(request, seen):
        return "webhook_closed"
    if line.paused:
        return "paused"
    idle = line.waiting.total == line.admitted == line.swept == line.granted == 0
    return "nothing_to_do" if idle else ""


def _matches(seen: Gathered) -> list[str]:
    return [nominee.match_id for nominee in seen.inflight]


def _line(key: RunKey, seen: Gathered, plan: TickPlan, *, admitted: int, confirmed: int, swept: int) -> TickLine:
    return TickLine(
        run_id=key.run_id,
        at_ms=seen.now_ms,
        paused=not seen.control.admits,
        waiting=seen.counts.eligible,
        later=seen.counts.later,
        behind=seen.counts.behind,
        in_flight=len(seen.inflight),
        dead=seen.counts.dead,
        budget=plan.budget,
        admitted=admitted,
        confirmed=confirmed,
        swept=swept,
        rate_per_s=plan.rate_per_s,
        rate_binding=plan.rate_binding.value,
        binding=plan.binding.value,
        oldest_age_s=seen.oldest_age_s,
        eta_s=None,
        staged=seen.stage is not None,
        facts=decide.pack(plan.snapshot),
        granted=plan.granted,
        arrived=None if plan.snapshot.resumed else seen.allowance.arrived,
    )


def _memory(seen: Gathered, plan: TickPlan) -> TickMemory:
    """What was spent of the last allowance moves to `recent` here, what was not is in the budget, once and for all."""
    return TickMemory(
        budget=plan.budget,
        carry=plan.carry,
        planned_at_ms=seen.now_ms,
        recent=seen.recent[-RECENT_ADMISSIONS:],
        missed=seen.allowance.missed,
    )


def _close_of(ports: Ports, settings: ClassSettings, key: RunKey, seen: Gathered, line: TickLine) -> TickClose:
    now_ms, recent = ports.clock.now_ms(), seen.recent
    if line.admitted:
        recent = (*recent, Admission(at_ms=now_ms, rows=line.admitted))
    grant = Grant.of(
        line.granted, run_id=key.run_id, at_ms=now_ms, minute_ms=key.minute_ms, interval_s=settings.tick_interval_s
    )
    return TickClose(
        recent=recent[-RECENT_ADMISSIONS:],
        history=(*seen.control.history, line)[-HISTORY_TICKS:],
        measures=seen.measures,
        stage=seen.stage,
        grant=grant if line.granted else None,
    )


EXECUTED_AT_ONCE: Final = 3
"""Open runs that one invocation executes. Each of them spends what was earned: after the first, little is left."""

_NOT_OURS: Final = ("skipped", "left")
"""Another tick holds the lock, and looks for open runs itself when it is done."""


class PaceReport(Struct, frozen=True, kw_only=True):
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
