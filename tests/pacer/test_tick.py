"""One run per (class, minute) whatever repeats it (I6, rule 5), and never more than the budget, whoever dies (I1)."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from ops.simulator.faults import Call, CrashOn, Die, Fault, FaultHook, FaultOn, Stall, When
from ops.simulator.world import Latency, Outcome
from shared.domain.control import RunState
from shared.memory.ledger import Staleness
from shared.pacer.decide import Binding
from tests.worlds import TWENTY_A_TICK, Bench, jobs, settings


def bench(seed: int = 1, *, rows: int = 100, changes: dict[str, Any] | None = None, **options: Any) -> Bench:
    made = Bench(settings(**(TWENTY_A_TICK | (changes or {}))), seed, **options)
    made.submit(jobs(rows, chunk_ms=200))
    return made


# -- repeats


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("apart_s", [0.0, 0.005, 0.02, 0.1])
def test_two_triggers_of_one_minute_are_one_run(seed: int, apart_s: float) -> None:
    sluice = bench(seed)
    first = sluice.tick(at_s=1)
    second = sluice.tick(at_s=1 + apart_s)
    outcomes = [report.outcome for report in sluice.ended(first, second)]
    assert sorted(outcomes) == ["closed", "duplicate"]
    assert (sluice.claimed(), len(sluice.ledger.runs)) == (20, 1)


def test_a_late_duplicate_after_the_run_closed_admits_nothing() -> None:
    sluice = bench()
    assert sluice.ticked().admitted == 20
    assert sluice.ticked(at_s=45).outcome == "duplicate"
    assert (sluice.claimed(), len(sluice.history)) == (20, 1)


def test_a_tick_that_overlaps_another_minutes_tick_is_skipped_and_stays_so() -> None:
    sluice = bench(crash=FaultOn("queue.send_batch", Stall(30_000)))
    first, second = sluice.tick(0), sluice.tick(1, at_s=10)
    assert [report.outcome for report in sluice.ended(first, second)] == ["closed", "skipped"]
    assert (sluice.run_of(1).state, sluice.run_of(1).reason) == (RunState.SKIPPED, "overlap")
    assert sluice.ticked(1, at_s=40).outcome == "duplicate"
    assert sluice.claimed() == 20


def test_a_repeat_leaves_the_live_owner_of_its_own_run_alone() -> None:
    sluice = bench(crash=FaultOn("queue.send_batch", Stall(30_000)))
    first, repeat = sluice.tick(0), sluice.tick(0, at_s=10)
    assert sluice.ended(repeat)[0].outcome == "duplicate"
    assert sluice.run_of(0).state is RunState.PLANNED
    assert sluice.ended(first)[0].outcome == "closed"
    assert sluice.run_of(0).state is RunState.CLOSED


# -- crashes


def test_an_open_run_whose_owner_crashed_is_resumed_and_plans() -> None:
    sluice = bench(crash=CrashOn("ledger.plan_run", 1, When.BEFORE))
    assert sluice.ended(sluice.tick()) == [None]
    assert sluice.run_of(0).state is RunState.OPEN
    report = sluice.ticked(at_s=70)
    assert (report.outcome, report.admitted) == ("closed", 20)


def test_a_planned_run_whose_owner_crashed_only_sweeps_and_closes() -> None:
    sluice = bench(crash=CrashOn("ledger.move", 7, When.AFTER))
    sluice.ended(sluice.tick())
    left = sluice.claimed()
    assert 0 < left < 20
    report = sluice.ticked(at_s=200)
    assert (report.outcome, report.admitted, report.swept) == ("closed", 0, left)
    assert report.plan is not None
    assert report.plan.binding is Binding.RESUMED
    assert sluice.claimed() == left


@pytest.mark.parametrize(
    ("at_s", "outcome"),
    [
        (55.999, "skipped"),  # the pacer's timeout of 45 s and the lock's margin of 10 s
        (56.0, "closed"),
    ],
)
def test_the_lock_of_a_crashed_owner_is_taken_over_only_after_it_expired(at_s: float, outcome: str) -> None:
    sluice = bench(crash=CrashOn("ledger.plan_run", 1, When.AFTER))
    sluice.ended(sluice.tick(0, at_s=1))
    assert sluice.ticked(1, at_s=at_s).outcome == outcome


@pytest.mark.parametrize(
    ("crash", "admitted"),
    [
        (None, [20, 20, 20]),
        (CrashOn("ledger.plan_run", 2, When.AFTER), [20, 0, 20]),  # its minute is spent, not earned again
        (CrashOn("ledger.plan_run", 2, When.BEFORE), [20, 0, 40]),  # it spent nothing
    ],
)
def test_a_tick_that_dies_between_plan_and_claims_has_spent_its_time(
    crash: FaultHook | None, admitted: list[int]
) -> None:
    sluice = bench(crash=crash, workers=True, changes={"lateness_s": 60.0})
    values = [sluice.ended(sluice.tick(minute, at_s=minute * 60))[0] for minute in (1, 2, 3)]
    assert [0 if value is None else value.admitted for value in values] == admitted


# -- slow pacers


def test_a_slow_pacer_stops_claiming_ten_seconds_before_its_end() -> None:
    slow = Latency(by_point={"ledger.move": 12_000})  # 16 at a time land at 6, 18 and 30 s; the next would at 42
    sluice = bench(rows=200, changes={"slots": 20}, latency=slow)
    report = sluice.ticked()
    assert report.plan is not None
    assert (report.plan.budget, report.outcome, report.admitted) == (100, "closed", 48)


@pytest.mark.parametrize(
    ("stall_s", "outcome", "next_outcome"),
    [
        (45, "closed", "closed"),  # too late to claim, in time to close
        (65, "lost", "closed"),  # the lock was taken over: closing is refused, and nothing was claimed
    ],
)
def test_a_pacer_that_wakes_up_late_claims_nothing(stall_s: int, outcome: str, next_outcome: str) -> None:
    sluice = bench(crash=FaultOn("ledger.plan_run", Stall(stall_s * 1000), 1, When.AFTER))
    slow, following = sluice.zombie_tick(0), sluice.tick(1, at_s=61)
    reports = sluice.ended(slow, following)
    assert [report.outcome for report in reports] == [outcome, next_outcome]
    assert reports[0].admitted == 0
    assert len(sluice.history) == (2 if outcome == "closed" else 1)


def test_a_pacer_that_sleeps_through_its_planning_does_not_plan() -> None:
    sluice = bench(crash=FaultOn("ledger.read_stats", Stall(41_000)))
    assert sluice.ticked().outcome == "lost"
    assert sluice.run_of(0).state is RunState.OPEN
    assert sluice.ticked(at_s=61).admitted == 20


# -- two pacers and every port call (I1)


class OnFirstTick:
    """The fault at the nth port call of the first tick's invocation."""

    def __init__(self, call: int, fault: Fault, when: When) -> None:
        self._left = call
        self._fault = fault
        self._when = when
        self._first = ""

    def __call__(self, call: Call, when: When) -> Fault | None:
        if call.point == "ledger.admit_run" and not self._first:
            self._first = call.invocation
        if call.invocation != self._first or when is not self._when:
            return None
        self._left -= 1
        return self._fault if self._left == 0 else None


