"""The main job in the virtual world: it drains, and what dies on the way changes nothing that was promised.

Crashes at every port call are in `test_crash_sweep`.
"""

from __future__ import annotations

import pytest

from ops.simulator.faults import CrashOn, FaultHook, When
from ops.simulator.sluice_world import SimSluice
from shared.domain.job import State
from tests.worlds import CLASS, HOUR_MS, jobs, settings


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
    report = sluice.report()
    assert (report.jobs, report.done, report.dead, report.open) == (200, 200, 0, 0)
    assert (report.duplicate_effects, report.redone_chunks, report.over_budget_ticks) == (0, 0, 0)
    assert sluice.errors == []


def test_what_dies_between_commit_and_message_is_healed_within_b_and_one_tick() -> None:
    sluice = SimSluice(settings(limit_per_s=20.0), seed=5, crash=CrashOn("queue.send_batch", 1, When.BEFORE))
    sluice.submit(jobs(1, matches=1))
    job_class = sluice.settings.classes[CLASS]
    sluice.run(60_000 + (job_class.sweep_after_s + 2 * job_class.tick_interval_s) * 1000)
    assert sluice.rows["j0"].state is State.DONE
    assert sluice.rows["j0"].copy == 1
