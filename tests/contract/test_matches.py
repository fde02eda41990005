"""Ordered matches: order, rows and outputs change together or not at all (I5)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shared.domain import lifecycle, ordering, work_index
from shared.domain.job import Job, Output, State
from shared.domain.lifecycle import Lost, OutputTaken
from shared.domain.ordering import Match, MatchChanged, MatchStep, Stepped, Turn
from shared.errors import LedgerUnavailable
from shared.ports import Ledger
from tests.contract.jobs import a_job, claim_of, nominee_of, shown, waiting, won
from tests.contract.runs import FLAG
from tests.contract.worlds import CLASS, NOW_MS, AwsWorld

MATCH_ID = a_job().match_id
TURN = Turn(admits=True, now_ms=NOW_MS + 5000, live_window_s=300)
OUTPUT = Output(cursor="", body='{"summary": 1}')


def order(ledger: Ledger) -> Match:
    return ledger.read_match(CLASS, MATCH_ID)


def enter(ledger: Ledger, job_id: str) -> Job:
    step = ordering.enter(order(ledger), a_job(job_id))
    assert ledger.step_match(step) == Stepped()
    assert step.enters is not None
    return step.enters


@pytest.fixture
def head(ledger: Ledger) -> Job:
    """A match of two, whose head is claimed and may hand its place on."""
    first = enter(ledger, "first")
    enter(ledger, "second")
    return won(ledger.move(replace(claim_of(first), changes={**claim_of(first).changes, "hand_until_ms": NOW_MS * 2})))


def passes_on(ledger: Ledger, head: Job, *, nonce: str = "worker", output: Output | None = None) -> MatchStep:
    end = lifecycle.finish(head, output=output, nonce=nonce)
    return ordering.pass_on(order(ledger), end, head, ledger.read_job("second"), TURN, nonce=nonce)


def test_a_match_that_nobody_entered_is_empty(ledger: Ledger) -> None:
    assert order(ledger) == Match(job_class=CLASS, match_id=MATCH_ID)
    assert ledger.job_id_at(order(ledger), 1) is None


def test_the_first_waits_and_the_next_stands_behind(ledger: Ledger) -> None:
    first, second = enter(ledger, "first"), enter(ledger, "second")

    assert (order(ledger).head_seq, order(ledger).tail_seq) == (1, 2)
    assert [ledger.job_id_at(order(ledger), seq) for seq in (1, 2, 3)] == ["first", "second", None]
    assert (ledger.read_job("first"), ledger.read_job("second")) == (first, second)
    assert (first.state, second.state) == (State.WAITING, State.BEHIND)
    assert shown(ledger, waiting("first")) == [nominee_of(first)]
    behind = work_index.behind_partition(CLASS, shard=work_index.shard_of("second"))
    assert shown(ledger, behind) == [nominee_of(second)]


def test_two_that_enter_at_a_time_do_not_take_one_place(ledger: Ledger) -> None:
    as_read = order(ledger)
    assert ledger.step_match(ordering.enter(as_read, a_job("first"))) == Stepped()

    assert ledger.step_match(ordering.enter(as_read, a_job("second"))) == MatchChanged()
    assert ledger.read_job("second") is None
    assert order(ledger).tail_seq == 1


def test_an_id_that_exists_does_not_enter_again(ledger: Ledger) -> None:
    enter(ledger, "first")

    assert ledger.step_match(ordering.enter(order(ledger), a_job("first", payload="{}"))) == MatchChanged()
    assert order(ledger).tail_seq == 1


def test_a_finished_head_hands_its_place_on(ledger: Ledger, head: Job) -> None:
    assert ledger.step_match(passes_on(ledger, head, output=OUTPUT)) == Stepped()

    first, second = ledger.read_job("first"), ledger.read_job("second")
    assert first is not None
    assert second is not None
    assert (first.state, second.state, second.epoch) == (State.DONE, State.QUEUED, 1)
    assert order(ledger).head_seq == 2
    assert ledger.outputs("first") == [OUTPUT]


def test_a_twin_that_ends_the_same_head_is_lost(ledger: Ledger, head: Job) -> None:
    as_read = passes_on(ledger, head, nonce="two", output=OUTPUT)
    ledger.step_match(passes_on(ledger, head, nonce="one", output=OUTPUT))
    after = ledger.read_job("second")

    assert ledger.step_match(as_read) == Lost()
    assert ledger.read_job("second") == after
    assert order(ledger).head_seq == 2


def test_a_match_that_grew_meanwhile_is_read_again(ledger: Ledger, head: Job) -> None:
    as_read = passes_on(ledger, head, output=OUTPUT)
    enter(ledger, "third")

    assert ledger.step_match(as_read) == MatchChanged()
    assert ledger.read_job("first") == head
    assert ledger.outputs("first") == []
    assert ledger.step_match(passes_on(ledger, head, output=OUTPUT)) == Stepped()


def test_an_output_that_exists_is_a_cycle_and_moves_nobody(ledger: Ledger, head: Job) -> None:
    once = won(ledger.move(lifecycle.commit(head, next_cursor="1", output=OUTPUT, nonce="worker")))
    back = won(ledger.move(lifecycle.commit(once, next_cursor="", output=None, nonce="worker")))

    assert ledger.step_match(passes_on(ledger, back, output=OUTPUT)) == OutputTaken()
    assert ledger.read_job("first") == back
    assert order(ledger).head_seq == 1


def test_a_replacement_takes_the_dead_ones_place(ledger: Ledger, head: Job) -> None:
    dead = won(ledger.move(lifecycle.die(head, reason="job_failure", now_ms=NOW_MS, nonce="worker")))
    step = ordering.replace_head(order(ledger), dead, a_job("other"), signature=FLAG, nonce="operator")

    assert ledger.step_match(step) == Stepped()
    assert ledger.job_id_at(order(ledger), 1) == "other"
    first, other = ledger.read_job("first"), ledger.read_job("other")
    assert first is not None
    assert other is not None
    assert (first.state, other.state, other.seq) == (State.REPLACED, State.WAITING, 1)
    assert first.changed == FLAG, "who replaced it, and why, stands on the row"


def test_the_same_step_twice_is_made_once(ledger: Ledger, head: Job) -> None:
    entering = ordering.enter(order(ledger), a_job("third"))
    ending = replace(passes_on(ledger, head, output=OUTPUT), before=entering.after)
    ending = replace(ending, after=replace(entering.after, head_seq=2))

    for step in (entering, ending):
        assert [ledger.step_match(step) for _ in range(2)] == [Stepped(), Stepped()]
    assert order(ledger) == ending.after


def test_a_step_whose_answer_is_lost_is_unavailable_and_then_ours(aws: AwsWorld) -> None:
    step = ordering.enter(order(aws.ledger), a_job("first"))
    with aws.answers_lost("transact_write_items"), pytest.raises(LedgerUnavailable):
        aws.ledger.step_match(step)

    assert aws.ledger.step_match(step) == Stepped()
    assert order(aws.ledger).tail_seq == 1
