"""Runs that the webhook admits: executed once whoever dies, and by a class that has no schedule of runs of its own."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from ops.simulator.faults import CrashOn, FaultOn, Stall, When
from ops.simulator.world import START_MS, Invocation
from shared.domain.control import WEBHOOK, Run, RunKey, RunState, minutes_to_look_at
from shared.domain.job import Flag, Lane, State
from shared.domain.settings import Schedule
from shared.pacer.tick import PaceReport, TickRequest, pace
from tests.worlds import CLASS, MINUTE_MS, TWENTY_A_TICK, Bench, jobs, settings

BY_WEBHOOK: dict[str, Any] = {**TWENTY_A_TICK, "webhook": True, "schedule": Schedule.REPAIR}
BOTH: dict[str, Any] = {**TWENTY_A_TICK, "webhook": True}
ROWS = 100


def bench(changes: dict[str, Any] | None = None, **options: Any) -> Bench:
    made = Bench(settings(**(changes or BY_WEBHOOK)), **options)
    made.submit([*jobs(ROWS // 2, chunk_ms=200), *jobs(ROWS // 2, name="old", due_ms=START_MS - 3_600_000)])
    return made


def key(minute: int) -> RunKey:
    return RunKey.of(CLASS, START_MS + minute * MINUTE_MS)


def admitted(sluice: Bench, minute: int) -> None:
    """The webhook has written its row, and died before it asked the pacer."""
    assert sluice.ledger.admit_run(key(minute), source=WEBHOOK, now_ms=sluice.world.now_ms)


def asked(sluice: Bench, minute: int, *, at_s: float | None = None) -> Invocation:
    """The pacer, invoked by the webhook."""
    nonce = sluice.world.new_id("webhook/tick")
    at_ms = sluice.world.now_ms if at_s is None else START_MS + round(at_s * 1000)

    def tick() -> PaceReport:
        request = TickRequest(
            scheduled_ms=key(minute).minute_ms, source=WEBHOOK, nonce=nonce, deadline_ms=at_ms + 50_000
        )
        return pace(sluice.ports, sluice.settings, sluice.job_class, request)

    return sluice.world.spawn(nonce, tick, at_ms, timeout_ms=50_000)


def states(sluice: Bench) -> dict[str, tuple[RunState, str]]:
    return {run.key.run_id[-6:]: (run.state, run.reason) for run in sluice.ledger.runs if not run.key.repair}


# -- the repair tick of a class that only the webhook drives


def test_a_repair_tick_admits_no_run_and_no_row_and_leaves_the_minute_free() -> None:
    sluice = bench()
    report = sluice.ticked(1, at_s=60)
    assert (report.outcome, report.admitted, sluice.claimed()) == ("closed", 0, 0)
    assert states(sluice) == {}
    assert sluice.ledger.admit_run(key(1), source=WEBHOOK, now_ms=sluice.world.now_ms)


def test_a_repair_tick_earns_and_spends_nothing_of_the_next_runs_budget() -> None:
    sluice = bench()
    for minute in (1, 2, 3):
        sluice.ticked(minute, at_s=60 * minute)
    assert sluice.control.planned_at_ms is None
    admitted(sluice, 3)
    (report,) = sluice.ended(asked(sluice, 3))
    assert report.tick.admitted > 0


def test_a_repair_tick_sweeps() -> None:
    sluice = bench(crash=CrashOn("queue.send_batch", 1, When.BEFORE))
    admitted(sluice, 0)
    sluice.ended(asked(sluice, 0))  # claims, and dies before it sends
    assert sluice.claimed() > 0
    report = sluice.ticked(4, at_s=240)
    assert report.swept > 0


def test_the_webhook_alone_drains_the_class() -> None:
    sluice = bench(ticks=True, workers=True)
    for minute in range(1, 20):
        at_ms = START_MS + minute * MINUTE_MS

        def call(minute: int = minute) -> None:
            admitted(sluice, minute)
            asked(sluice, minute)

        sluice.world.at(at_ms, call)
    assert sluice.drain(max_ms=20 * MINUTE_MS)
    assert sluice.ledger.states[State.DONE] == ROWS


def test_without_a_request_nothing_drains() -> None:
    sluice = bench(ticks=True, workers=True)
    sluice.run(30 * MINUTE_MS)
    assert sluice.ledger.open_rows == ROWS


# -- a webhook that dies between its write and the pacer


@pytest.mark.parametrize("changes", [BY_WEBHOOK, BOTH], ids=["repair", "runs"])
def test_an_open_run_that_nobody_was_asked_for_is_executed_by_the_next_tick(changes: dict[str, Any]) -> None:
    sluice = bench(changes)
    admitted(sluice, 0)
    sluice.ticked(1, at_s=60)
    assert (sluice.run_of(0).state, bool(sluice.run_of(0).owner)) == (RunState.CLOSED, True)
    assert sluice.claimed() > 0


def test_an_open_run_is_executed_once_however_many_ticks_find_it() -> None:
    sluice = bench()
    admitted(sluice, 0)
    ticks = [sluice.tick(1, at_s=60), sluice.tick(1, at_s=60.01), asked(sluice, 0, at_s=60.02)]
    sluice.ended(*ticks)
    sluice.ticked(2, at_s=120)
    assert sluice.run_of(0).state is RunState.CLOSED
    assert (sluice.claimed(), sluice.ledger.writes["plan_run"]) == (sluice.run_of(0).budget, 1)


def test_a_run_whose_pacer_died_before_its_plan_is_executed_by_a_repair() -> None:
    sluice = bench(crash=CrashOn("ledger.plan_run", 1, When.BEFORE))
    admitted(sluice, 0)
    sluice.ended(asked(sluice, 0, at_s=1))
    assert sluice.run_of(0).state is RunState.OPEN
    sluice.ticked(2, at_s=120)
    assert sluice.run_of(0).state is RunState.CLOSED
    assert sluice.claimed() > 0


def test_a_pacer_that_was_away_for_long_finds_every_run_and_closes_them_all() -> None:
    sluice = bench()
    for minute in range(50):
        admitted(sluice, minute)
    sluice.ticked(50, at_s=50 * 60)
    assert {state for state, _ in states(sluice).values()} <= {RunState.CLOSED, RunState.SKIPPED}
    assert sum(reason == "superseded" for _, reason in states(sluice).values()) == 47
    assert sluice.claimed() > 0


def test_a_run_that_somebody_opens_again_spends_only_what_was_earned_since() -> None:
    """What the webhook's role could write in the wrong hands: IAM cannot ask for the condition of a put."""
    sluice = bench(BOTH)
    admitted(sluice, 0)
    sluice.ended(asked(sluice, 0))
    began_ms, once = sluice.world.now_ms, sluice.claimed()
    for number in range(1, 31):
        sluice.until(number)
        sluice.ledger._runs.runs[key(0)] = Run(key=key(0), state=RunState.OPEN, source=WEBHOOK)
        sluice.ended(asked(sluice, 0))
    earned = (sluice.world.now_ms - began_ms) / MINUTE_MS * 20  # of twenty a tick of a minute
    assert sluice.ledger.writes["plan_run"] == 31
    assert once > 0
    assert 0 < sluice.claimed() - once <= earned + 1


