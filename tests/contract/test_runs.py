"""Runs, the class lock and control (rule 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from shared.core.model import LaneCounts
from shared.core.runs import (
    HISTORY_TICKS,
    Admission,
    Busy,
    Carry,
    Control,
    Ended,
    Flag,
    Run,
    RunKey,
    RunState,
    Taken,
    TakeResult,
    TickClose,
    TickLine,
    TickMemory,
)
from shared.errors import LedgerUnavailable
from shared.ports import Ledger
from tests.contract.worlds import CLASS, NOW_MS, AwsWorld

KEY = RunKey.of(CLASS, NOW_MS)
NEXT = RunKey.of(CLASS, NOW_MS + 60_000)
UNTIL_MS = NOW_MS + 50_000
PLAN = TickMemory(budget=7, carry=Carry(live=-300_000_000, recovery=600_000_000), planned_at_ms=NOW_MS)
FLAG = Flag(by="operator@example", why="quota – bis morgen", at_ms=NOW_MS)


def a_line(number: int = 0, *, eta_s: float | None = 81.25) -> TickLine:
    return TickLine(
        run_id=KEY.run_id,
        at_ms=NOW_MS + number,
        paused=False,
        waiting=LaneCounts(live=3, recovery=2000),
        later=1,
        behind=0,
        in_flight=40,
        dead=2,
        budget=7,
        admitted=7,
        confirmed=6,
        swept=1,
        rate_per_s=1 / 3,
        binding="upstream",
        oldest_age_s=91,
        eta_s=eta_s,
    )


CLOSE = TickClose(
    p95_chunk_ms=1234,
    recent=(Admission(at_ms=NOW_MS, rows=7),),
    history=(a_line(), a_line(1, eta_s=None), replace(a_line(2), rate_per_s=2.0)),
)


def take(
    ledger: Ledger, key: RunKey = KEY, *, owner: str = "one", now_ms: int = NOW_MS, until_ms: int = UNTIL_MS
) -> TakeResult:
    return ledger.take_run(key, owner=owner, now_ms=now_ms, until_ms=until_ms)


@pytest.fixture
def admitted(ledger: Ledger) -> Ledger:
    for key in (KEY, NEXT):
        assert ledger.admit_run(key, source="schedule", now_ms=NOW_MS)
    return ledger


# -- admission


def test_a_run_is_admitted_once(ledger: Ledger) -> None:
    assert ledger.read_run(KEY) is None
    assert ledger.admit_run(KEY, source="schedule", now_ms=NOW_MS)
    assert not ledger.admit_run(KEY, source="webhook", now_ms=NOW_MS + 1)
    assert ledger.read_run(KEY) == Run(key=KEY, state=RunState.OPEN, source="schedule")


def test_classes_and_minutes_are_runs_of_their_own(ledger: Ledger) -> None:
    keys = [KEY, NEXT, RunKey.of("thumbnail", NOW_MS)]

    assert all(ledger.admit_run(key, source="schedule", now_ms=NOW_MS) for key in keys)


# -- the lock


def test_control_that_nobody_wrote_is_all_defaults(ledger: Ledger) -> None:
    assert ledger.read_control(CLASS) == Control(job_class=CLASS)


def test_taking_a_run_locks_the_class_and_owns_the_run(admitted: Ledger) -> None:
    assert take(admitted) == Taken(planned=False)

    control, run = admitted.read_control(CLASS), admitted.read_run(KEY)
    assert (control.lock_owner, control.lock_run_id, control.lock_until_ms) == ("one", KEY.run_id, UNTIL_MS)
    assert run is not None
    assert (run.owner, run.state) == ("one", RunState.OPEN)


@pytest.mark.parametrize("key", (KEY, NEXT))
def test_a_live_lock_is_busy_for_others_and_names_its_run(admitted: Ledger, key: RunKey) -> None:
    take(admitted)

    assert take(admitted, key, owner="two", now_ms=UNTIL_MS - 1) == Busy(run_id=KEY.run_id)
    run = admitted.read_run(key)
    assert run is not None
    assert run.owner != "two"


def test_an_expired_lock_is_free_and_its_run_resumable(admitted: Ledger) -> None:
    take(admitted)

    assert take(admitted, owner="two", now_ms=UNTIL_MS, until_ms=UNTIL_MS + 9) == Taken(planned=False)
    assert admitted.read_control(CLASS).lock_owner == "two"


def test_taking_twice_with_one_nonce_is_taking_once(admitted: Ledger) -> None:
    take(admitted)

    assert take(admitted) == Taken(planned=False)


def test_one_nonce_does_not_take_two_runs_at_a_time(admitted: Ledger) -> None:
    take(admitted)

    assert take(admitted, NEXT) == Busy(run_id=KEY.run_id)


def test_locks_of_two_classes_are_apart(admitted: Ledger) -> None:
    other = RunKey.of("thumbnail", NOW_MS)
    admitted.admit_run(other, source="schedule", now_ms=NOW_MS)
    take(admitted)

    assert take(admitted, other, owner="two") == Taken(planned=False)


def test_a_run_that_was_never_admitted_has_ended(ledger: Ledger) -> None:
    assert take(ledger) == Ended()
    assert ledger.read_control(CLASS).lock_owner == ""


def test_a_closed_and_a_skipped_run_have_ended(admitted: Ledger) -> None:
    take(admitted)
    admitted.close_run(KEY, owner="one", close=CLOSE)
    admitted.skip_run(NEXT, reason="overlap")

    assert take(admitted) == Ended()
    assert take(admitted, NEXT) == Ended()
    assert admitted.read_control(CLASS).lock_owner == ""


# -- the plan


def test_planning_marks_the_run_and_spends_in_control(admitted: Ledger) -> None:
    take(admitted)

    assert admitted.plan_run(KEY, owner="one", plan=PLAN)
    run, control = admitted.read_run(KEY), admitted.read_control(CLASS)
    assert run is not None
    assert (run.state, run.budget, run.owner) == (RunState.PLANNED, 7, "one")
    assert (control.carry, control.planned_at_ms, control.lock_owner) == (PLAN.carry, NOW_MS, "one")


def test_a_planned_run_is_resumed_as_planned(admitted: Ledger) -> None:
    take(admitted)
    admitted.plan_run(KEY, owner="one", plan=PLAN)

    assert take(admitted, owner="two", now_ms=UNTIL_MS + 1, until_ms=UNTIL_MS + 9) == Taken(planned=True)


def test_nobody_else_plans_and_nobody_plans_twice(admitted: Ledger) -> None:
    assert not admitted.plan_run(KEY, owner="one", plan=PLAN)  # not taken
    take(admitted)
    assert not admitted.plan_run(KEY, owner="two", plan=PLAN)
    assert not admitted.plan_run(NEXT, owner="one", plan=PLAN)
    assert admitted.plan_run(KEY, owner="one", plan=PLAN)
    assert admitted.plan_run(KEY, owner="one", plan=PLAN)  # the answer was lost
    assert not admitted.plan_run(KEY, owner="one", plan=replace(PLAN, budget=8))
    take(admitted, owner="two", now_ms=UNTIL_MS + 1, until_ms=UNTIL_MS + 9)
    assert not admitted.plan_run(KEY, owner="one", plan=PLAN)


def test_an_owner_whose_lock_another_run_took_does_not_plan(admitted: Ledger) -> None:
    take(admitted)
    take(admitted, NEXT, owner="two", now_ms=UNTIL_MS + 1, until_ms=UNTIL_MS + 9)

    assert not admitted.plan_run(KEY, owner="one", plan=PLAN)
    run = admitted.read_run(KEY)
    assert run is not None
    assert run.state is RunState.OPEN
    assert admitted.read_control(CLASS).carry == Carry()


# -- the end


def test_skipping_closes_a_run_that_nobody_owned(admitted: Ledger) -> None:
    assert admitted.skip_run(KEY, reason="overlap")
    assert admitted.skip_run(KEY, reason="overlap")
    assert admitted.read_run(KEY) == Run(key=KEY, state=RunState.SKIPPED, source="schedule", reason="overlap")


def test_a_run_that_a_tick_owned_or_that_does_not_exist_is_not_skipped(admitted: Ledger) -> None:
    take(admitted)

    assert not admitted.skip_run(KEY, reason="overlap")
    assert not admitted.skip_run(RunKey.of("thumbnail", NOW_MS), reason="overlap")


@pytest.mark.parametrize("planned", (False, True))
def test_closing_writes_the_memory_and_frees_the_lock(admitted: Ledger, planned: bool) -> None:
    take(admitted)
    if planned:
        admitted.plan_run(KEY, owner="one", plan=PLAN)

    assert admitted.close_run(KEY, owner="one", close=CLOSE)
    run, control = admitted.read_run(KEY), admitted.read_control(CLASS)
    assert run is not None
    assert run.state is RunState.CLOSED
    assert (control.recent, control.history, control.p95_chunk_ms) == (CLOSE.recent, CLOSE.history, 1234)
    assert (control.lock_owner, control.lock_run_id, control.lock_until_ms) == ("", "", 0)
    assert control.carry == (PLAN.carry if planned else Carry())
    assert take(admitted, NEXT, owner="two") == Taken(planned=False)


def test_only_the_owner_closes(admitted: Ledger) -> None:
    assert not admitted.close_run(KEY, owner="one", close=CLOSE)
    take(admitted)
    assert not admitted.close_run(KEY, owner="two", close=CLOSE)
    take(admitted, owner="two", now_ms=UNTIL_MS + 1, until_ms=UNTIL_MS + 9)
    assert not admitted.close_run(KEY, owner="one", close=CLOSE)
    assert admitted.read_control(CLASS).history == ()
    assert admitted.close_run(KEY, owner="two", close=CLOSE)


def test_an_owner_whose_lock_another_run_took_does_not_close(admitted: Ledger) -> None:
    take(admitted)
    take(admitted, NEXT, owner="two", now_ms=UNTIL_MS + 1, until_ms=UNTIL_MS + 9)

    assert not admitted.close_run(KEY, owner="one", close=CLOSE)
    assert admitted.read_control(CLASS).lock_owner == "two"


def test_closing_twice_is_closing_once(admitted: Ledger) -> None:
    take(admitted)
    admitted.close_run(KEY, owner="one", close=CLOSE)
    take(admitted, NEXT, owner="two")

    assert admitted.close_run(KEY, owner="one", close=replace(CLOSE, history=()))  # the answer was lost
    assert admitted.read_control(CLASS).history == CLOSE.history
    assert admitted.read_control(CLASS).lock_owner == "two"


def test_a_lock_is_dropped_by_its_owner_and_the_run_stays_resumable(admitted: Ledger) -> None:
    admitted.drop_lock(KEY, owner="one")  # nobody holds it
    take(admitted)
    for key, owner in ((KEY, "two"), (NEXT, "one")):
        admitted.drop_lock(key, owner=owner)
        assert admitted.read_control(CLASS).lock_owner == "one"
    admitted.drop_lock(KEY, owner="one")

    assert take(admitted, owner="two") == Taken(planned=False)


# -- pause and halt


def test_pause_and_halt_change_nothing_else(admitted: Ledger) -> None:
    take(admitted)
    admitted.plan_run(KEY, owner="one", plan=PLAN)
    before = admitted.read_control(CLASS)

    admitted.set_pause(CLASS, FLAG)
    assert replace(admitted.read_control(CLASS), version=before.version) == replace(before, pause=FLAG)
    admitted.set_halt(CLASS, replace(FLAG, why="halt"))
    admitted.set_pause(CLASS, None)
    after = admitted.read_control(CLASS)
    assert replace(after, version=before.version) == replace(before, halt=replace(FLAG, why="halt"))
    admitted.set_halt(CLASS, None)
    assert replace(admitted.read_control(CLASS), version=before.version) == before


def test_a_pause_survives_the_close_of_a_tick_that_began_before_it(admitted: Ledger) -> None:
    take(admitted)
    admitted.set_pause(CLASS, FLAG)
    admitted.close_run(KEY, owner="one", close=CLOSE)

    assert admitted.read_control(CLASS).pause == FLAG


def test_a_pause_of_a_class_that_never_ticked_is_kept(ledger: Ledger) -> None:
    ledger.set_pause(CLASS, FLAG)

    assert ledger.read_control(CLASS).pause == FLAG
    assert ledger.admit_run(KEY, source="schedule", now_ms=NOW_MS)
    assert take(ledger) == Taken(planned=False)


# -- AWS only


def test_every_write_of_control_raises_its_version(aws: AwsWorld) -> None:
    aws.ledger.admit_run(KEY, source="schedule", now_ms=NOW_MS)
    take(aws.ledger)
    aws.ledger.plan_run(KEY, owner="one", plan=PLAN)
    aws.ledger.set_pause(CLASS, FLAG)
    aws.ledger.close_run(KEY, owner="one", close=CLOSE)

    assert aws.ledger.read_control(CLASS).version == 4


@pytest.mark.parametrize("rate_per_s", (float("nan"), float("inf")))
def test_a_number_that_is_not_finite_is_refused_before_anything_is_written(aws: AwsWorld, rate_per_s: float) -> None:
    aws.ledger.admit_run(KEY, source="schedule", now_ms=NOW_MS)
    take(aws.ledger)
    bad = replace(CLOSE, history=(replace(a_line(), rate_per_s=rate_per_s),))

    with pytest.raises(ValueError, match="not finite"):
        aws.ledger.close_run(KEY, owner="one", close=bad)
    assert aws.ledger.read_control(CLASS).lock_owner == "one"


def test_a_full_history_is_far_from_the_item_limit(aws: AwsWorld) -> None:
    aws.ledger.admit_run(KEY, source="schedule", now_ms=NOW_MS)
    take(aws.ledger)
    full = replace(CLOSE, history=tuple(a_line(number) for number in range(HISTORY_TICKS)))

    assert aws.ledger.close_run(KEY, owner="one", close=full)
    assert aws.ledger.read_control(CLASS).history == full.history


def test_takes_plans_and_closes_whose_answer_is_lost_are_ours(aws: AwsWorld) -> None:
    ledger = aws.ledger
    ledger.admit_run(KEY, source="schedule", now_ms=NOW_MS)
    steps: tuple[Callable[[], bool], ...] = (
        lambda: take(ledger) == Taken(planned=False),
        lambda: ledger.plan_run(KEY, owner="one", plan=PLAN),
        lambda: ledger.close_run(KEY, owner="one", close=CLOSE),
    )
    for step in steps:
        with aws.answers_lost("transact_write_items"), pytest.raises(LedgerUnavailable):
            step()
        assert step()


@pytest.mark.e2e
def test_an_admission_that_the_sdk_repeats_is_no_duplicate(emulator_world: AwsWorld) -> None:
    with emulator_world.first_answer_lost("TransactWriteItems"):
        assert emulator_world.ledger.admit_run(KEY, source="schedule", now_ms=NOW_MS)
