"""Control: pause and halt, what a tick remembers, and writes of it whose answers are lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from shared.aws.items import encode
from shared.aws.keys import Attribute
from shared.domain.control import HISTORY_TICKS, Control, RateOverride, SlotsOverride, Taken
from shared.errors import LedgerUnavailable
from shared.ports import Ledger
from tests.contract.runs import CLOSE, FLAG, KEY, NEXT, PLAN, RATE, STAGE, a_line, take
from tests.contract.worlds import CLASS, NOW_MS, AwsWorld

SLOTS = SlotsOverride(slots=6, flag=FLAG, before=20)

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


def test_a_resume_ends_both_in_one_write_and_is_signed(admitted: Ledger) -> None:
    admitted.set_pause(CLASS, FLAG)
    admitted.set_halt(CLASS, FLAG)
    before = admitted.read_control(CLASS)
    admitted.resume(CLASS, replace(FLAG, why="it answers again"))

    after = admitted.read_control(CLASS)
    assert (after.pause, after.halt, after.admits) == (None, None, True)
    assert (after.resumed, after.version) == (replace(FLAG, why="it answers again"), before.version + 1)


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


def test_an_operators_rate_changes_nothing_else_and_outlasts_pause_resume_and_ticks(admitted: Ledger) -> None:
    take(admitted)
    before = admitted.read_control(CLASS)
    admitted.set_rate(CLASS, RATE)
    assert replace(admitted.read_control(CLASS), version=before.version) == replace(before, rate=RATE)

    admitted.set_pause(CLASS, FLAG)
    admitted.resume(CLASS, FLAG)
    admitted.close_run(KEY, owner="one", close=CLOSE)
    assert admitted.read_control(CLASS).rate == RATE
    admitted.set_rate(CLASS, replace(RATE, until_ms=None))
    assert admitted.read_control(CLASS).rate == replace(RATE, until_ms=None)
    cleared = RateOverride(rate_per_s=None, flag=FLAG)
    admitted.set_rate(CLASS, cleared)
    assert admitted.read_control(CLASS).rate == cleared


def test_an_operators_slots_change_nothing_else_and_outlast_ticks(admitted: Ledger) -> None:
    take(admitted)
    before = admitted.read_control(CLASS)
    assert admitted.set_slots(CLASS, SLOTS, before=None)
    assert replace(admitted.read_control(CLASS), version=before.version) == replace(before, slots=SLOTS)

    admitted.set_pause(CLASS, FLAG)
    admitted.resume(CLASS, FLAG)
    admitted.close_run(KEY, owner="one", close=CLOSE)
    assert admitted.read_control(CLASS).slots == SLOTS
    verified = replace(SLOTS, verified_ms=NOW_MS)
    assert admitted.set_slots(CLASS, verified, before=SLOTS)
    assert admitted.set_slots(CLASS, verified, before=SLOTS), "our own, whose answer was lost"
    assert admitted.read_control(CLASS).slots == verified


def test_of_two_operators_who_set_slots_one_wins(ledger: Ledger) -> None:
    other = replace(SLOTS, slots=9)
    assert ledger.set_slots(CLASS, SLOTS, before=None)
    assert not ledger.set_slots(CLASS, other, before=None)
    assert ledger.set_slots(CLASS, other, before=SLOTS)
    assert not ledger.set_slots(CLASS, replace(SLOTS, slots=None), before=SLOTS)
    assert ledger.read_control(CLASS).slots == other


def test_a_close_stores_the_stage_and_a_later_one_drops_it(admitted: Ledger) -> None:
    take(admitted)
    admitted.close_run(KEY, owner="one", close=CLOSE)
    assert admitted.read_control(CLASS).stage == STAGE

    admitted.admit_run(NEXT, source="schedule", now_ms=NOW_MS)
    take(admitted, NEXT)
    admitted.close_run(NEXT, owner="one", close=replace(CLOSE, stage=None))
    assert admitted.read_control(CLASS).stage is None


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


def stored_bytes(attribute: Attribute) -> int:
    """As DynamoDB counts: names and text in UTF-8, numbers by half their digits, 3 bytes for each list and map."""
    ((tag, value),) = attribute.items()
    if tag == "M":
        return 3 + sum(len(name.encode()) + 1 + stored_bytes(inner) for name, inner in value.items())
    if tag == "L":
        return 3 + sum(1 + stored_bytes(inner) for inner in value)
    return len(value) // 2 + 2 if tag == "N" else 1 if tag in ("BOOL", "NULL") else len(value.encode())


def test_control_with_15_explained_ticks_of_the_longest_class_name_is_below_16_kb() -> None:
    """Every write of it is paid by its size, and every worker reads it."""
    name = "c" * 40
    line = replace(
        a_line(), run_id=f"{name}@2026-11-30T12:05Z", rate_per_s=1 / 3, rate_binding="upstream", facts="x" * 440
    )
    control = Control(job_class=name, pause=FLAG, halt=FLAG, resumed=FLAG, history=(line,) * HISTORY_TICKS)

    assert stored_bytes(encode(control)) < 16 * 1024


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
    with emulator_world.first_answer_lost("PutItem"):
        assert emulator_world.ledger.admit_run(KEY, source="schedule", now_ms=NOW_MS)
