"""Small scenarios with faults and named checks: the healthy protocol passes them all, and every mutation fails one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from ops.simulator.faults import CrashOn, FaultOn, Repeat, Stall, When
from ops.simulator.upstream import UpstreamTruth
from ops.simulator.world import START_MS, Latency, Outcome
from shared.domain import stats
from shared.domain.job import Lane, State
from shared.memory.ledger import Staleness
from shared.memory.queue import EntryFault
from tests.worlds import CLASS, HOUR_MS, TWENTY_A_TICK, Bench, Watched, jobs, settings

LONG_JOBS: Final[dict[str, Any]] = {"function_timeout_s": 60, "chunk_margin_s": 5.0, "declared_chunk_s": 20.0}


def failed(**checks: bool) -> set[str]:
    """The names of the checks that do not hold."""
    return {name.replace("_", " ") for name, holds in checks.items() if not holds}


def clean_drain() -> set[str]:
    """Nothing goes wrong, and a write takes its time: every job is done within a minute of its claim."""
    slow = Latency(by_point={"ledger.move": 200})
    sluice = Bench(settings(), ticks=True, workers=True, latency=slow)
    sluice.submit(jobs(30, chunk_ms=300))
    drained = sluice.drain(max_ms=HOUR_MS)
    return failed(
        all_done=drained and sluice.report().done == 30,
        no_row_needed_the_sweep=not sluice.steps("resend"),
        no_message_was_stale=sluice.counters()[stats.STALE] == 0,
    )


def small_rate() -> set[str]:
    """0.3 rows a tick."""
    sluice = Bench(settings(slots=4, declared_service_s=800.0), workers=True)
    sluice.submit(jobs(10, chunk_ms=200))
    admitted = sum(sluice.ticked(minute, at_s=minute * 60).admitted for minute in range(1, 11))
    return failed(three_rows_in_ten_ticks=admitted == 3)


def one_lane() -> set[str]:
    """Only recovery rows wait."""
    sluice = Bench(settings(**TWENTY_A_TICK))
    sluice.submit(jobs(50, due_ms=START_MS - HOUR_MS))
    return failed(an_unused_share_is_lent=sluice.ticked(1, at_s=60).admitted == 20)


def rival_pacers() -> set[str]:
    """Two triggers of one minute, a little apart, with an index that is 3 s behind."""
    report = []
    for apart_ms in range(0, 120, 10):
        sluice = Bench(settings(max_inflight=5, **TWENTY_A_TICK), staleness=Staleness.fixed(3_000))
        sluice.submit(jobs(20))
        sluice.until(5)
        first = sluice.tick(at_s=6)
        sluice.ended(first, sluice.tick(at_s=6 + apart_ms / 1000))
        report.append(sluice.report())
    return failed(
        no_run_over_its_budget=all(one.over_budget_ticks == 0 for one in report),
        max_inflight_holds=all(one.max_in_flight <= 5 for one in report),
    )


def late_pacer() -> set[str]:
    """The tick of one minute ends a second before the next begins, with an index that is 4 s behind."""
    sluice = Bench(settings(max_inflight=10), staleness=Staleness.fixed(4_000))
    sluice.submit(jobs(60))  # 40 rows/s: the edge of one second alone would admit them
    sluice.until(50)
    sluice.ticked(0, at_s=59)
    sluice.ticked(1, at_s=60)
    return failed(max_inflight_holds=sluice.report().max_in_flight <= 10)


def spent_minute() -> set[str]:
    """A tick dies between its plan and its first claim."""
    crash = CrashOn("ledger.plan_run", 2, When.AFTER)
    sluice = Bench(settings(lateness_s=60.0, **TWENTY_A_TICK), crash=crash, workers=True)
    sluice.submit(jobs(100, chunk_ms=200))
    for minute in (1, 2, 3):
        sluice.ended(sluice.tick(minute, at_s=minute * 60))
    return failed(no_minute_is_earned_twice=sluice.claimed() == 40)


def dead_pacer() -> set[str]:
    """A pacer dies with claims that nobody has been told of."""
    sluice = Bench(settings(), crash=CrashOn("queue.send_batch", 1), ticks=True, workers=True)
    sluice.submit(jobs(5, chunk_ms=200))
    return failed(nothing_is_lost=sluice.drain(max_ms=HOUR_MS))


def vanished_message() -> set[str]:
    """A twin acknowledged the message, and the worker that had it as well is dead."""
    sluice = Bench(settings())
    sluice.submit(jobs(1, chunk_ms=1_000))
    sluice.ticked(1, at_s=60)
    for delivery in sluice.receive():
        sluice.queue.delete(delivery)
    sluice.switch(True)
    sluice.ticked(4, at_s=240)
    sluice.until(270)
    return failed(healed_within_b_and_a_tick=sluice.rows["j0"].state is State.DONE)


def failing_entries() -> set[str]:
    """The queue refuses each message once, and three messages for the whole tick."""
    tries: Counter[str] = Counter()

    def entry_fault(outgoing: Any) -> EntryFault | None:
        tries[outgoing.message.job_id] += 1
        hopeless = outgoing.message.job_id in ("j0", "j1", "j2")
        return EntryFault.FAILED if hopeless or tries[outgoing.message.job_id] == 1 else None

    sluice = Bench(settings(**TWENTY_A_TICK), entry_fault=entry_fault)
    sluice.submit(jobs(20))
    report = sluice.ticked(1, at_s=60)
    in_queue = len(sluice.queued(Lane.LIVE))
    return failed(
        confirmed_messages_are_in_the_queue=report.confirmed == in_queue,
        a_passing_failure_is_retried_in_the_tick=in_queue == 17,
    )


def lost_answers() -> set[str]:
    """Every write's answer is lost once, and the SDK sends it again."""
    sluice = Bench(
        settings(**LONG_JOBS), ticks=True, workers=True, crash=FaultOn("ledger.move", Repeat(), None, When.AFTER)
    )
    sluice.submit(jobs(3, chunks=3, chunk_ms=20_000))
    drained = sluice.drain(max_ms=HOUR_MS)
    return failed(
        all_done=drained and sluice.report().done == 3,
        no_row_needed_the_sweep=not sluice.steps("resend"),
        no_race_was_lost=sluice.counters()[stats.LOST_RACES] == 0,
    )


