"""The live allowance: granted with a close, spent with rows, ended by a tick or a pause, and never twice (I1, I10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from shared.aws.runtime import ThreadParallel
from shared.domain import ordering
from shared.domain.control import Admission, Allowance, Grant, RunState
from shared.domain.job import Created, Job, State
from shared.domain.ordering import MatchChanged, Stepped
from shared.errors import LedgerUnavailable
from shared.ports import Ledger
from shared.submit.submission import admitted_at_once
from tests.contract.jobs import a_job, inflight, nominee_of, shown
from tests.contract.runs import CLOSE, FLAG, KEY, NEXT, PLAN, a_line, take
from tests.contract.worlds import CLASS, NOW_MS, AwsWorld

GRANT = Grant.of(3, run_id=KEY.run_id, at_ms=NOW_MS, minute_ms=KEY.minute_ms, interval_s=60)
GRANTING = replace(CLOSE, grant=GRANT, history=(replace(a_line(), granted=3),))


@pytest.fixture
def granted(admitted: Ledger) -> Ledger:
    """A tick has closed and left three rows to submitters."""
    grant(admitted)
    return admitted


def grant(ledger: Ledger) -> None:
    take(ledger)
    ledger.plan_run(KEY, owner="one", plan=PLAN)
    assert ledger.close_run(KEY, owner="one", close=GRANTING)


def allowance(ledger: Ledger) -> Allowance:
    return ledger.read_allowance(CLASS)


def rows_of(ledger: Ledger, *job_ids: str, after_ms: int = 7_000) -> list[Job]:
    as_read = allowance(ledger)
    return [admitted_at_once(a_job(job_id, nonce="one"), as_read, now_ms=NOW_MS + after_ms) for job_id in job_ids]


def spend(ledger: Ledger, *job_ids: str, after_ms: int = 7_000) -> bool:
    return ledger.spend(allowance(ledger), rows_of(ledger, *job_ids, after_ms=after_ms))


def test_a_class_that_nobody_granted_anything_has_nothing(ledger: Ledger) -> None:
    assert allowance(ledger) == Allowance(job_class=CLASS)
    assert ledger.withdraw(CLASS) == Allowance(job_class=CLASS)


def test_a_close_grants_and_says_so(granted: Ledger) -> None:
    found = allowance(granted)
    assert (found.rows, found.granted, found.used, found.missed) == (3, 3, 0, 0)
    assert (found.run_id, found.granted_ms, found.hand_until_ms) == (KEY.run_id, NOW_MS, KEY.minute_ms + 60_000)
    assert granted.read_control(CLASS).history[-1].granted == 3


def test_rows_and_allowance_change_together(granted: Ledger) -> None:
    first, second = rows_of(granted, "first", "second")
    assert granted.spend(allowance(granted), [first, second])

    found = allowance(granted)
    assert (found.rows, found.granted, found.spent[:2], found.used) == (1, 3, (0, 2), 2)
    assert [granted.read_job(job_id) for job_id in ("first", "second")] == [first, second]
    assert (first.state, first.epoch, first.run_id) == (State.QUEUED, 1, KEY.run_id)
    assert shown(granted, inflight("first")) + shown(granted, inflight("second")) == list(
        map(nominee_of, (first, second))
    )


def test_more_than_is_left_is_not_spent_at_all(granted: Ledger) -> None:
    assert spend(granted, "a", "b")
    assert not spend(granted, "c", "d")
    assert (allowance(granted).rows, granted.read_job("c"), granted.read_job("d")) == (1, None, None)
    assert spend(granted, "c")
    assert not spend(granted, "d")


def test_an_id_that_exists_takes_nothing_and_admits_nobody(granted: Ledger) -> None:
    granted.create([a_job("there")])
    assert not spend(granted, "new", "there")
    assert not spend(granted, "there"), "it is not ours, although every id exists"
    assert (allowance(granted).rows, granted.read_job("new")) == (3, None)
    assert granted.read_job("there") == a_job("there")


def test_the_same_spending_twice_is_done_once(granted: Ledger) -> None:
    as_read, rows = allowance(granted), rows_of(granted, "a", "b")
    assert granted.spend(as_read, rows)
    assert granted.spend(as_read, rows)
    assert (allowance(granted).rows, allowance(granted).used) == (1, 2)
    assert granted.create([replace(a_job("a"), nonce="another")]) == [Created.EXISTING]


def test_what_a_tick_withdrew_is_not_spent_and_stays_on_record(granted: Ledger) -> None:
    as_read = allowance(granted)
    assert spend(granted, "a")
    for _ in range(2):
        found = granted.withdraw(CLASS)
        assert (found.rows, found.granted, found.used, found.unspent) == (0, 3, 1, 2)
    assert not granted.spend(as_read, rows_of(granted, "b"))
    assert granted.read_job("b") is None


def test_another_grant_is_not_the_one_that_was_read(granted: Ledger) -> None:
    as_read, rows = allowance(granted), rows_of(granted, "a")
    take(granted, NEXT)
    granted.plan_run(NEXT, owner="one", plan=PLAN)
    granted.close_run(NEXT, owner="one", close=replace(GRANTING, grant=replace(GRANT, run_id=NEXT.run_id)))
    assert not granted.spend(as_read, rows)
    assert allowance(granted).rows == 3


def test_a_plan_takes_the_record_away_but_for_what_was_missed_since(granted: Ledger) -> None:
    spend(granted, "a")
    granted.miss(CLASS, rows=4)
    take(granted, NEXT)
    found = granted.withdraw(CLASS)
    granted.miss(CLASS, rows=2)
    recent = (Admission(at_ms=NOW_MS, rows=1),)
    assert granted.plan_run(NEXT, owner="one", plan=replace(PLAN, recent=recent, missed=found.missed))

    assert (found.used, found.unspent, found.missed, found.arrived) == (1, 2, 4, 5)
    after = allowance(granted)
    assert (after.rows, after.granted, after.used, after.missed) == (0, 0, 0, 2)
    assert granted.read_control(CLASS).recent == recent


def test_a_plan_that_is_not_made_leaves_the_record(granted: Ledger) -> None:
    spend(granted, "a")
    take(granted, NEXT)
    assert not granted.plan_run(NEXT, owner="another", plan=PLAN)
    assert (allowance(granted).granted, allowance(granted).used) == (3, 1)


Stop = Callable[[Ledger], object]
STOPS: dict[str, Stop] = {
    "pause": lambda ledger: ledger.set_pause(CLASS, FLAG),
    "own pause": lambda ledger: ledger.pause_unless_paused(CLASS, FLAG),
    "halt": lambda ledger: ledger.set_halt(CLASS, FLAG),
}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
def test_a_pause_ends_the_allowance_and_a_resume_does_not_bring_it_back(granted: Ledger, stop: Stop) -> None:
    spend(granted, "a")
    stop(granted)
    assert not spend(granted, "b")
    granted.resume(CLASS, FLAG)
    granted.set_pause(CLASS, None)
    granted.set_halt(CLASS, None)
    assert not spend(granted, "b")
    assert (allowance(granted).rows, allowance(granted).unspent) == (0, 2)


def test_a_flag_that_is_lowered_takes_nothing_away(granted: Ledger) -> None:
    granted.set_pause(CLASS, None)
    granted.set_halt(CLASS, None)
    assert spend(granted, "a")


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
def test_a_tick_that_closes_after_a_pause_grants_nothing_and_does_not_say_that_it_did(
    admitted: Ledger, stop: Stop
) -> None:
    take(admitted)
    admitted.plan_run(KEY, owner="one", plan=PLAN)
    stop(admitted)
    assert admitted.close_run(KEY, owner="one", close=GRANTING)

    control, run = admitted.read_control(CLASS), admitted.read_run(KEY)
    assert allowance(admitted).rows == 0
    assert (control.lock_owner, control.history[-1].granted) == ("", 0)
    assert run is not None
    assert run.state is RunState.CLOSED


def test_our_own_pause_that_meets_an_operators_changes_nothing(granted: Ledger) -> None:
    granted.set_pause(CLASS, FLAG)
    assert not granted.pause_unless_paused(CLASS, replace(FLAG, by="sluice"))
    assert granted.read_control(CLASS).pause == FLAG


def test_a_tick_that_lost_its_lock_grants_nothing(admitted: Ledger) -> None:
    take(admitted)
    admitted.plan_run(KEY, owner="one", plan=PLAN)
    take(admitted, NEXT, owner="two", now_ms=NOW_MS + 50_000, until_ms=NOW_MS + 100_000)
    assert not admitted.close_run(KEY, owner="one", close=GRANTING)
    assert allowance(admitted).rows == 0


def test_a_close_that_is_repeated_grants_once(granted: Ledger) -> None:
    spend(granted, "a")
    assert granted.close_run(KEY, owner="one", close=GRANTING)
    assert (allowance(granted).rows, allowance(granted).used) == (2, 1)


# -- ordered matches


def test_the_head_of_an_empty_match_enters_claimed_with_the_decrement(granted: Ledger) -> None:
    as_read, (row,) = allowance(granted), rows_of(granted, "first")
    step = ordering.enter(granted.read_match(CLASS, row.match_id), row)
    for _ in range(2):
        assert granted.step_match(step, spends=as_read) == Stepped()
        assert (allowance(granted).rows, allowance(granted).used) == (2, 1)
    assert granted.read_job("first") == replace(row, seq=1)
    assert granted.read_match(CLASS, row.match_id).tail_seq == 1


def test_no_match_changes_where_too_little_is_left(granted: Ledger) -> None:
    as_read, (row,) = allowance(granted), rows_of(granted, "first")
    granted.withdraw(CLASS)
    step = ordering.enter(granted.read_match(CLASS, row.match_id), row)
    assert granted.step_match(step, spends=as_read) == MatchChanged()
    assert granted.read_job("first") is None
    assert granted.read_match(CLASS, row.match_id).empty


# -- AWS only


def test_a_spending_whose_answer_is_lost_is_unavailable_and_then_ours(aws: AwsWorld) -> None:
    aws.ledger.admit_run(KEY, source="schedule", now_ms=NOW_MS)
    grant(aws.ledger)
    as_read, rows = allowance(aws.ledger), rows_of(aws.ledger, "a", "b")
    with aws.answers_lost("transact_write_items"), pytest.raises(LedgerUnavailable):
        aws.ledger.spend(as_read, rows)
    assert aws.ledger.spend(as_read, rows)
    assert (allowance(aws.ledger).rows, allowance(aws.ledger).used) == (1, 2)


def test_a_grant_whose_answer_is_lost_is_granted_once(aws: AwsWorld) -> None:
    aws.ledger.admit_run(KEY, source="schedule", now_ms=NOW_MS)
    take(aws.ledger)
    aws.ledger.plan_run(KEY, owner="one", plan=PLAN)
    with aws.answers_lost("transact_write_items"), pytest.raises(LedgerUnavailable):
        aws.ledger.close_run(KEY, owner="one", close=GRANTING)
    assert spend(aws.ledger, "a")
    assert aws.ledger.close_run(KEY, owner="one", close=GRANTING)
    assert allowance(aws.ledger).rows == 2


def test_a_grant_that_slips_in_before_the_flag_ends_with_the_flag(
    aws: AwsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, update = aws.ledger, aws.table.update
    ledger.admit_run(KEY, source="schedule", now_ms=NOW_MS)
    take(ledger)
    ledger.plan_run(KEY, owner="one", plan=PLAN)

    def then_close(*request: Any, **options: Any) -> Any:
        monkeypatch.undo()
        answer = update(*request, **options)
        assert ledger.close_run(KEY, owner="one", close=GRANTING)
        return answer

    monkeypatch.setattr(aws.table, "update", then_close)
    ledger.set_pause(CLASS, FLAG)
    assert (allowance(ledger).granted, allowance(ledger).rows) == (3, 0)


@pytest.mark.e2e
def test_of_eight_submitters_at_a_time_as_many_spend_as_were_granted(emulator_world: AwsWorld) -> None:
    ledger = emulator_world.ledger
    ledger.admit_run(KEY, source="schedule", now_ms=NOW_MS)
    grant(ledger)
    as_read, rows = allowance(ledger), rows_of(ledger, *(f"job-{number}" for number in range(8)))

    spent = ThreadParallel(8).map(lambda row: ledger.spend(as_read, [row]), rows)

    found = allowance(ledger)
    assert spent.count(True) == found.used == 3 - found.rows <= 3
    assert [ledger.read_job(row.job_id) is not None for row in rows] == spent
