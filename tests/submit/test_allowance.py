"""Submitters spend the live allowance: a live job starts at once while the budget allows, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from ops.simulator.drive import Drive
from ops.simulator.faults import CrashAt, CrashOn, Fail, FaultHook, FaultOn, Stall, When
from ops.simulator.scenario import load_scenario
from ops.simulator.world import START_MS
from shared.domain.job import Flag, Lane, State
from shared.errors import LedgerUnavailable, QueueUnavailable
from shared.memory.ledger import Staleness
from shared.operate.switches import halt, pause
from shared.pacer.decide import TickPlan
from shared.pacer.tick import TickReport, TickRequest, run_tick
from shared.submit.submission import AT_ONCE
from tests.worlds import CLASS, HOUR_MS, MINUTE_MS, TWENTY_A_TICK, Bench, Watched, jobs, settings


def measured(*faults: FaultHook, arrivals: int = 4, changes: dict[str, Any] | None = None, **options: Any) -> Watched:
    """The class has ticked once after `arrivals` live jobs, worked them, and left room for as many and more."""
    options = {"workers": True} | options
    sluice = Watched(settings(**(TWENTY_A_TICK | (changes or {}))), faults=faults, **options)
    sluice.produce(jobs(arrivals, name="first", chunk_ms=200))
    assert all(job.state is State.WAITING for job in sluice.rows.values()), "nobody had been measured yet"
    sluice.ticked(1, at_s=60)
    sluice.until(70)
    return sluice


def planned(report: TickReport) -> TickPlan:
    assert report.plan is not None
    return report.plan


def returned(report: TickReport) -> int:
    return planned(report).snapshot.returned


def left(sluice: Bench) -> int:
    return sluice.ledger.read_allowance(CLASS).rows


def test_a_first_arrival_waits_for_its_tick_and_the_next_ones_start_within_a_second() -> None:
    sluice = measured()
    (line,) = sluice.history
    assert (line.arrived, line.admitted, line.granted, line.budget) == (4, 4, 8, 20)
    sluice.produce(jobs(3, name="next", chunk_ms=200))
    sluice.until(71.5)
    assert {sluice.rows[f"next{number}"].state for number in range(3)} == {State.DONE}
    assert (left(sluice), sluice.claimed()) == (5, 4), "none of them was claimed by a tick"


def test_the_row_is_of_the_granting_run_and_of_the_live_lane() -> None:
    sluice = measured(workers=False)
    sluice.produce(jobs(1, name="next"))
    row, (line,) = sluice.rows["next0"], sluice.history
    assert (row.state, row.epoch, row.lane, row.run_id) == (State.QUEUED, 1, Lane.LIVE, line.run_id)
    assert row.hand_until_ms == START_MS + 2 * MINUTE_MS
    assert len(sluice.queued(Lane.LIVE)) == 5


def test_what_was_not_spent_comes_back_and_what_was_missed_is_expected_next() -> None:
    sluice = measured()
    sluice.produce(jobs(6, name="six", chunk_ms=200))
    sluice.produce(jobs(5, name="five", chunk_ms=200))  # two are left for them
    assert (left(sluice), sluice.ledger.writes["spend"]) == (0, 8)
    report = sluice.ticked(2, at_s=120)
    line = sluice.history[-1]
    assert (line.arrived, report.admitted, returned(report)) == (11, 3, 0)
    sluice.ticked(3, at_s=180)
    assert sluice.history[-1].arrived == 0
    report = sluice.ticked(4, at_s=240)
    assert returned(report) == sluice.history[-2].granted > 0
    assert planned(report).edge_rows == 20 + returned(report)


@pytest.mark.parametrize("rows", [AT_ONCE + 1, 805])  # whose second wave alone would be few
def test_more_rows_than_a_match_leaves_behind_are_a_backlog_and_wait(rows: int) -> None:
    sluice = measured(arrivals=20)
    sluice.produce(jobs(rows, name="file"))
    assert {sluice.rows[f"file{number}"].state for number in range(rows)} == {State.WAITING}
    assert sluice.ledger.read_allowance(CLASS).missed == 0, "and nobody is expected because of it"


@pytest.mark.parametrize(
    ("due_ms", "what"), [(START_MS + HOUR_MS, "not due"), (START_MS - HOUR_MS, "recovery")], ids=str
)
def test_a_job_that_is_not_due_or_not_live_any_more_waits(due_ms: int, what: str) -> None:
    sluice = measured()
    sluice.produce(jobs(1, name="other", due_ms=due_ms))
    assert (sluice.rows["other0"].state, left(sluice)) == (State.WAITING, 8), what


def test_a_submission_that_is_repeated_spends_once() -> None:
    sluice = measured()
    for _ in range(3):
        sluice.produce(jobs(2, name="twice", chunk_ms=200))
    assert left(sluice) == 6
    sluice.drain(max_ms=HOUR_MS)
    assert len(sluice.kinds[CLASS].starts) == 6


def test_a_class_without_an_order_admits_each_class_of_a_submission_by_itself() -> None:
    sluice = measured()
    report = sluice.produce([*jobs(2, name="a"), *jobs(1, name="old", due_ms=START_MS - HOUR_MS), *jobs(1, name="b")])
    assert (report.created, left(sluice)) == (4, 5)
    assert [job.job_id for job in sluice.rows.values() if job.state is State.WAITING] == ["old0"]


# -- I1: what was spent counts as admitted


def test_max_inflight_holds_whenever_submitters_come() -> None:
    for at_s in (119.9, 120.0, 120.02, 120.05, 120.1, 121):
        sluice = measured(changes={"max_inflight": 10}, workers=False, staleness=Staleness.fixed(4_000))
        sluice.submit(jobs(40, name="old", due_ms=START_MS - HOUR_MS))
        assert left(sluice) == 6, "four of ten are in flight"
        tick = sluice.tick(2, at_s=120)
        sluice.until(at_s)
        sluice.ended(tick, sluice.producer(jobs(6, name="late")))
        assert sluice.report().max_in_flight <= 10, at_s
        assert not sluice.broken, at_s


def test_a_tick_admits_and_grants_no_more_than_its_budget() -> None:
    sluice = measured(arrivals=25)
    for _ in range(5):
        sluice.produce(jobs(25, name=f"more{sluice.world.now_ms}-"))
        assert sluice.report().over_budget_ticks == 0
    assert sluice.ledger.writes["spend"] + sluice.history[0].admitted == 20


# -- I10: a pause ends it


@pytest.mark.parametrize("stop", [pause, halt])
def test_nothing_is_admitted_by_allowance_after_a_pause(stop: Callable[..., object]) -> None:
    sluice = measured()
    sluice.command("stop", partial(stop, sluice.ports, CLASS, by="operator", why="test"))
    sluice.produce(jobs(2, name="late"))
    assert {sluice.rows[f"late{number}"].state for number in (0, 1)} == {State.WAITING}
    sluice.ticked(2, at_s=120)
    assert (left(sluice), sluice.history[-1].granted) == (0, 0)
    sluice.resume(CLASS)
    sluice.ticked(3, at_s=180)
    assert left(sluice) > 0, "what came during the pause was measured"


def test_a_tick_that_meets_a_pause_before_its_close_grants_nothing() -> None:
    sluice = Bench(settings(**TWENTY_A_TICK), crash=FaultOn("ledger.close_run", Stall(5_000)))
    sluice.produce(jobs(4, name="first"))
    tick = sluice.tick(1, at_s=60)
    sluice.until(63)
    sluice.ledger.set_pause(CLASS, Flag(by="operator", why="test", at_ms=sluice.world.now_ms))
    (report,) = sluice.ended(tick)
    assert (report.outcome, planned(report).granted) == ("closed", 8)
    assert (left(sluice), sluice.history[-1].granted) == (0, 0)


# -- who grants nothing, and what is not lost by it


def test_a_tick_that_lost_its_lock_grants_nothing() -> None:
    sluice = Bench(settings(**TWENTY_A_TICK), crash=FaultOn("ledger.close_run", Stall(200_000)))
    sluice.produce(jobs(4, name="first"))
    slow = sluice.zombie_tick(0)
    sluice.until(150)
    other = sluice.ticked(2)
    granted = left(sluice)
    assert other.outcome == "closed"
    assert sluice.ended(slow)[0].outcome == "lost"
    assert left(sluice) == granted, "the slow one has changed nothing"


def test_a_repair_leaves_the_allowance_to_submitters_and_the_next_plan_has_what_is_left_of_it() -> None:
    sluice = measured()
    sluice.produce(jobs(3, name="spent"))
    at_ms, until_ms = START_MS + 2 * MINUTE_MS, START_MS + 3 * MINUTE_MS
    request = TickRequest(scheduled_ms=at_ms, source="schedule", nonce="repair", deadline_ms=until_ms, repair=True)
    sluice.until(120)
    sluice.command("repair", partial(run_tick, sluice.ports, sluice.job_class, None, request))
    sluice.produce(jobs(1, name="after"))
    assert (left(sluice), sluice.history[-1].granted, sluice.history[-1].arrived) == (4, 0, None)
    report = sluice.ticked(3, at_s=180)
    assert (returned(report), sluice.history[-1].arrived) == (4, 4)


def test_a_resumed_run_grants_nothing_and_its_rows_are_not_earned_again() -> None:
    sluice = measured(CrashOn("ledger.plan_run", 2, When.AFTER))
    sluice.submit(jobs(40, name="old", due_ms=START_MS - HOUR_MS))
    sluice.ended(sluice.tick(2, at_s=120))
    sluice.until(190)
    assert sluice.ticked(2).admitted == 0
    assert (left(sluice), sluice.history[-1].granted) == (0, 0)
    report = sluice.ticked(4, at_s=240)
    assert returned(report) == 0, "the dead tick had planned with them"


# -- when things fail


def test_a_message_that_was_never_sent_is_healed_by_the_sweep() -> None:
    for fault in (
        CrashOn("ledger.spend", 1, When.AFTER),
        FaultOn("queue.send_batch", Fail(QueueUnavailable("away")), nth=None, when=When.BEFORE),
    ):
        sluice = measured(workers=False)
        sluice.world.faults.append(fault)
        sluice.ended(sluice.producer(jobs(2, name="next")))
        assert {sluice.rows[f"next{number}"].state for number in (0, 1)} == {State.QUEUED}
        sluice.world.faults.remove(fault)
        sluice.switch(True)
        sluice.schedules[CLASS].enabled = True
        assert sluice.drain(max_ms=HOUR_MS)
        assert {job.state for job in sluice.rows.values()} == {State.DONE}
        assert len(sluice.kinds[CLASS].starts) == 6


def test_a_head_that_meets_others_at_the_allowance_tries_once_and_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    sluice, asked = measured(changes={"ordered": True}), []
    monkeypatch.setattr(sluice.ledger, "_take", lambda *given: asked.append(given))
    sluice.produce(jobs(1, name="next"))
    assert (sluice.rows["next0"].state, len(asked), left(sluice)) == (State.WAITING, 1, 8)


def test_an_answer_that_is_lost_spends_once_and_loses_nothing() -> None:
    lost = FaultOn("ledger.spend", Fail(LedgerUnavailable("lost")), when=When.AFTER)
    sluice = measured(lost)
    with pytest.raises(LedgerUnavailable):
        sluice.produce(jobs(2, name="next"), nonce="one")
    report = sluice.produce(jobs(2, name="next"), nonce="two")
    assert (report.created, report.existing, left(sluice)) == (0, 2, 6)
    sluice.schedules[CLASS].enabled = True
    assert sluice.drain(max_ms=HOUR_MS)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_producer_that_is_killed_at_any_call_loses_and_doubles_nothing(ordered: bool) -> None:
    changes = {"ordered": ordered}
    sluice = measured(changes=changes)
    before = sluice.world.calls
    sluice.produce(jobs(2, matches=1, name="next", chunk_ms=200))
    calls = range(before + 1, sluice.world.calls + 1)
    for call in calls:
        for when in When:
            sluice = measured(CrashAt(call, when), changes=changes)
            for _ in range(2):
                sluice.ended(sluice.producer(jobs(2, matches=1, name="next", chunk_ms=200)))
            sluice.schedules[CLASS].enabled = True
            assert sluice.drain(max_ms=HOUR_MS)
            sluice.suite.ended()
            assert not sluice.broken, (call, when)
            assert len(sluice.kinds[CLASS].starts) == 6, (call, when)


# -- ordered classes


def test_the_head_of_an_empty_line_is_admitted_and_its_successor_follows_it() -> None:
    sluice = measured(changes={"ordered": True})
    sluice.produce(jobs(3, matches=1, name="next", chunk_ms=200))
    in_match = {job_id: row for job_id, row in sluice.rows.items() if job_id.startswith("next")}
    assert [row.state for row in in_match.values()] == [State.QUEUED, State.BEHIND, State.BEHIND]
    assert left(sluice) == 7
    sluice.until(75)
    assert [sluice.rows[job_id].state for job_id in in_match] == [State.DONE] * 3
    starts = [start.job_id for start in sluice.kinds[CLASS].starts[4:]]
    assert starts == list(in_match), "in order, handed over"


def test_a_job_behind_a_dead_one_stands_behind_it_whatever_is_left() -> None:
    sluice = measured(changes={"ordered": True}, workers=False)
    sluice.produce(jobs(1, name="first"))  # the match of the first one, which is in flight
    sluice.produce([*jobs(1, name="next")])
    assert sluice.rows["next0"].state is State.QUEUED
    sluice.produce([replace(jobs(1, name="later")[0], match_id="next-m0")])
    assert (sluice.rows["later0"].state, left(sluice)) == (State.BEHIND, 7)


# -- everything at once


@pytest.mark.parametrize("seed", [2, 3, 4])  # 3 is of an ordered class
def test_under_all_faults_at_once_the_allowance_is_spent_and_nothing_breaks(seed: int) -> None:
    drive = Drive(load_scenario("live-faults"), seed)
    drive.run()
    assert [str(finding) for finding in drive.suite.findings.first] == []
    assert sum(step.name == "admit" for step in drive.sluice.ledger.steps) > 20