def touched_worker() -> set[str]:
    """The sweep comes by while a worker is in the middle of its chunk."""
    sluice = Bench(settings())
    sluice.submit(jobs(1, chunk_ms=60_000))
    sluice.ticked(1, at_s=60)
    sluice.until(200)
    worker = sluice.work(sluice.receive())
    sluice.ended(sluice.tick(3, at_s=220), worker)
    sluice.switch(True)
    sluice.drain(max_ms=HOUR_MS)
    return failed(
        all_done=sluice.rows["j0"].state is State.DONE, no_chunk_runs_twice=len(sluice.kinds[CLASS].starts) == 1
    )


def old_copy() -> set[str]:
    """A second copy of epoch 1 lies in the live queue while the job, refused once, runs from the recovery queue."""
    refuse_first = iter([429])
    truths = {"inference": UpstreamTruth(limit_per_s=1000.0, status=lambda *_: next(refuse_first, None))}
    sluice = Bench(settings(limit_per_s=10.0, live_window_s=200), truths=truths)
    sluice.submit(jobs(1, chunk_ms=30_000))
    sluice.ticked(1, at_s=60)
    sluice.ticked(4, at_s=240)
    sluice.worked(sluice.receive(1))
    sluice.ticked(5, at_s=330)
    running = sluice.work(sluice.receive(lane=Lane.RECOVERY))
    sluice.run(5_000)
    twin = sluice.work(sluice.receive())
    sluice.ended(running, twin)
    return failed(
        all_done=sluice.rows["j0"].state is State.DONE,
        one_worker_per_job=len(sluice.kinds[CLASS].starts) == 2,
        a_refusal_burns_no_attempt=sluice.rows["j0"].attempts == 0,
    )