# -- schedule and webhook, and each other's locks


@pytest.mark.parametrize("apart_s", [0.0, 0.005, 0.02, 0.1, 5.0])
def test_the_same_minute_from_schedule_and_webhook_is_one_run(apart_s: float) -> None:
    sluice = bench(BOTH)

    def call() -> None:
        sluice.ledger.admit_run(key(1), source=WEBHOOK, now_ms=sluice.world.now_ms)

    sluice.world.at(START_MS + 60_000, call)
    sluice.ended(sluice.tick(1, at_s=60), asked(sluice, 1, at_s=60 + apart_s))
    assert len(sluice.ledger.runs) == 1
    assert sluice.ledger.writes["plan_run"] == 1


def test_a_run_that_meets_a_live_repair_stays_open_and_that_repair_executes_it() -> None:
    sluice = bench(crash=FaultOn("ledger.close_run", Stall(5_000)))
    repair = sluice.tick(1, at_s=60)
    sluice.until(62)
    admitted(sluice, 1)
    run = asked(sluice, 1, at_s=62)
    outcomes = sluice.ended(run, repair)
    assert outcomes[0].tick.outcome == "left"
    assert states(sluice) == {key(1).run_id[-6:]: (RunState.CLOSED, "")}
    assert sluice.claimed() > 0


