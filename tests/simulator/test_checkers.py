"""Every checker is awake: it says nothing of a healthy run, and breaks at the first wrong thing that it is told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
from msgspec.structs import replace

from ops.simulator.checks.checker import HOOKS
from ops.simulator.checks.rows import Allowance, Attempts, NoRedoneWork, NothingLost, OneEffect, Order
from ops.simulator.checks.suite import CHECKERS, Suite
from ops.simulator.checks.ticks import Budget, HonestEta, Lanes, OneRun, Pause, Secrecy
from ops.simulator.kinds import ChunkStart
from ops.simulator.ports import LogLine, MetricSet
from ops.simulator.sluice_world import SimSluice
from ops.simulator.upstream import UpstreamCall
from ops.simulator.world import START_MS
from shared.domain import work_index
from shared.domain.control import RunKey, TickMemory
from shared.domain.job import Job, Lane, LaneCounts, NewJob, State
from shared.domain.messages import Message
from shared.domain.settings import ClassSettings, Settings, UpstreamSettings
from shared.memory.ledger import Row, Step
from shared.pacer.decide import Snapshot, plan_tick
from shared.pacer.tick import TickReport

CLASS: Final = "work"
KEY: Final = RunKey(job_class=CLASS, minute_ms=START_MS)


def world(**changes: Any) -> tuple[SimSluice, Suite]:
    settings = Settings(
        upstreams={"api": UpstreamSettings(name="api", endpoint="http://api", limit_per_s=5.0)},
        classes={CLASS: ClassSettings(name=CLASS, kind="sim", upstream="api", max_inflight=3, **changes)},
    )
    sluice = SimSluice(settings, seed=1)
    return sluice, Suite(sluice)


def row(state: State, **changes: Any) -> Job:
    job = Job(job_id="job-1", job_class=CLASS, match_id="match-1", payload="{}", due_ms=START_MS, eligible_ms=START_MS)
    return replace(job, state=state, **changes)


def step(name: str, before: Job, after: Job, sluice: SimSluice) -> Step:
    """The step, and the ledger as it would be after it."""
    place = work_index.inflight(after.job_id, CLASS, sent_at_ms=START_MS, epoch=after.epoch, copy=0)
    sluice.ledger.rows[after.job_id] = Row(after, place if after.state is State.QUEUED else None)
    return Step(START_MS, name, before, after)


def claimed(**changes: Any) -> Job:
    fields: dict[str, Any] = {
        "state": State.QUEUED,
        "epoch": 1,
        "run_id": KEY.run_id,
        "nonce": "tick-1",
        "lane": Lane.RECOVERY,
    }
    return row(**(fields | changes))


def planned(suite: Suite, budget: int, owner: str = "tick-1") -> None:
    for checker in (suite.of(Budget), suite.of(OneRun)):
        checker.planned(KEY, owner, TickMemory(budget=budget, carry=plan(0, 0).carry, planned_at_ms=START_MS))


def plan(live: int, recovery: int) -> Any:
    waiting = LaneCounts(live=live, recovery=recovery)
    snapshot = Snapshot(
        interval_s=60,
        lateness_s=15,
        live_share=0.5,
        max_inflight=1000,
        concurrency=10,
        service_s=1,
        upstream_rate_per_s=0.1,
        waiting=waiting,
    )
    return plan_tick(snapshot, START_MS)


# -- one way to break each of them


def over_budget(sluice: SimSluice, suite: Suite) -> None:
    planned(suite, budget=0)
    suite.of(Budget).stepped(step("claim", row(State.WAITING), claimed(), sluice))


def over_inflight(sluice: SimSluice, suite: Suite) -> None:
    for number in range(4):
        suite.of(Budget).created(row(State.QUEUED, job_id=f"job-{number}"))


def twice_committed(sluice: SimSluice, suite: Suite) -> None:
    for _ in range(2):
        suite.of(OneEffect).stepped(step("finish", claimed(), claimed(state=State.DONE), sluice))


def orphaned(sluice: SimSluice, suite: Suite) -> None:
    """A claim without a message, and nobody sweeps."""
    for schedule in sluice.schedules.values():
        schedule.enabled = False
    suite.of(NothingLost).stepped(step("claim", row(State.WAITING), claimed(), sluice))
    sluice.run(3_600_000)
    suite.of(NothingLost).event()


def gone_without_a_trace(sluice: SimSluice, suite: Suite) -> None:
    """The row is in flight, its message was deleted."""
    for schedule in sluice.schedules.values():
        schedule.enabled = False
    checker, message = suite.of(NothingLost), Message(job_id="job-1", job_class=CLASS, cursor="", epoch=1, copy=0)
    checker.stored(message)
    checker.stepped(step("claim", row(State.WAITING), claimed(), sluice))
    checker.gone(message)
    sluice.run(3_600_000)
    checker.event()


def left_over(sluice: SimSluice, suite: Suite) -> None:
    sluice.ledger.states[State.WAITING] += 1
    suite.of(NothingLost).ended()


def nowhere_in_the_index(sluice: SimSluice, suite: Suite) -> None:
    suite.of(NothingLost).stepped(step("release", claimed(), row(State.WAITING, epoch=1), sluice))


def begun_elsewhere(sluice: SimSluice, suite: Suite) -> None:
    suite.of(NoRedoneWork).has_read("w", claimed(cursor="3"))
    suite.of(NoRedoneWork).began("w", ChunkStart(START_MS, "job-1", "", 1))


def begun_after_its_end(sluice: SimSluice, suite: Suite) -> None:
    suite.of(NoRedoneWork).has_read("w", row(State.DONE))
    suite.of(NoRedoneWork).began("w", ChunkStart(START_MS, "job-1", "", 0))


def out_of_order(sluice: SimSluice, suite: Suite) -> None:
    checker, second = suite.of(Order), claimed(job_id="job-2", seq=2)
    for job in (row(State.WAITING, seq=1), second):
        checker.created(job)
    sluice.ledger.rows["job-2"] = Row(second, None)
    checker.began("w", ChunkStart(START_MS, "job-2", "", 1))


def planned_twice(sluice: SimSluice, suite: Suite) -> None:
    planned(suite, budget=5)
    planned(suite, budget=5, owner="tick-2")


def claimed_by_a_stranger(sluice: SimSluice, suite: Suite) -> None:
    planned(suite, budget=5)
    suite.of(OneRun).stepped(step("claim", row(State.WAITING), claimed(nonce="tick-2"), sluice))


def too_many_calls(sluice: SimSluice, suite: Suite) -> None:
    for _ in range(12):
        suite.of(Allowance).called(UpstreamCall(START_MS, "api", "key", 200))


def a_starved_lane(sluice: SimSluice, suite: Suite) -> None:
    both_wait = plan(100, 100)
    report = TickReport(run_id=KEY.run_id, outcome="closed", plan=replace(both_wait, live=0, recovery=6))
    suite.of(Lanes).ticked(report)


def unspent_rows(sluice: SimSluice, suite: Suite) -> None:
    report = TickReport(run_id=KEY.run_id, outcome="closed", plan=replace(plan(100, 100), live=1, recovery=0))
    suite.of(Lanes).ticked(report)


def old_work_in_the_live_lane(sluice: SimSluice, suite: Suite) -> None:
    old = row(State.WAITING, due_ms=0, eligible_ms=0)
    suite.of(Lanes).stepped(step("claim", old, claimed(lane=Lane.LIVE), sluice))


def burned_by_a_refusal(sluice: SimSluice, suite: Suite) -> None:
    after = row(State.WAITING, epoch=1, attempts=1, last_error="refused")
    suite.of(Attempts).stepped(step("fail", claimed(), after, sluice))


def admitted_while_paused(sluice: SimSluice, suite: Suite) -> None:
    suite.of(Pause).paused(CLASS)
    suite.findings.first.clear()
    suite.of(Pause).stepped(step("claim", row(State.WAITING), claimed(), sluice))


def paused_by_nobody(sluice: SimSluice, suite: Suite) -> None:
    suite.of(Pause).paused(CLASS)


def a_negative_eta(sluice: SimSluice, suite: Suite) -> None:
    sluice.metrics.sets.append(MetricSet(START_MS, CLASS, {"DrainEtaMinutes": -1.0}))
    suite.of(HonestEta).event()


def an_eta_that_will_not_come(sluice: SimSluice, suite: Suite) -> None:
    sluice.metrics.sets.append(MetricSet(START_MS, CLASS, {"DrainEtaMinutes": 5.0, "DrainStalled": 1.0}))
    suite.of(HonestEta).event()


def a_payload_in_the_log(sluice: SimSluice, suite: Suite) -> None:
    sluice.log.lines.append(LogLine(START_MS, "chunk_ended", {"reason": "bad value 'canary'"}))
    suite.of(Secrecy).event()


BREAKS: Final[list[tuple[str, Callable[[SimSluice, Suite], None]]]] = [
    ("I1", over_budget),
    ("I1", over_inflight),
    ("I2", twice_committed),
    ("I3", orphaned),
    ("I3", gone_without_a_trace),
    ("I3", left_over),
    ("I3", nowhere_in_the_index),
    ("I4", begun_elsewhere),
    ("I4", begun_after_its_end),
    ("I5", out_of_order),
    ("I6", planned_twice),
    ("I6", claimed_by_a_stranger),
    ("I7", too_many_calls),
    ("I8", a_starved_lane),
    ("I8", unspent_rows),
    ("I8", old_work_in_the_live_lane),
    ("I9", burned_by_a_refusal),
    ("I10", admitted_while_paused),
    ("I10", paused_by_nobody),
    ("I11", a_negative_eta),
    ("I11", an_eta_that_will_not_come),
    ("I12", a_payload_in_the_log),
]


@pytest.mark.parametrize(
    ("invariant", "breaks"), BREAKS, ids=[f"{invariant}-{how.__name__}" for invariant, how in BREAKS]
)
def test_a_checker_breaks_at_what_breaks_its_invariant(
    invariant: str, breaks: Callable[[SimSluice, Suite], None]
) -> None:
    sluice, suite = world(ordered=breaks is out_of_order)
    breaks(sluice, suite)
    assert [violation.invariant for violation in suite.findings.first][:1] == [invariant]


def test_every_invariant_has_its_checker_and_every_checker_its_break() -> None:
    invariants = [f"I{number}" for number in range(1, 13)]
    assert sorted(checker.invariant for checker in CHECKERS) == sorted(invariants)
    assert {invariant for invariant, _ in BREAKS} == set(invariants)


def test_a_healthy_run_breaks_nothing_and_tells_every_hook() -> None:
    told: set[str] = set()

    settings = world(batch_size=2)[0].settings
    sluice = SimSluice(settings, seed=2)
    suite = Suite(sluice)
    for hook, hears in suite._told.items():
        hears.append(partial(lambda name, *_: told.add(name), hook))
    sluice.submit([NewJob(job_id=f"job-{n}", job_class=CLASS, match_id=f"match-{n}", payload="{}") for n in range(9)])
    sluice.pause(CLASS)
    suite.paused(CLASS)
    suite.resumed(CLASS)
    sluice.resume(CLASS)
    assert sluice.drain(max_ms=3_600_000)
    suite.ended()
    assert [str(violation) for violation in suite.findings.first] == []
    assert told == set(HOOKS) - {"raised"}
