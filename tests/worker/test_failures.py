"""How a chunk ends that does not succeed, and what it costs: only a failure of the job's own code an attempt (I9)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from ops.simulator.faults import Die, FaultOn
from ops.simulator.upstream import UpstreamTruth
from ops.simulator.world import START_MS
from shared.domain import stats
from shared.domain.job import Flag, Job, State
from shared.domain.settings import Consequence, RetrySettings, Settings, UpstreamSettings
from shared.errors import ObjectMissing, Refused
from shared.kind import Chunk, ChunkContext
from tests.worlds import CLASS, HOUR_MS, Bench, FunctionKind, jobs, settings

FLAG_BY_ANNA = Flag(by="anna", why="maintenance", at_ms=START_MS)
QUICK = RetrySettings(max_attempts=3, base_delay_s=30.0)


def upstream_world(status: Callable[[str, int], int | None], *, count: int = 1, **changes: Any) -> Bench:
    """The upstream answers as `status` says, where it says anything; 402 means that the quota is used up."""
    made = settings(limit_per_s=10.0, retry=QUICK, **changes)
    errors = {429: Consequence.REFUSE, 503: Consequence.HOLD, 402: Consequence.EXHAUSTED}
    upstream = UpstreamSettings(name="inference", endpoint="http://upstream", limit_per_s=10.0, errors=errors)
    truths = {"inference": UpstreamTruth(limit_per_s=1000.0, status=status)}
    world = Settings(upstreams={"inference": upstream}, classes=made.classes)
    sluice = Bench(world, ticks=True, workers=True, truths=truths)
    sluice.submit(jobs(count, chunk_ms=100))
    return sluice


def until_s(second: float, status: int) -> Callable[[str, int], int | None]:
    return lambda _, now_ms: status if now_ms < START_MS + second * 1000 else None


@pytest.mark.parametrize(
    ("status", "counter", "reason"),
    [
        (429, stats.REFUSALS, "refused"),
        (503, stats.HOLDS, "held"),
        (500, stats.OUTAGES, "upstream_failed"),
        (504, stats.OUTAGES, "upstream_failed"),
    ],
)
def test_what_the_upstream_could_not_do_burns_no_attempt_however_often(status: int, counter: str, reason: str) -> None:
    sluice = upstream_world(until_s(15 * 60, status), count=3)
    sluice.until(14 * 60)
    assert {job.last_error for job in sluice.rows.values()} == {reason}
    assert sluice.drain(max_ms=HOUR_MS)
    assert sluice.counters()[counter] >= 3 * 10  # far more than three attempts would allow
    assert {(job.state, job.attempts, job.crashes) for job in sluice.rows.values()} == {(State.DONE, 0, 0)}


def test_a_refusal_holds_the_shared_permits_until_retry_after() -> None:
    """One of 20 workers hears 30 s; nobody calls before that, and the limit costs a handful of refusals."""
    refused_ms: list[int] = []

    def chunk(job: Job, cursor: str, context: ChunkContext) -> Chunk:
        context.call_upstream({})
        if not refused_ms:
            refused_ms.append(sluice.world.now_ms)
            raise Refused(30.0)
        return Chunk(next_cursor=None)

    sluice = Bench(
        settings(limit_per_s=2.0), ticks=True, workers=True, kinds={"sim": FunctionKind(chunk, calls_per_chunk=1)}
    )
    sluice.submit(jobs(40))
    assert sluice.drain(max_ms=HOUR_MS)
    late = [call.at_ms - refused_ms[0] for call in sluice.upstream.calls if call.at_ms > refused_ms[0]]
    reserved_before = 20  # the workers that had their permits already
    assert sum(ms < 30_000 for ms in late) <= reserved_before
    assert all(after - before >= 499 for before, after in pairwise([ms for ms in late if ms >= 30_000]))
    assert {job.attempts for job in sluice.rows.values()} == {0}


def test_no_permit_before_the_deadline_sends_the_job_back_until_one_is_free() -> None:
    made = settings(limit_per_s=0.05, function_timeout_s=60, declared_service_s=0.1)
    sluice = Bench(made, ticks=True, workers=True, truths={"inference": UpstreamTruth(limit_per_s=1000.0)})
    sluice.submit(jobs(8, chunk_ms=100))
    sluice.limiter.hold(sluice.settings.upstreams["inference"], until_ms=START_MS + 300_000)
    assert sluice.drain(max_ms=HOUR_MS)
    assert sluice.counters()[stats.NO_PERMIT] > 0
    assert sluice.upstream.calls[0].at_ms >= START_MS + 300_000
    assert {(job.state, job.attempts) for job in sluice.rows.values()} == {(State.DONE, 0)}
    assert sluice.limiter.reserved == {"inference": 8}  # not one permit was wasted


def test_a_rejection_is_the_jobs_own_failure_and_burns_its_attempts_with_growing_delays_until_it_dies() -> None:
    sluice = upstream_world(lambda *_: 400)
    assert sluice.drain(max_ms=HOUR_MS)
    assert [name for name in sluice.moves() if name != "claim"] == ["fail", "fail", "die"]
    assert [step.after.attempts for step in sluice.ledger.steps if step.name in ("fail", "die")] == [1, 2, 3]
    waits_s = [(step.after.eligible_ms - step.at_ms) / 1000 for step in sluice.steps("fail")]
    assert 29.9 <= waits_s[0] <= 45
    assert 59.9 <= waits_s[1] <= 90
    job = sluice.rows["j0"]
    assert (job.state, job.last_error, len(sluice.upstream.calls)) == (State.DEAD, "upstream_rejected", 3)
    sluice.run(120_000)
    assert sluice.metrics.sets[-1].values["DeadRows"] == 1


def test_an_exhausted_quota_pauses_the_class_once_and_burns_nothing() -> None:
    sluice = upstream_world(until_s(600, 402), count=30)
    sluice.until(500)
    flag = sluice.control.pause
    assert flag is not None
    assert (flag.by, "quota" in flag.why) == ("sluice", True)
    assert sum(line.admitted for line in sluice.history) == 30
    assert {(job.state, job.attempts) for job in sluice.rows.values()} == {(State.WAITING, 0)}
    sluice.until(601)
    sluice.resume(CLASS)
    assert sluice.drain(max_ms=HOUR_MS)
    assert {job.state for job in sluice.rows.values()} == {State.DONE}


def test_a_pause_by_a_person_is_not_overwritten_by_an_exhausted_quota() -> None:
    sluice = upstream_world(lambda *_: 402, count=3)
    sluice.world.at(START_MS + 60_050, lambda: sluice.ledger.set_pause(CLASS, FLAG_BY_ANNA))
    sluice.until(200)
    assert sluice.control.pause == FLAG_BY_ANNA


def circle(job: Job, cursor: str, context: ChunkContext) -> Chunk:
    return Chunk(next_cursor={"": "a", "a": "b", "b": "a"}[cursor], output=cursor)


def missing(job: Job, cursor: str, context: ChunkContext) -> Chunk:
    raise ObjectMissing()


def broken(job: Job, cursor: str, context: ChunkContext) -> Chunk:
    raise KeyError("a patient's name")


@pytest.mark.parametrize(
    ("chunk", "reason"),
    [
        (lambda *_: Chunk(next_cursor=""), "no_progress"),  # the cursor it was given
        (circle, "no_progress"),  # back to a cursor that it had committed
        (lambda *_: Chunk(next_cursor=None, output={1, 2}), "bad_chunk"),
        (lambda *_: Chunk(next_cursor=None, output=float("nan")), "bad_chunk"),
        (lambda *_: Chunk(next_cursor=None, output="x" * 300_000), "bad_chunk"),
        (lambda *_: Chunk(next_cursor=None, output="\ud800"), "bad_chunk"),
        (lambda *_: Chunk(next_cursor="x" * 1001), "bad_chunk"),
        (lambda *_: Chunk(next_cursor="\ud800"), "bad_chunk"),
        (lambda *_: Chunk(next_cursor=7), "bad_chunk"),  # type: ignore[arg-type]
        (lambda *_: None, "bad_chunk"),  # no chunk at all
        (missing, "object_missing"),
        (broken, "KeyError"),  # the type's name, never its text (I12)
    ],
)
def test_what_a_kind_does_wrong_is_a_named_failure_of_its_job_alone(chunk: Any, reason: str) -> None:
    def one_bad(job: Job, cursor: str, context: ChunkContext) -> Any:
        return chunk(job, cursor, context) if job.job_id == "j0" else Chunk(next_cursor=None)

    sluice = Bench(settings(retry=QUICK, batch_size=10), ticks=True, workers=True, kinds={"sim": FunctionKind(one_bad)})
    sluice.submit(jobs(5, matches=1))
    assert sluice.drain(max_ms=HOUR_MS)
    job = sluice.rows["j0"]
    assert (job.state, job.attempts, job.last_error) == (State.DEAD, 3, reason)
    assert [sluice.rows[f"j{number}"].state for number in range(1, 5)] == [State.DONE] * 4
    assert sluice.errors == []
    assert all("patient" not in str(line.fields) for line in sluice.log.lines)


@pytest.mark.parametrize("matches", [5, 1])
def test_a_job_that_kills_its_process_dies_by_the_crash_bound_and_its_neighbours_do_not(matches: int) -> None:
    def chunk(job: Job, cursor: str, context: ChunkContext) -> Chunk:
        if job.job_id == "j2":
            sluice.world.call("poison", lambda: None)
        sluice.world.sleep(200)
        return Chunk(next_cursor=None)

    sluice = Bench(
        settings(batch_size=10, function_timeout_s=20, chunk_margin_s=2.0),
        ticks=True,
        workers=True,
        kinds={"sim": FunctionKind(chunk)},
        crash=FaultOn("poison", Die(), None),
    )
    sluice.submit(jobs(5, matches=matches))
    assert sluice.drain(max_ms=HOUR_MS)
    job = sluice.rows["j2"]
    assert (job.state, job.last_error, job.attempts) == (State.DEAD, "crash", 0)
    assert [sluice.rows[f"j{number}"].state for number in (0, 1, 3, 4)] == [State.DONE] * 4
    assert all(sluice.rows[f"j{number}"].crashes == 0 for number in (0, 1, 3, 4))
    assert len(sluice.queue.dead_letters(CLASS)) == 0  # the row judged it before the queue did