def test_a_run_that_meets_another_runs_live_tick_is_skipped_as_an_overlap() -> None:
    sluice = bench(crash=FaultOn("queue.send_batch", Stall(30_000)))
    admitted(sluice, 0)
    admitted(sluice, 1)
    first, second = asked(sluice, 0, at_s=58), asked(sluice, 1, at_s=62)
    sluice.ended(first, second)
    assert states(sluice)[key(1).run_id[-6:]] == (RunState.SKIPPED, "overlap")


# -- what a run finds


def test_a_run_that_finds_a_pause_is_skipped_for_it() -> None:
    sluice = bench()
    sluice.pause(CLASS)
    admitted(sluice, 1)
    sluice.ended(asked(sluice, 1))
    assert states(sluice)[key(1).run_id[-6:]] == (RunState.SKIPPED, "paused")
    assert sluice.claimed() == 0


def test_a_run_that_finds_nothing_to_do_is_skipped_for_that() -> None:
    sluice = Bench(settings(**BY_WEBHOOK))
    admitted(sluice, 0)
    sluice.ended(asked(sluice, 0))
    assert states(sluice)[key(0).run_id[-6:]] == (RunState.SKIPPED, "nothing_to_do")


def test_a_run_that_slipped_through_the_closing_webhook_is_skipped_and_spends_nothing() -> None:
    sluice = bench(BOTH)
    admitted(sluice, 1)
    sluice.ledger.switch_webhook(CLASS, Flag(by="ada", why="test", at_ms=START_MS), closed=True)
    sluice.ended(asked(sluice, 1, at_s=60))
    assert states(sluice)[key(1).run_id[-6:]] == (RunState.SKIPPED, "webhook_closed")
    assert (sluice.claimed(), sluice.control.planned_at_ms) == (0, None)
    assert sluice.ticked(2, at_s=120).admitted > 0  # its own schedule was not revoked


# -- which minutes a tick looks at


def test_a_tick_looks_back_as_far_as_a_run_may_lie_and_ahead_as_far_as_one_may_come() -> None:
    now_ms = START_MS + 10 * 3_600_000
    look = {"now_ms": now_ms, "interval_s": 60, "max_age_s": 120, "max_ahead_s": 30}
    fresh = minutes_to_look_at((), **look)
    assert (fresh[0], fresh[-1]) == (now_ms - 24 * 3_600_000 - 120_000, now_ms)
    assert all(later - earlier == MINUTE_MS for earlier, later in pairwise(fresh))
    assert minutes_to_look_at((), **(look | {"now_ms": now_ms + 30_000}))[-1] == now_ms + MINUTE_MS


# -- without anybody who may start a run


@pytest.mark.parametrize("changes", [BY_WEBHOOK, BOTH], ids=["repair", "runs"])
def test_without_the_schedulers_identity_no_run_appears_and_what_is_in_flight_is_acknowledged(
    changes: dict[str, Any],
) -> None:
    sluice = bench(changes)
    admitted(sluice, 1)
    sluice.ended(asked(sluice, 1, at_s=60))  # messages are in flight now
    claimed = sluice.claimed()
    sluice.schedules[CLASS].enabled = False
    sluice.switch(True)  # the workers
    sluice.run(30 * MINUTE_MS)
    assert len(sluice.ledger.runs) == 1
    assert sluice.claimed() == claimed > 0
    assert sluice.ledger.states[State.DONE] == claimed
    assert sluice.ledger.states[State.QUEUED] == 0
    assert not any(sluice.queued(lane) for lane in Lane)
