"""A worker and its lease: stale messages, twins, zombies, continuations, batches, deletion, halt (I2, I4, rule 4)."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from ops.simulator.faults import Fail, FaultOn, Repeat, Stall, When
from ops.simulator.upstream import UpstreamTruth
from ops.simulator.world import START_MS
from shared.domain import stats
from shared.domain.job import Flag, Job, Output, State
from shared.errors import LedgerUnavailable, QueueUnavailable
from shared.kind import Chunk, ChunkContext
from shared.worker.message import Attempt
from tests.worlds import CLASS, HOUR_MS, Bench, FunctionKind, jobs, settings

MINUTE: dict[str, Any] = {"function_timeout_s": 60, "chunk_margin_s": 5.0, "declared_chunk_s": 20.0}
"""60 s of function, 2 s of lease margin, and a chunk needs 25 s: two chunks of 20 s fit (38 s and 18 s are left)."""


def bench(
    count: int = 1, *, matches: int | None = None, changes: dict[str, Any] | None = None, **options: Any
) -> Bench:
    """Jobs claimed and sent at 60 s, none received yet."""
    chunks = options.pop("chunks", 1)
    chunk_ms = options.pop("chunk_ms", 20_000)
    ticks = options.pop("ticks", False)  # only from the second minute on: the first tick is fired by hand
    sluice = Bench(settings(**(MINUTE | (changes or {}))), **options)
    sluice.submit(jobs(count, matches=matches, chunks=chunks, chunk_ms=chunk_ms))
    assert sluice.ticked(1, at_s=60).admitted == count
    sluice.schedules[CLASS].enabled = ticks
    return sluice


def starts(sluice: Bench) -> list[tuple[str, str]]:
    return [(start.job_id, start.cursor) for start in sluice.kinds[CLASS].starts]


# -- stale messages, twins, zombies


def test_a_stale_message_is_acknowledged_and_counted_and_changes_nothing() -> None:
    sluice = bench()
    message = sluice.receive()
    sluice.worked(message)
    done = sluice.rows["j0"]
    assert sluice.worked(message) == []
    assert sluice.rows["j0"] == done
    assert sluice.counters()[stats.STALE] == 1
    assert starts(sluice) == [("j0", "")]


@pytest.mark.parametrize("apart_ms", [0, 3, 1_000, 19_000, 21_000, 39_000])
def test_a_twin_delivery_commits_nothing_twice_and_forks_no_second_chain(apart_ms: int) -> None:
    """Fact F11: both invocations hold the same message. Whoever loses a commit stops."""
    sluice = bench(chunks=5, changes={"upstream": None})
    message = sluice.receive()
    first = sluice.work(message)
    sluice.run(apart_ms)
    sluice.ended(first, sluice.work(message))
    sluice.switch(True)
    assert sluice.drain(max_ms=HOUR_MS)
    committed = [step.before.cursor for step in sluice.ledger.steps if step.before.cursor != step.after.cursor]
    assert committed == ["", "1", "2", "3"]
    assert len(sluice.steps("finish")) == 1
    epochs = [step.after.epoch for step in sluice.steps("continue")]
    assert epochs == sorted(set(epochs))  # one chain: every epoch was entered once


def test_a_zombie_that_wakes_up_after_20_minutes_commits_nothing() -> None:
    """Fact F18: its host forgot it, the queue delivered again, and others went on with the job."""
    sluice = bench(chunks=3, chunk_ms=10_000, crash=FaultOn("kind.work", Stall(20 * 60_000), 1, When.AFTER))
    zombie = sluice.work(sluice.receive(), timeout_s=3600)
    sluice.switch(True)
    sluice.until(600)
    done = sluice.rows["j0"]
    assert done.state is State.DONE
    assert sluice.ended(zombie) == [[]]
    assert sluice.rows["j0"] == done
    assert sluice.counters()[stats.LOST_RACES] == 1
    assert sluice.ledger.outputs("j0")[0].body == '{"chunk":0}'


@pytest.mark.parametrize("nth", [1, 2, 3])  # a commit, a continuation, the finish
def test_a_workers_own_win_is_recognised_when_its_answer_was_lost(nth: int) -> None:
    """Fact F16: the SDK sends the write again, and its condition fails because the first attempt won."""
    sluice = bench(chunks=3, workers=True)
    calls = sum(call.point == "ledger.move" for call in sluice.world.trace)
    sluice.world.faults.append(FaultOn("ledger.move", Repeat(), calls + nth, When.AFTER))
    assert sluice.drain(max_ms=3 * 60_000)  # well before B: no sweep was needed
    assert sluice.moves() == ["claim", "commit", "continue", "finish"]
    assert starts(sluice) == [("j0", ""), ("j0", "1"), ("j0", "2")]
    assert sluice.counters()[stats.LOST_RACES] == 0


def test_a_redelivered_message_resumes_at_the_rows_cursor() -> None:
    sluice = bench(chunks=3, chunk_ms=5_000, crash=FaultOn("kind.work", Stall(90_000), 3), workers=True)
    assert sluice.drain(max_ms=HOUR_MS)
    assert starts(sluice) == [("j0", ""), ("j0", "1"), ("j0", "2"), ("j0", "2")]  # killed in the third chunk


# -- the clock


def test_a_job_longer_than_its_function_continues_in_hops() -> None:
    sluice = bench(chunks=7, workers=True)
    assert sluice.drain(max_ms=HOUR_MS)
    assert sluice.moves() == ["claim", *["commit", "continue"] * 3, "finish"]
    assert starts(sluice) == [("j0", str(number or "")) for number in range(7)]
    assert (sluice.rows["j0"].hop, sluice.rows["j0"].epoch) == (3, 4)
    assert all(one.ended_ms is not None and one.ended_ms - one.at_ms < 58_000 for one in sluice.world.invocations)


def test_after_max_hops_the_job_waits_for_a_tick_with_a_fresh_chain() -> None:
    sluice = bench(chunks=9, changes={"max_hops": 1}, ticks=True, workers=True)
    assert sluice.drain(max_ms=HOUR_MS)
    assert [name for name in sluice.moves() if name != "commit"] == [
        *["claim", "continue", "release"] * 2,
        "claim",
        "finish",
    ]
    assert [step.after.hop for step in sluice.steps("claim")] == [0, 0, 0]
    assert [step.after.last_error for step in sluice.steps("release")] == ["hop_cap"] * 2
    assert sluice.counters()[stats.HOP_CAPS] == 2
    assert sluice.rows["j0"].attempts == 0


def test_a_fresh_invocation_runs_its_first_chunk_even_if_the_p95_exceeds_the_timeout() -> None:
    sluice = bench(chunks=3, chunk_ms=1_000, changes={"declared_chunk_s": 900.0}, workers=True)
    assert sluice.drain(max_ms=HOUR_MS)
    assert sluice.moves() == ["claim", "continue", "continue", "finish"]  # one chunk an invocation


def test_a_message_late_in_a_batch_is_given_back_and_charged_no_hop() -> None:
    sluice = bench(3, matches=1, changes={"batch_size": 10}, chunk_ms=30_000, workers=True)
    assert sluice.drain(max_ms=HOUR_MS)
    assert sluice.moves().count("hand_back") == 3  # j1 and j2 in the first invocation, j2 in the second
    assert [job.hop for job in sluice.rows.values()] == [0, 0, 0]
    assert sorted(starts(sluice)) == [("j0", ""), ("j1", ""), ("j2", "")]


def test_a_chunk_that_turned_out_longer_than_declared_counts_for_the_next_decision() -> None:
    sluice = bench(chunks=2, chunk_ms=35_000, changes={"declared_chunk_s": 1.0}, workers=True)
    assert sluice.drain(max_ms=HOUR_MS)
    assert sluice.moves() == ["claim", "continue", "finish"]  # 23 s are left, and 35 s were seen
    assert len(starts(sluice)) == 2


# -- the lease on a redelivery


def test_a_redelivery_extends_its_visibility_first_and_does_nothing_if_that_fails() -> None:
    sluice = bench()
    sluice.receive()
    sluice.run(sluice.job_class.visibility_s * 1000)
    again = sluice.receive()
    assert again[0].receive_count == 2
    sluice.queue.refuse_extensions = True
    before = sluice.rows["j0"]
    assert sluice.worked(again) == [again[0].message_id]
    assert (sluice.rows["j0"], starts(sluice)) == (before, [])
    sluice.queue.refuse_extensions = False
    assert sluice.worked(again) == []
    assert sluice.rows["j0"].state is State.DONE


def test_a_lease_ends_before_the_visibility_also_when_the_invocation_began_late() -> None:
    """Received, then held up for 40 s before the function ran: what is left counts from the receive."""
    sluice = bench(chunks=3)
    message = sluice.receive()
    sluice.run(40_000)
    sluice.ended(sluice.work(message))
    assert sluice.moves() == ["claim", "continue"]  # of 70 s of visibility 28 s are left after the margin


# -- failed sends and an absent ledger


def test_a_continuation_that_could_not_be_sent_comes_back_stale_and_is_healed_by_the_sweep() -> None:
    sluice = bench(chunks=3)
    sluice.world.faults.append(FaultOn("queue.send_batch", Fail(QueueUnavailable()), None))
    (message,) = sluice.receive()
    assert sluice.worked([message]) == [message.message_id]
    assert sluice.moves() == ["claim", "commit", "continue"]
    sluice.world.faults.clear()
    sluice.schedules[CLASS].enabled = True
    sluice.switch(True)
    assert sluice.drain(max_ms=HOUR_MS)
    assert sluice.moves()[3:] == ["resend", "finish"]
    assert sluice.counters()[stats.STALE] == 1


@pytest.mark.parametrize("point", ["ledger.read_job", "ledger.read_control", "ledger.move"])
@pytest.mark.parametrize("when", list(When))
def test_an_absent_ledger_burns_nothing_and_the_message_comes_back(point: str, when: When) -> None:
    sluice = bench(workers=True)
    nth = 1 + sum(call.point == point for call in sluice.world.trace)
    sluice.world.faults.append(FaultOn(point, Fail(LedgerUnavailable()), nth, when))
    assert sluice.drain(max_ms=HOUR_MS)
    job = sluice.rows["j0"]
    assert (job.state, job.attempts, job.crashes) == (State.DONE, 0, 0)


def test_outages_of_the_ledger_are_no_proven_crashes() -> None:
    """A redelivery leaves its mark, cannot commit, and takes the mark back: three of those would be death."""
    sluice = bench(workers=True)
    away = FaultOn("kind.work", Fail(LedgerUnavailable()), None)
    sluice.world.faults.append(away)
    sluice.run(4 * 71_000)
    sluice.world.faults.clear()
    assert sluice.drain(max_ms=HOUR_MS)
    job = sluice.rows["j0"]
    assert sluice.moves().count("unmark") >= 3
    assert (job.state, job.crashes, job.attempts) == (State.DONE, 0, 0)


# -- batches


def test_a_failed_message_fails_the_later_messages_of_its_own_group_and_no_others() -> None:
    def chunk(job: Job, cursor: str, context: ChunkContext) -> Chunk:
        if job.job_id == group[1].message.job_id:
            raise LedgerUnavailable()
        return Chunk(next_cursor=None)

    sluice = bench(8, matches=2, kinds={"sim": FunctionKind(chunk)})
    deliveries = sluice.receive()
    group = [delivery for delivery in deliveries if delivery.group == deliveries[0].group]
    assert (len(deliveries), len(group)) == (8, 4)
    assert sluice.worked(deliveries) == [delivery.message_id for delivery in group[1:]]
    unfinished = {job_id for job_id, job in sluice.rows.items() if job.state is not State.DONE}
    assert unfinished == {delivery.message.job_id for delivery in group[1:]}


def test_a_short_jobs_match_is_free_while_a_long_neighbour_of_its_batch_still_runs() -> None:
    def chunk(job: Job, cursor: str, context: ChunkContext) -> Chunk:
        sluice.world.sleep(25_000 if job.match_id == long.group else 100)
        return Chunk(next_cursor=None)

    sluice = bench(4, matches=2, kinds={"sim": FunctionKind(chunk)})
    long, _, short = first = sluice.receive(3)  # both jobs of one match, and the first of the other
    worker = sluice.work(first)
    sluice.run(5_000)
    assert not worker.ended
    assert [delivery.group for delivery in sluice.receive()] == [short.group]
    sluice.ended(worker)


def test_groups_of_a_batch_run_in_parallel_and_a_group_in_order() -> None:
    sluice = bench(6, matches=3, chunk_ms=5_000)
    deliveries = sluice.receive()
    worker = sluice.work(deliveries)
    sluice.ended(worker)
    assert worker.ended_ms is not None
    assert worker.ended_ms - worker.at_ms < 11_000  # two in series, three at once
    order = [delivery.message.job_id for delivery in deliveries]  # a group's two stand one behind the other
    begun = [job_id for job_id, _ in starts(sluice)]
    assert [begun.index(one) < begun.index(two) for one, two in zip(order[::2], order[1::2], strict=True)] == [True] * 3


def test_halt_gives_jobs_back_at_the_next_chunk_and_burns_nothing() -> None:
    sluice = bench(chunks=2, chunk_ms=8_000, workers=True)
    sluice.run(1_000)
    sluice.ledger.set_halt(CLASS, Flag(by="operator", why="bad release", at_ms=START_MS))
    sluice.run(30_000)
    job = sluice.rows["j0"]
    assert sluice.moves() == ["claim", "commit", "release"]
    assert (job.state, job.cursor, job.last_error, job.attempts) == (State.WAITING, "1", "halted", 0)
    sluice.ledger.set_halt(CLASS, None)
    assert sluice.ticked(3, at_s=180).admitted == 1
    assert sluice.drain(max_ms=60_000)
    assert starts(sluice) == [("j0", ""), ("j0", "1")]


def test_calls_of_a_repeated_chunk_carry_the_same_idempotency_key() -> None:
    truths = {"inference": UpstreamTruth(limit_per_s=100.0)}
    sluice = Bench(settings(limit_per_s=10.0, **MINUTE), ticks=True, workers=True, truths=truths)
    sluice.submit(jobs(1, chunk_ms=1_000))
    sluice.world.faults.append(FaultOn("upstream.call", Stall(90_000), 1, When.AFTER))  # answered, and killed
    assert sluice.drain(max_ms=HOUR_MS)
    assert [call.key for call in sluice.upstream.calls] == ["j0::0", "j0::0"]
    assert dict(sluice.upstream.effects) == {"j0::0": 1}


# -- an attempt ends once: what comes after a commit makes no waste of it


class Counted:
    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        self.counters[name] += count


def attempt(tally: Counted, *, again: bool) -> Attempt:
    """Begun at 0 and looked at 700 ms later, with two answered calls."""
    times = iter([0, *[700] * 9])
    ports: Any = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: next(times)))
    context: Any = SimpleNamespace(answered_calls=2)
    counted: Any = tally
    return Attempt(ports, counted, context, again=again)


@pytest.mark.parametrize(("again", "wasted"), [(False, 0), (True, 2)])
def test_a_committed_chunk_is_no_waste_whatever_ends_the_message_after_it(again: bool, wasted: int) -> None:
    tally = Counted()
    one = attempt(tally, again=again)
    one.committed(Output(cursor="", body="{}"), last=False)
    one.wasted()  # no permit for the next chunk, a lost race, a ledger that does not answer
    assert +tally.counters == +Counter({stats.OUTPUTS: 1, stats.WASTED_CALLS: wasted})


def test_a_chunk_that_came_to_nothing_is_wasted_once() -> None:
    tally = Counted()
    one = attempt(tally, again=True)
    one.wasted()
    one.wasted()
    one.committed(None, last=True)
    assert tally.counters == {stats.WASTED_MS: 700, stats.WASTED_CALLS: 2}
