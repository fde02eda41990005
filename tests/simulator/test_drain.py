"""The main job in the virtual world: it drains, and a crash at any port call changes nothing that was promised."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from ops.simulator.faults import CrashAt, CrashOn, FaultHook, When
from ops.simulator.result import Report
from ops.simulator.sluice_world import SimSluice
from shared.domain.job import State
from tests.worlds import CLASS, HOUR_MS, jobs, settings


def assert_kept(report: Report, *, jobs: int) -> None:
    """Everything that was promised of a drain without poison: I1, I2, I3, I4 and I9's "nothing dies of a crash"."""
    assert (report.jobs, report.done, report.dead, report.open) == (jobs, jobs, 0, 0)
    assert (report.duplicate_effects, report.redone_chunks, report.over_budget_ticks) == (0, 0, 0)


@pytest.mark.parametrize(
    "crash",
    [
        None,
        CrashOn("ledger.move", 40, When.AFTER),  # claimed, and nobody knows: the pacer is gone
        CrashOn("queue.send_batch", 5, When.BEFORE),  # claimed, not sent
        CrashOn("ledger.move", 250, When.AFTER),  # finished, not acknowledged
        CrashOn("upstream.call", 30, When.AFTER),  # the effect is there, the commit is not
    ],
)
def test_200_jobs_drain_whatever_dies_once(crash: FaultHook | None) -> None:
    sluice = SimSluice(settings(limit_per_s=20.0), seed=7, crash=crash)
    sluice.submit(jobs(200, matches=40))
    assert sluice.drain(max_ms=HOUR_MS)
    assert_kept(sluice.report(), jobs=200)
    assert sluice.errors == []


# -- every crash point of a small drain: three jobs of four chunks, too long for one invocation

SMALL: dict[str, Any] = {"function_timeout_s": 20, "chunk_margin_s": 2.0, "declared_chunk_s": 6.0}


def small(crash: FaultHook | None) -> SimSluice:
    sluice = SimSluice(settings(limit_per_s=20.0, **SMALL), seed=3, crash=crash)
    sluice.submit(jobs(3, matches=2, chunks=4, chunk_ms=5000))
    return sluice


@cache
def calls_of_a_clean_run() -> int:
    sluice = small(None)
    assert sluice.drain(max_ms=HOUR_MS)
    assert sluice.report().writes["continue"] >= 3, "the scenario must use continuations"
    return sluice.world.calls


@pytest.mark.parametrize("when", list(When))
def test_a_crash_at_every_port_call_loses_nothing_and_repeats_nothing(when: When) -> None:
    for call in range(1, calls_of_a_clean_run() + 1):
        sluice = small(CrashAt(call, when))
        assert sluice.drain(max_ms=HOUR_MS), f"crash {when} call {call} of seed 3 never drains"
        report = sluice.report()
        assert report.crashes == 1, f"crash {when} call {call} did not happen"
        assert_kept(report, jobs=3)
        assert all(job.attempts == 0 for job in sluice.rows.values()), f"call {call}: a crash burned an attempt (I9)"


def test_what_dies_between_commit_and_message_is_healed_within_b_and_one_tick() -> None:
    sluice = SimSluice(settings(limit_per_s=20.0), seed=5, crash=CrashOn("queue.send_batch", 1, When.BEFORE))
    sluice.submit(jobs(1, matches=1))
    job_class = sluice.settings.classes[CLASS]
    sluice.run(60_000 + (job_class.sweep_after_s + 2 * job_class.tick_interval_s) * 1000)
    assert sluice.rows["j0"].state is State.DONE
    assert sluice.rows["j0"].copy == 1
