"""One tick of the pacer: lock, withdraw, settle, gather, decide, claim, sweep, close (protocol: the tick).

Only `pacer.decide` thinks; what stands here reads for it or carries out what it said.

A trigger sets its own tick going, and then the runs that somebody admitted and nobody executed. The webhook admits a
run with one write and then asks for its tick; it may die in between, or meet a repair that holds the lock. Both leave
an open run, and the next tick of the class, of whatever kind, executes it here.
"""

from __future__ import annotations

import re
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
from shared.domain.job import SLUICE, Flag
from shared.domain.settings import LOCK_MARGIN_S, ClassSettings, Schedule, Settings, UpstreamSettings
from shared.errors import InvalidInput, LedgerUnavailable
from shared.pacer.abort import Abort
from shared.pacer.claim import claim_and_send, sweep
from shared.pacer.cost import Spending, minutes_to_price, spent
from shared.pacer.decide import Decision, TickPlan, decide, pack
from shared.pacer.gather import CLAIM_MARGIN_MS, Tick, gather, settle_rate
from shared.pacer.snapshot import Gathered
from shared.pacer.telemetry import emit_tick
from shared.ports import Ports

LOCK_MARGIN_MS: Final = LOCK_MARGIN_S * 1000
"""How long the class lock outlasts the pacer's own end (rule 4)."""


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


# -- the tick


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
            tick = Tick(
                ports=ports,
                settings=settings,
                upstream=upstream,
                key=key,
                source=request.source,
                owner=request.nonce,
                deadline_ms=request.deadline_ms,
                sweeps_only=planned or request.repair,
            )
            return _run(tick)


def _leave(ports: Ports, key: RunKey, outcome: str) -> TickReport:
    ports.log.event("tick_left", job_class=key.job_class, run=key.run_id, outcome=outcome)
    return TickReport(run_id=key.run_id, outcome=outcome)


def _run(tick: Tick) -> TickReport:
    """The tick in its order, the lock being ours. Everything up to `plan_run` may fail and leave nothing behind."""
    ledger = tick.ports.ledger
    try:
        # Withdrawn before anything is counted, or rows would be admitted that no count can have seen (I1).
        read = ledger.read_allowance if tick.sweeps_only else ledger.withdraw
        allowance = read(tick.settings.name)
        settled = settle_rate(tick)
        gathered = gather(tick, allowance, settled)
        plans = not (tick.sweeps_only or _revoked(tick, gathered))
        decision = decide(gathered, plans=plans)
        if decision.abort is not None:
            gathered, decision = _pause(tick, gathered, decision, decision.abort)
        ours = not plans or _plan(tick, gathered, decision.plan)
    except LedgerUnavailable:
        ledger.drop_lock(tick.key, owner=tick.owner)
        raise
    if not ours:
        ledger.drop_lock(tick.key, owner=tick.owner)
        return _leave(tick.ports, tick.key, "lost")
    admitted, confirmed = claim_and_send(tick, gathered, decision.plan)
    swept = sweep(tick, gathered)
    line = _line(tick, gathered, decision, admitted=admitted, confirmed=confirmed, swept=swept)
    return _close(tick, gathered, decision, line)


def _revoked(tick: Tick, gathered: Gathered) -> bool:
    """The webhook was closed after it had admitted this run: what it was let in for is not done any more."""
    return tick.source == WEBHOOK and gathered.control.webhook_closed


def _pause(tick: Tick, gathered: Gathered, decision: Decision, abort: Abort) -> tuple[Gathered, Decision]:
    """The class pauses itself, unless an operator was first: his pause stands, and nothing was aborted."""
    ports, name = tick.ports, tick.settings.name
    flag = Flag(by=SLUICE, why=f"{abort.reason.value}: {abort.sentence}", at_ms=ports.clock.now_ms())
    if not ports.ledger.pause_unless_paused(name, flag):
        return replace(gathered, control=ports.ledger.read_control(name)), replace(decision, abort=None)
    ports.log.event("aborted", job_class=name, reason=abort.reason.value)
    return replace(gathered, control=replace(gathered.control, pause=flag)), decision


def _plan(tick: Tick, gathered: Gathered, plan: TickPlan) -> bool:
    """Rule 5: planned before the first claim, so that nothing is ever planned twice. False: the run is not ours.

    What was spent of the last allowance moves to `recent` here, what was not is in the budget, once and for all.
    """
    memory = TickMemory(
        budget=plan.budget,
        carry=plan.carry,
        planned_at_ms=gathered.now_ms,
        recent=gathered.recent[-RECENT_ADMISSIONS:],
        missed=gathered.allowance.missed,
    )
    ports = tick.ports
    in_time = ports.clock.now_ms() < tick.stop_ms
    return in_time and ports.ledger.plan_run(tick.key, owner=tick.owner, plan=memory)


def _close(tick: Tick, gathered: Gathered, decision: Decision, line: TickLine) -> TickReport:
    cost = _cost(gathered)
    line = replace(line, cost="" if cost is None else cost.packed())
    closed = tick.ports.ledger.close_run(tick.key, owner=tick.owner, close=_memory_of(tick, gathered, decision, line))
    if closed:
        emit_tick(tick.ports, gathered, decision, line, cost)
    return TickReport(
        run_id=tick.key.run_id,
        outcome="closed" if closed else "lost",
        plan=decision.plan,
        admitted=line.admitted,
        confirmed=line.confirmed,
        swept=line.swept,
    )


