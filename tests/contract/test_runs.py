"""Runs and the class lock (rule 5)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shared.domain.control import Busy, Carry, Control, Ended, Run, RunKey, RunState, Taken
from shared.ports import Ledger
from tests.contract.runs import CLOSE, FLAG, KEY, MEASURES, NEXT, PLAN, UNTIL_MS, take
from tests.contract.worlds import CLASS, NOW_MS

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
    assert (control.recent, control.history, control.measures) == (CLOSE.recent, CLOSE.history, MEASURES)
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


def test_a_run_that_could_do_nothing_closes_as_skipped_with_its_reason(admitted: Ledger) -> None:
    take(admitted)
    assert admitted.close_run(KEY, owner="one", close=replace(CLOSE, skipped="paused"))
    assert admitted.close_run(KEY, owner="one", close=replace(CLOSE, skipped="paused"))  # its answer was lost
    run = admitted.read_run(KEY)
    assert run is not None
    assert (run.state, run.reason, run.owner) == (RunState.SKIPPED, "paused", "one")
    assert take(admitted, owner="two") == Ended()


# -- open runs, repairs, the webhook's switch


def test_the_open_runs_of_some_minutes_come_oldest_first(admitted: Ledger) -> None:
    minutes = [NOW_MS + number * 60_000 for number in range(-200, 5)]  # more than one batch of keys
    late = RunKey.of(CLASS, NOW_MS + 2 * 60_000)
    assert admitted.admit_run(late, source="webhook", now_ms=NOW_MS)
    assert admitted.admit_run(RunKey.of("thumbnail", NOW_MS), source="webhook", now_ms=NOW_MS)
    take(admitted)  # owned, and nobody knows whether by the living
    assert admitted.skip_run(NEXT, reason="overlap")
    found = admitted.open_runs(CLASS, minutes_ms=minutes)
    assert [(run.key, run.source, run.owner) for run in found] == [(KEY, "schedule", "one"), (late, "webhook", "")]
    assert admitted.open_runs(CLASS, minutes_ms=[]) == []


def test_a_repair_stands_beside_the_run_of_its_minute(ledger: Ledger) -> None:
    repair = replace(KEY, repair=True)
    assert ledger.admit_run(repair, source="schedule", now_ms=NOW_MS)
    assert ledger.open_runs(CLASS, minutes_ms=[KEY.minute_ms]) == []
    assert ledger.admit_run(KEY, source="webhook", now_ms=NOW_MS)
    assert take(ledger, repair) == Taken(planned=False)
    assert take(ledger, owner="two") == Busy(run_id=repair.run_id)
    assert ledger.close_run(repair, owner="one", close=CLOSE)
    assert take(ledger, owner="two") == Taken(planned=False)


def test_the_webhooks_switch_says_who_closed_it_and_who_opened_it(admitted: Ledger) -> None:
    before = admitted.read_control(CLASS)
    admitted.switch_webhook(CLASS, FLAG, closed=True)
    closed = admitted.read_control(CLASS)
    assert replace(closed, version=before.version) == replace(before, webhook_closed=True, webhook_switched=FLAG)
    admitted.switch_webhook(CLASS, replace(FLAG, why="rotated"), closed=False)
    opened = admitted.read_control(CLASS)
    assert (opened.webhook_closed, opened.webhook_switched) == (False, replace(FLAG, why="rotated"))