def race(fault: OnFirstTick | None, *, zombie: bool, workers: bool) -> Bench:
    """A tick, its repeat, and the ticks of the next minutes; at most 5 of 12 jobs in flight, the index 3 s behind."""
    sluice = bench(
        rows=12,
        changes={"max_inflight": 5},
        crash=fault,
        workers=workers,
        staleness=Staleness.fixed(3_000, gap_ms=1_000),
    )
    sluice.until(5)
    first = sluice.zombie_tick(0) if zombie else sluice.tick(0)
    others = [sluice.tick(0, at_s=5.02), sluice.tick(0, at_s=66), sluice.tick(1, at_s=67), sluice.tick(2, at_s=130)]
    sluice.ended(first, *others)
    return sluice


@cache
def calls_of_a_tick() -> int:
    sluice = race(None, zombie=False, workers=False)
    first = next(call.invocation for call in sluice.world.trace if call.point == "ledger.admit_run")
    return sum(call.invocation == first for call in sluice.world.trace)


@pytest.mark.parametrize("workers", [False, True])
@pytest.mark.parametrize(
    ("fault", "when", "zombie"),
    [
        (Die(), When.BEFORE, False),
        (Die(), When.AFTER, False),
        (Stall(30_000), When.BEFORE, False),  # killed at its timeout if it is still there
        (Stall(70_000), When.BEFORE, False),
        (Stall(70_000), When.AFTER, True),  # wakes up behind the back of the next owner
    ],
)
def test_no_race_of_pacers_admits_more_than_the_budget(fault: Fault, when: When, zombie: bool, workers: bool) -> None:
    for call in range(1, calls_of_a_tick() + 1):
        sluice = race(OnFirstTick(call, fault, when), zombie=zombie, workers=workers)
        report = sluice.report()
        case = f"{fault} {when} call {call}"
        assert report.over_budget_ticks == 0, case
        assert report.max_in_flight <= 5, case
        assert sum(run.state is RunState.CLOSED for run in sluice.ledger.runs) >= 2, case
        assert sluice.errors == [], case


@pytest.mark.parametrize("lag_ms", [0, 1_000, 4_900])
def test_a_late_tick_and_the_next_one_together_stay_within_max_inflight(lag_ms: int) -> None:
    """40 rows/s: what was earned in a second would admit 40 more, and the index does not show the first 10 yet."""
    sluice = Bench(settings(max_inflight=10), staleness=Staleness.fixed(lag_ms))
    sluice.submit(jobs(60))
    sluice.until(58)
    late, punctual = sluice.tick(0, at_s=59.5), sluice.tick(1, at_s=60.5)
    reports = sluice.ended(late, punctual)
    assert [(report.outcome, report.admitted) for report in reports] == [("closed", 10), ("closed", 0)]
    assert sluice.report().max_in_flight == 10


# -- the arithmetic of the tick, through the whole tick


def test_three_tenths_of_a_row_a_tick_admit_3_in_10_ticks() -> None:
    sluice = bench(changes={"declared_service_s": 800.0}, workers=True)
    assert sum(sluice.ticked(minute, at_s=minute * 60).admitted for minute in range(1, 11)) == 3


@pytest.mark.parametrize(
    ("late_s", "least"),
    [
        (50, 630),  # 0.5 rows/s over 20 minutes, and the first tick earned one interval
        (59, 630),  # the index may show the late tick's rows or not: the level does not count them twice
    ],
)
def test_every_second_minute_tick_late_loses_nothing(late_s: int, least: int) -> None:
    sluice = bench(rows=700, changes={"lateness_s": 60.0, "declared_service_s": 8.0}, workers=True)
    at_s = [minute * 60 + (0 if minute % 2 else late_s) for minute in range(1, 22)]
    admitted = sum(sluice.ticked(minute, at_s=at_s[minute - 1]).admitted for minute in range(1, 22))
    assert least <= admitted <= 630


def test_every_tick_is_killed_at_its_timeout_and_says_nothing_then() -> None:
    sluice = bench(crash=FaultOn("ledger.close_run", Stall(60_000)))
    dead = sluice.tick()
    sluice.ended(dead)
    assert dead.outcome is Outcome.TIMED_OUT
    assert sluice.metrics.sets == []
