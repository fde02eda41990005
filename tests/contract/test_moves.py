"""Moves: fences, outputs, places in the index, and whose write it was that made a condition fail."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shared.domain import lifecycle, work_index
from shared.domain.job import Job, Output, StartMark, State
from shared.domain.lifecycle import Lost, Move, OutputTaken, RowFence, Won
from shared.domain.work_index import KeepPlace
from shared.errors import LedgerUnavailable
from shared.ports import Ledger
from tests.contract.jobs import a_job, claim_of, inflight, nominee_of, queued, shown, waiting, won
from tests.contract.worlds import CLASS, NOW_MS, AwsWorld

OUTPUT = Output(cursor="", body='{"summary": 1}')


def commits(job: Job, *, output: Output | None = None, nonce: str = "worker") -> Move:
    return lifecycle.commit(job, next_cursor="1", output=output, nonce=nonce)


def test_a_claim_returns_the_row_and_moves_it_in_the_index(ledger: Ledger) -> None:
    ledger.create([a_job()])
    job = won(ledger.move(claim_of(a_job())))

    assert (job.state, job.epoch, job.copy, job.nonce) == (State.QUEUED, 1, 0, "pacer")
    assert ledger.read_job("job-1") == job
    assert shown(ledger, waiting()) == []
    assert shown(ledger, inflight()) == [nominee_of(job)]


def test_only_one_of_two_claims_wins(ledger: Ledger) -> None:
    ledger.create([a_job()])

    assert isinstance(ledger.move(claim_of(a_job(), nonce="one")), Won)
    assert ledger.move(claim_of(a_job(), nonce="two")) == Lost()


def test_a_move_of_a_row_that_does_not_exist_is_lost(ledger: Ledger) -> None:
    assert ledger.move(claim_of(a_job())) == Lost()
    assert ledger.move(commits(a_job(state=State.QUEUED))) == Lost()
    assert ledger.move(commits(a_job(state=State.QUEUED), output=OUTPUT)) == Lost()
    assert ledger.read_job("job-1") is None


@pytest.mark.parametrize("stale", ({"epoch": 0}, {"epoch": 2}, {"cursor": "elsewhere"}))
@pytest.mark.parametrize("output", (None, OUTPUT))
def test_a_fence_that_does_not_hold_changes_nothing(
    ledger: Ledger, stale: dict[str, object], output: Output | None
) -> None:
    job = queued(ledger)
    as_read = replace(job, **stale)

    assert ledger.move(commits(as_read, output=output)) == Lost()
    assert ledger.read_job("job-1") == job
    assert ledger.outputs("job-1") == []


def test_a_row_in_another_state_is_lost(ledger: Ledger) -> None:
    job = queued(ledger)
    won(ledger.move(lifecycle.finish(job, output=None, nonce="worker")))

    assert ledger.move(commits(job)) == Lost()


def test_a_fence_without_a_cursor_ignores_it(ledger: Ledger) -> None:
    job = queued(ledger)
    fence = RowFence(state=State.QUEUED, epoch=job.epoch)
    move = Move(name="mark", job_id="job-1", fence=fence, changes={"hop": 3}, place=KeepPlace(), nonce="n")

    assert won(ledger.move(move)).hop == 3


def test_a_fence_with_a_copy_holds_for_that_copy_only(ledger: Ledger) -> None:
    job = queued(ledger)
    touched = won(ledger.move(lifecycle.resend(nominee_of(job), job_class=CLASS, now_ms=NOW_MS + 200_000)))

    def death(copy: int) -> Move:
        return lifecycle.transport_death(
            touched, copy=copy, eligible_ms=NOW_MS, now_ms=NOW_MS, max_deaths=5, nonce="dead"
        )

    assert ledger.move(death(0)) == Lost()
    assert won(ledger.move(death(1))).state is State.WAITING


# -- the index


def test_finishing_leaves_the_index(ledger: Ledger) -> None:
    job = queued(ledger)
    done = won(ledger.move(lifecycle.finish(job, output=OUTPUT, nonce="worker")))

    assert done.state is State.DONE
    assert shown(ledger, inflight()) == []
    assert ledger.outputs("job-1") == [OUTPUT]


def test_what_waits_again_stands_with_the_retried(ledger: Ledger) -> None:
    job = queued(ledger)
    back = won(ledger.move(lifecycle.fail(job, reason="job_failure", eligible_ms=NOW_MS + 60_000, nonce="worker")))

    assert shown(ledger, inflight()) == []
    assert shown(ledger, waiting(retried=True)) == [nominee_of(back)]
    assert ledger.read_job("job-1") == back


def test_the_dead_stand_apart(ledger: Ledger) -> None:
    job = queued(ledger)
    dead = won(ledger.move(lifecycle.die(job, reason="job_failure", now_ms=NOW_MS + 9, nonce="worker", attempts=5)))

    assert shown(ledger, work_index.dead_partition(CLASS)) == [nominee_of(dead)]


@pytest.mark.parametrize("output", (None, OUTPUT))
def test_a_touch_and_a_commit_do_not_undo_each_other(ledger: Ledger, output: Output | None) -> None:
    job = queued(ledger)
    touched = won(ledger.move(lifecycle.resend(nominee_of(job), job_class=CLASS, now_ms=NOW_MS + 200_000)))
    committed = won(ledger.move(commits(job, output=output)))  # by a worker that read the row before the touch
    again = won(ledger.move(lifecycle.resend(nominee_of(touched), job_class=CLASS, now_ms=NOW_MS + 500_000)))

    assert (touched.copy, touched.nonce) == (1, "pacer")
    assert committed == replace(touched, cursor="1", nonce="worker")
    assert again == replace(committed, copy=2, sent_at_ms=NOW_MS + 500_000)
    assert shown(ledger, inflight()) == [nominee_of(again)]


def test_a_mark_is_set_and_taken_back(ledger: Ledger) -> None:
    job = queued(ledger)
    marked = won(ledger.move(lifecycle.mark(job, copy=0, receives=2, nonce="worker", crashed=True)))
    unmarked = won(ledger.move(lifecycle.unmark(marked, nonce="worker")))

    assert (marked.mark, marked.crashes) == (StartMark(epoch=1, cursor="", copy=0, receives=2), 1)
    assert unmarked.mark is None
    assert ledger.read_job("job-1") == unmarked


# -- whose write it was (fact F16)


@pytest.mark.parametrize("output", (None, OUTPUT))
def test_the_same_move_twice_is_won_twice_and_made_once(ledger: Ledger, output: Output | None) -> None:
    job = queued(ledger)
    move = lifecycle.continue_later(job, next_cursor="1", output=output, now_ms=NOW_MS + 5000, nonce="worker")
    first = won(ledger.move(move))

    assert won(ledger.move(move)) == first
    assert ledger.read_job("job-1") == first
    assert len(ledger.outputs("job-1")) == (output is not None)


@pytest.mark.parametrize("output", (None, OUTPUT))
def test_a_twin_of_the_same_write_is_lost(ledger: Ledger, output: Output | None) -> None:
    job = queued(ledger)
    won(ledger.move(commits(job, output=output, nonce="one")))

    assert ledger.move(commits(job, output=output, nonce="two")) == Lost()


def test_our_nonce_on_another_write_of_ours_is_not_this_write(ledger: Ledger) -> None:
    job = queued(ledger)
    won(ledger.move(commits(job)))

    assert ledger.move(lifecycle.finish(job, output=None, nonce="worker")) == Lost()


def test_a_claim_that_someone_moved_on_is_not_ours_any_more(ledger: Ledger) -> None:
    job = queued(ledger)
    won(ledger.move(lifecycle.resend(nominee_of(job), job_class=CLASS, now_ms=NOW_MS + 200_000)))

    assert ledger.move(claim_of(a_job())) == Lost()


def test_a_touch_is_ours_by_what_it_wrote(ledger: Ledger) -> None:
    job = queued(ledger)
    touch = lifecycle.resend(nominee_of(job), job_class=CLASS, now_ms=NOW_MS + 200_000)
    touched = won(ledger.move(touch))

    assert won(ledger.move(touch)) == touched
    later = lifecycle.resend(nominee_of(job), job_class=CLASS, now_ms=NOW_MS + 200_001)
    assert ledger.move(later) == Lost()


# -- outputs


def test_an_output_that_exists_while_the_fence_holds_is_a_cycle(ledger: Ledger) -> None:
    job = won(ledger.move(commits(queued(ledger), output=OUTPUT)))
    back = won(ledger.move(lifecycle.commit(job, next_cursor="", output=None, nonce="worker")))

    again = lifecycle.commit(back, next_cursor="1", output=replace(OUTPUT, body="{}"), nonce="worker")

    assert ledger.move(again) == OutputTaken()
    assert ledger.move(commits(back, output=OUTPUT)) == OutputTaken()  # also with the same words as the first time
    assert ledger.read_job("job-1") == back
    assert ledger.outputs("job-1") == [OUTPUT]


# -- answers lost on the network


@pytest.mark.parametrize("output", (None, OUTPUT))
def test_a_move_whose_answer_is_lost_is_unavailable_and_then_ours(aws: AwsWorld, output: Output | None) -> None:
    job = queued(aws.ledger)
    move = commits(job, output=output)
    lost = "update_item" if output is None else "transact_write_items"
    with aws.answers_lost(lost), pytest.raises(LedgerUnavailable):
        aws.ledger.move(move)

    assert won(aws.ledger.move(move)).cursor == "1"


def test_a_move_that_the_sdk_repeats_is_won(aws: AwsWorld) -> None:
    job = queued(aws.ledger)
    with aws.first_answer_lost("UpdateItem"):
        assert won(aws.ledger.move(commits(job))).cursor == "1"


def test_a_transaction_that_the_sdk_repeats_is_won(aws: AwsWorld) -> None:
    job = queued(aws.ledger)
    with aws.first_answer_lost("TransactWriteItems"):
        assert won(aws.ledger.move(commits(job, output=OUTPUT))).cursor == "1"


def test_a_row_moved_on_after_our_transaction_is_lost_and_never_adopted(moto_world: AwsWorld) -> None:
    """Between the transaction and the read behind it another invocation takes the row to its own epoch."""
    job = queued(moto_world.ledger)
    read = moto_world.table.get

    def after_another(key: dict[str, dict[str, str]]) -> dict[str, dict[str, str]] | None:
        moto_world.table.get = read  # type: ignore[method-assign]
        now = moto_world.ledger.read_job("job-1")
        assert now is not None
        won(moto_world.ledger.move(lifecycle.hand_back(now, now_ms=NOW_MS + 9000, nonce="another")))
        return read(key)

    moto_world.table.get = after_another  # type: ignore[method-assign]

    assert moto_world.ledger.move(commits(job, output=OUTPUT)) == Lost()
    assert moto_world.ledger.outputs("job-1") == [OUTPUT]
