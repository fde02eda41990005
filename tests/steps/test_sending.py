"""Every entry of every batch is accounted for: tried again under the same id, counted if confirmed, else healed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from ops.simulator.faults import Fail, FaultHook, FaultOn, When
from shared.domain.job import Lane, NewJob, State
from shared.domain.messages import Outgoing
from shared.errors import QueueUnavailable
from shared.memory.queue import EntryFault, EntryFaultHook
from tests.worlds import CLASS, TWENTY_A_TICK, Bench, jobs, settings


def first_tries(fault: EntryFault, *, tries: int, of: Callable[[str], bool] = lambda _: True) -> EntryFaultHook:
    """This fault for the first `tries` sends of each chosen job; the entry's dedup id must be the same every time."""
    seen: dict[str, list[str]] = {}

    def hook(outgoing: Outgoing) -> EntryFault | None:
        ids = seen.setdefault(outgoing.message.job_id, [])
        ids.append(outgoing.message.dedup_id)
        assert len(set(ids)) == 1 or outgoing.message.copy > 0, "a retry under another dedup id is a second message"
        return fault if of(outgoing.message.job_id) and len(ids) <= tries else None

    return hook


def bench(*, workers: bool = False, crash: FaultHook | None = None, entry_fault: EntryFaultHook | None = None) -> Bench:
    sluice = Bench(settings(**TWENTY_A_TICK), crash=crash, entry_fault=entry_fault, workers=workers)
    sluice.submit(jobs(20, chunk_ms=200))
    return sluice


@pytest.mark.parametrize("fault", list(EntryFault))
@pytest.mark.parametrize("tries", [1, 2])
def test_an_entry_that_was_not_confirmed_is_sent_again_in_the_same_tick(fault: EntryFault, tries: int) -> None:
    sluice = bench(entry_fault=first_tries(fault, tries=tries))
    report = sluice.ticked(1, at_s=60)
    assert (report.admitted, report.confirmed) == (20, 20)
    assert Counter(sluice.queued(Lane.LIVE)) == {f"j{number}": 1 for number in range(20)}


@pytest.mark.parametrize("when", list(When))  # after: all ten had been accepted, and nobody said so
def test_a_batch_without_an_answer_is_sent_again_and_the_queue_drops_the_repeats(when: When) -> None:
    sluice = bench(crash=FaultOn("queue.send_batch", Fail(QueueUnavailable()), 1, when))
    assert sluice.ticked(1, at_s=60).confirmed == 20
    assert Counter(sluice.queued(Lane.LIVE)) == {f"j{number}": 1 for number in range(20)}


@pytest.mark.parametrize("fault", list(EntryFault))
def test_only_confirmed_messages_are_counted_and_the_others_are_healed_by_the_sweep(fault: EntryFault) -> None:
    seven = {f"j{number}" for number in range(7)}
    sluice = bench(entry_fault=first_tries(fault, tries=3, of=seven.__contains__), workers=True)
    report = sluice.ticked(1, at_s=60)
    assert (report.admitted, report.confirmed) == (20, 13)
    values = sluice.metrics.sets[-1].values
    assert (values["AdmittedRows"], values["ConfirmedMessages"]) == (20, 13)
    sluice.until(100)
    lost = seven if fault is not EntryFault.UNKNOWN_SENT else set()
    assert {job_id for job_id, job in sluice.rows.items() if job.state is State.QUEUED} == lost
    assert sluice.ticked(2, at_s=60 + 151).swept == len(lost)
    sluice.until(260)
    assert {job.state for job in sluice.rows.values()} == {State.DONE}


def test_a_queue_that_is_away_for_the_whole_tick_leaves_everything_to_the_sweep() -> None:
    away = FaultOn("queue.send_batch", Fail(QueueUnavailable()), nth=None)
    sluice = bench(crash=away, workers=True)
    report = sluice.ticked(1, at_s=60)
    assert (report.outcome, report.admitted, report.confirmed) == ("closed", 20, 0)
    assert sluice.metrics.sets[-1].values["ConfirmedMessages"] == 0
    sluice.world.faults.clear()
    assert sluice.ticked(4, at_s=240).swept == 20
    sluice.until(300)
    assert {job.state for job in sluice.rows.values()} == {State.DONE}
    assert sluice.errors == []


def test_matches_that_sqs_would_refuse_work_and_near_twins_stay_distinct() -> None:
    name = "Köln vs. 1. FC – Halbfinale 2026/27 (Rückspiel)"
    matches = [name, name + " ", name.replace("ö", "o\u0308"), "x" * 1000, "x" * 1001]
    sluice = Bench(settings(**TWENTY_A_TICK))
    sluice.submit([NewJob(job_id=m, job_class=CLASS, match_id=m, payload="{}") for m in matches])
    assert sluice.ticked(1, at_s=60).confirmed == 5
    assert len({delivery.group for delivery in sluice.receive()}) == 5