def zombie_worker() -> set[str]:
    """A worker stands still in its first chunk for 20 minutes, and wakes up while its successor is two chunks on."""
    stall = FaultOn("kind.work", Stall(200_000), 1, When.AFTER)
    sluice = Bench(settings(**LONG_JOBS), crash=stall)
    sluice.submit(jobs(1, chunks=12, chunk_ms=20_000))
    sluice.ticked(1, at_s=60)
    zombie = sluice.work(sluice.receive(), timeout_s=3600)
    sluice.switch(True)
    sluice.drain(max_ms=HOUR_MS)
    sluice.ended(zombie)
    cursors = [int(step.after.cursor or 0) for step in sluice.ledger.steps]
    return failed(
        all_done=sluice.rows["j0"].state is State.DONE,
        no_cursor_moves_back=cursors == sorted(cursors),
        no_chunk_runs_after_its_commit=sluice.report().redone_chunks == 0,
    )


def long_jobs() -> set[str]:
    """Jobs of three invocations each."""
    sluice = Bench(settings(**LONG_JOBS), ticks=True, workers=True)
    sluice.submit(jobs(3, chunks=6, chunk_ms=20_000))
    drained = sluice.drain(max_ms=HOUR_MS)
    return failed(
        all_done=drained and sluice.report().done == 3,
        no_worker_is_killed=all(one.outcome is Outcome.RETURNED for one in sluice.world.invocations),
        no_chunk_runs_twice=len(sluice.kinds[CLASS].starts) == 18,
    )


def late_submitters() -> set[str]:
    """Submitters spend just before a tick, which the index does not show, and while it runs."""
    broken: list[str] = []
    for after_ms in range(0, 100, 10):
        sluice = Watched(settings(max_inflight=10, **TWENTY_A_TICK), staleness=Staleness.fixed(4_000))
        sluice.produce(jobs(4, name="first"))
        sluice.ticked(1, at_s=60)
        sluice.submit(jobs(40, name="old", due_ms=START_MS - HOUR_MS))
        sluice.until(118)
        sluice.produce(jobs(3, name="before"))
        tick = sluice.tick(2, at_s=120)
        sluice.until(120 + after_ms / 1000)
        sluice.ended(tick, sluice.producer(jobs(6, name="meanwhile")))
        broken += sluice.broken
    return failed(
        max_inflight_holds=not any("in flight" in sentence for sentence in broken),
        no_run_over_its_budget=not any("of a budget" in sentence for sentence in broken),
    )


def stopped_submitters() -> set[str]:
    """A class is paused with allowance left, and another before the close of the tick that would have granted some."""
    paused = Bench(settings(**TWENTY_A_TICK))
    closing = Bench(settings(**TWENTY_A_TICK), crash=FaultOn("ledger.close_run", Stall(20_000)))
    for sluice in (paused, closing):
        sluice.produce(jobs(4, name="first"))
        tick = sluice.tick(1, at_s=60)
        sluice.until(62)
        sluice.pause(CLASS)
        sluice.ended(tick)
        sluice.produce(jobs(2, name="late"))
    return failed(
        a_pause_ends_the_allowance=paused.rows["late0"].state is State.WAITING,
        nothing_is_granted_after_a_pause=closing.rows["late0"].state is State.WAITING,
    )


def dead_planner() -> set[str]:
    """A tick dies with a plan in which the unspent rows of the last allowance have come back."""
    sluice = Bench(settings(**TWENTY_A_TICK), crash=CrashOn("ledger.plan_run", 2, When.AFTER))
    sluice.produce(jobs(4, name="first"))
    sluice.ticked(1, at_s=60)
    sluice.ended(sluice.tick(2, at_s=120))
    report = sluice.ticked(4, at_s=240)
    return failed(unspent_rows_come_back_once=report.plan is not None and report.plan.snapshot.returned == 0)


SCENARIOS: Final[Mapping[str, Callable[[], set[str]]]] = {
    scenario.__name__: scenario
    for scenario in (
        clean_drain,
        small_rate,
        one_lane,
        rival_pacers,
        late_pacer,
        spent_minute,
        dead_pacer,
        vanished_message,
        failing_entries,
        lost_answers,
        touched_worker,
        old_copy,
        zombie_worker,
        long_jobs,
        late_submitters,
        stopped_submitters,
        dead_planner,
    )
}
