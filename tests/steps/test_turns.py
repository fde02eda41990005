"""Ordered matches in the small world: in sequence whatever crashes, held by a dead job, and on after a word (I5)."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import pytest

from ops.simulator.faults import CrashAt, FaultHook, When
from ops.simulator.sluice_world import SimSluice
from ops.simulator.world import START_MS
from shared.domain.job import Flag, Job, NewJob, State
from shared.domain.settings import RetrySettings
from shared.errors import InvalidInput
from shared.kind import Chunk, ChunkContext
from shared.operate import jobs as operator_jobs
from shared.submit.validation import NewRow
from tests.worlds import CLASS, HOUR_MS, FunctionKind, jobs, settings

SIGNATURE = Flag(by="ada", why="looked at it", at_ms=START_MS)
POISON = RetrySettings(max_attempts=2, base_delay_s=1.0, max_delay_s=2.0)


def poisoned(*poison: str) -> FunctionKind:
    def chunk(job: Job, cursor: str, _context: ChunkContext) -> Chunk:
        if job.job_id in poison:
            raise ValueError(job.job_id)
        return Chunk(next_cursor="second" if not cursor else None, output={"job": job.job_id})

    return FunctionKind(chunk)


def ordered(*poison: str, crash: FaultHook | None = None, seed: int = 3, **changes: Any) -> SimSluice:
    return SimSluice(
        settings(ordered=True, live_window_s=3600, retry=POISON, **changes),
        seed,
        crash=crash,
        kinds={"sim": poisoned(*poison)},
    )


def assert_in_order(sluice: SimSluice) -> None:
    """Per match the first chunks start in the order of submission, and never behind a job that has not ended."""
    starts: defaultdict[str, list[int]] = defaultdict(list)
    for start in sluice.kinds[CLASS].starts:
        job = sluice.rows[start.job_id]
        starts[job.match_id].append(job.seq)
    assert all(seqs == sorted(seqs) for seqs in starts.values()), dict(starts)


def test_a_match_of_10_jobs_takes_one_tick_and_runs_in_sequence() -> None:
    sluice = ordered()
    sluice.submit(jobs(200, matches=20))
    assert sluice.drain(HOUR_MS)
    assert_in_order(sluice)
    assert (sluice.report().done, sluice.report().ticks) == (200, 1)
    assert sluice.report().max_in_flight == 20  # one of each match: a handover takes the finished one's place


@cache
def calls_of_a_clean_run() -> int:
    sluice = ordered()
    sluice.submit(jobs(6, matches=2))
    assert sluice.drain(HOUR_MS)
    return sluice.world.calls


@pytest.mark.parametrize("when", list(When))
def test_a_crash_at_every_port_call_keeps_the_order_and_loses_nothing(when: When) -> None:
    for call in range(1, calls_of_a_clean_run() + 1):
        sluice = ordered(crash=CrashAt(call, when))
        sluice.submit(jobs(6, matches=2))
        assert sluice.drain(HOUR_MS), f"crash {when} call {call} of seed 3 never drains"
        assert_in_order(sluice)
        report = sluice.report()
        assert (report.done, report.redone_chunks, report.over_budget_ticks) == (6, 0, 0), f"crash {when} call {call}"


def test_a_dead_job_holds_its_match_and_no_other() -> None:
    sluice = ordered("j2")
    sluice.submit(jobs(8, matches=2))  # j0 j2 j4 j6 are one match, j1 j3 j5 j7 the other
    sluice.run(10 * 60_000)
    states = {job_id: job.state for job_id, job in sluice.rows.items()}
    assert states["j2"] is State.DEAD
    assert [states[job_id] for job_id in ("j4", "j6")] == [State.BEHIND, State.BEHIND]
    assert [states[job_id] for job_id in ("j1", "j3", "j5", "j7")] == [State.DONE] * 4
    assert sluice.rows["j2"].attempts == 2  # exactly its attempts


def held() -> SimSluice:
    sluice = ordered("j2")
    sluice.submit(jobs(8, matches=2))
    sluice.run(10 * 60_000)
    return sluice


def test_after_a_skip_the_successors_go_on_in_order() -> None:
    sluice = held()
    sluice.command(
        "skip",
        lambda: operator_jobs.skip(sluice.ports, sluice.settings.classes[CLASS], "j2", signature=SIGNATURE, nonce="op"),
    )
    assert sluice.drain(HOUR_MS)
    assert sluice.rows["j2"].state is State.SKIPPED
    assert [sluice.rows[job_id].state for job_id in ("j4", "j6")] == [State.DONE] * 2
    assert_in_order(sluice)


def test_after_a_retry_of_a_mended_job_it_and_its_successors_go_on_in_order() -> None:
    sluice = held()
    sluice.kinds[CLASS]._kind = poisoned()
    sluice.command("retry", lambda: operator_jobs.retry(sluice.ports, "j2", signature=SIGNATURE, nonce="op"))
    assert sluice.drain(HOUR_MS)
    assert sluice.report().done == 8
    assert_in_order(sluice)


def test_a_replacement_runs_in_the_dead_ones_place() -> None:
    sluice = held()
    other = Job(job_id="j2b", job_class=CLASS, match_id=sluice.rows["j2"].match_id, payload="{}", due_ms=0, nonce="op")
    job_class = sluice.settings.classes[CLASS]
    sluice.command(
        "replace",
        lambda: operator_jobs.replace(
            sluice.ports, job_class, "j2", NewRow(job=other, body=None), signature=SIGNATURE, nonce="op"
        ),
    )
    assert sluice.drain(HOUR_MS)
    assert sluice.rows["j2"].state is State.REPLACED
    assert (sluice.rows["j2b"].seq, sluice.rows["j2b"].state) == (sluice.rows["j2"].seq, State.DONE)
    assert_in_order(sluice)


def test_a_skipped_job_cannot_be_retried() -> None:
    sluice = held()
    sluice.command(
        "skip",
        lambda: operator_jobs.skip(sluice.ports, sluice.settings.classes[CLASS], "j2", signature=SIGNATURE, nonce="op"),
    )
    with pytest.raises(InvalidInput, match="a job that is not dead"):
        sluice.command("retry", lambda: operator_jobs.retry(sluice.ports, "j2", signature=SIGNATURE, nonce="op"))


def test_a_match_of_1000_jobs_delays_no_other_match() -> None:
    sluice = ordered(max_inflight=100)
    long = [NewJob(job_id=f"long{n}", job_class=CLASS, match_id="long", payload="{}") for n in range(1000)]
    sluice.submit(long)
    sluice.submit(jobs(20, name="short"))
    sluice.run(2 * 60_000)
    assert all(sluice.rows[f"short{number}"].state is State.DONE for number in range(20))


def test_while_paused_a_finished_head_hands_nothing_over() -> None:
    sluice = ordered(declared_service_s=20.0)
    sluice.kinds[CLASS]._kind = FunctionKind(lambda job, cursor, context: _slow(sluice, job, cursor, context))
    sluice.submit(jobs(5, matches=1))
    sluice.run(65_000)
    sluice.pause(CLASS)
    admitted = [step for step in sluice.ledger.steps if step.name == "hand_over"]
    sluice.run(5 * 60_000)
    assert [step for step in sluice.ledger.steps if step.name == "hand_over"] == admitted
    sluice.resume(CLASS)
    assert sluice.drain(HOUR_MS)
    assert_in_order(sluice)


def _slow(sluice: SimSluice, job: Job, _cursor: str, _context: ChunkContext) -> Chunk:
    sluice.ports.clock.sleep(20)
    return Chunk(next_cursor=None, output={"job": job.job_id})