def _cost(gathered: Gathered) -> Spending | None:
    """What the class has cost since its tick before; None where that is too long ago to be counted."""
    minutes_ms = minutes_to_price(gathered.control, gathered.now_ms)
    if minutes_ms is None:
        return None
    rows = gathered.pending + gathered.counts.dead
    return spent(gathered.counted(minutes_ms), gathered.settings, ticks=1, rows=rows, prices=gathered.prices)


def _line(tick: Tick, gathered: Gathered, decision: Decision, *, admitted: int, confirmed: int, swept: int) -> TickLine:
    """The tick as control's history keeps it."""
    plan = decision.plan
    return TickLine(
        run_id=tick.key.run_id,
        at_ms=gathered.now_ms,
        paused=plan.snapshot.paused,
        waiting=gathered.counts.eligible,
        later=gathered.counts.later,
        behind=gathered.counts.behind,
        in_flight=len(gathered.inflight),
        dead=gathered.counts.dead,
        budget=plan.budget,
        admitted=admitted,
        confirmed=confirmed,
        swept=swept,
        rate_per_s=plan.rate_per_s,
        rate_binding=plan.rate_binding.value,
        binding=plan.binding.value,
        oldest_age_s=gathered.oldest_age_s,
        eta_s=decision.forecast.seconds,
        staged=decision.stage is not None,
        facts=pack(plan.snapshot),
        granted=plan.granted,
        arrived=None if plan.snapshot.planned else gathered.allowance.arrived,
    )


def _memory_of(tick: Tick, gathered: Gathered, decision: Decision, line: TickLine) -> TickClose:
    """What the closing transaction leaves on control: the line, and the live allowance until the next tick."""
    now_ms, recent = tick.ports.clock.now_ms(), gathered.recent
    if line.admitted:
        recent = (*recent, Admission(at_ms=now_ms, rows=line.admitted))
    grant = Grant.of(
        line.granted,
        run_id=tick.key.run_id,
        at_ms=now_ms,
        minute_ms=tick.key.minute_ms,
        interval_s=tick.settings.tick_interval_s,
    )
    return TickClose(
        recent=recent[-RECENT_ADMISSIONS:],
        history=(*gathered.control.history, line)[-HISTORY_TICKS:],
        measures=gathered.measures,
        stage=decision.stage,
        skipped="" if tick.sweeps_only else _nothing_done_because(tick, gathered, line),
        grant=grant if line.granted else None,
    )


def _nothing_done_because(tick: Tick, gathered: Gathered, line: TickLine) -> str:
    """Why the run closes as skipped, for whoever asks what came of it; empty where it did its work."""
    if _revoked(tick, gathered):
        return "webhook_closed"
    if line.paused:
        return "paused"
    idle = line.waiting.total == line.admitted == line.swept == line.granted == 0
    return "nothing_to_do" if idle else ""


# -- what a trigger sets going

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


EXECUTED_AT_ONCE: Final = 3
"""Open runs that one invocation executes. Each of them spends what was earned: after the first, little is left."""

_NOT_OURS: Final = ("skipped", "left")
"""Another tick holds the lock, and looks for open runs itself when it is done."""


class PaceReport(Struct, frozen=True, kw_only=True):
    """The trigger's own tick, and the open runs of others that were executed after it."""

    tick: TickReport
    executed: tuple[TickReport, ...] = ()


def pace(ports: Ports, config: Settings, settings: ClassSettings, request: TickRequest) -> PaceReport:
    """Run the tick that was asked for. The schedule of a class that only the webhook drives asks for a repair."""
    repair = settings.schedule is Schedule.REPAIR and request.source == SCHEDULE
    upstream = config.upstream_of(settings)
    # Before our own tick adds its line: how far back to look is how long no tick has looked.
    history = ports.ledger.read_control(settings.name).history if settings.webhook else ()
    own = run_tick(ports, settings, upstream, replace(request, repair=repair))
    if not settings.webhook or own.outcome in _NOT_OURS:
        return PaceReport(tick=own)
    executed: list[TickReport] = []
    for number, run in enumerate(_open_runs(ports, config, settings, history)):
        if ports.clock.now_ms() >= request.deadline_ms - CLAIM_MARGIN_MS:
            break
        if number >= EXECUTED_AT_ONCE:
            # Three plans within seconds of one another have spent all that was earned. Owned ones are left for later.
            ports.ledger.skip_run(run.key, reason="superseded")
            continue
        ports.log.event("open_run_found", job_class=settings.name, run=run.key.run_id, source=run.source)
        executed.append(run_tick(ports, settings, upstream, _request_for(run, request, number)))
    return PaceReport(tick=own, executed=tuple(executed))


def _open_runs(ports: Ports, config: Settings, settings: ClassSettings, history: tuple[TickLine, ...]) -> list[Run]:
    minutes_ms = minutes_to_look_at(
        history,
        now_ms=ports.clock.now_ms(),
        interval_s=settings.tick_interval_s,
        max_age_s=config.webhook.max_age_s,
        max_ahead_s=config.webhook.max_ahead_s,
    )
    return ports.ledger.open_runs(settings.name, minutes_ms=minutes_ms)


def _request_for(run: Run, request: TickRequest, number: int) -> TickRequest:
    return replace(
        request, scheduled_ms=run.key.minute_ms, source=run.source, nonce=f"{request.nonce}-{number}", repair=False
    )
