"""Submitting in the virtual world: twice at once, over crashes, and with answers that get lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from ops.simulator.faults import CrashOn, FaultHook, FaultOn, Repeat, When
from ops.simulator.sluice_world import SimSluice
from shared.domain.job import NewJob
from shared.domain.settings import ClassSettings, Settings
from shared.submit.submission import SubmitReport, submit_jobs

JOBS = 400


def settings(*, ordered: bool = False) -> Settings:
    return Settings(classes={"replays": ClassSettings(name="replays", kind="sim", ordered=ordered)})


def jobs(count: int = JOBS, *, payload: str = "{}") -> list[NewJob]:
    return [NewJob(job_id=f"j{n}", job_class="replays", match_id=f"m{n % 20}", payload=payload) for n in range(count)]


def race(sluice: SimSluice, *files: list[NewJob]) -> list[SubmitReport]:
    """Every file by a process of its own, all at the same time."""

    def submitting(file: list[NewJob], nonce: str) -> Callable[[], SubmitReport]:
        return lambda: submit_jobs(sluice.ports, sluice.settings, file, nonce=nonce)

    racers = [sluice.world.spawn(f"submit-{n}", submitting(file, f"p{n}")) for n, file in enumerate(files)]
    sluice.world.run(stop=lambda: all(racer.ended for racer in racers))
    return [cast(SubmitReport, racer.value) for racer in racers]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_two_processes_with_one_file_create_each_job_once_and_their_counts_add_up(seed: int, ordered: bool) -> None:
    sluice = SimSluice(settings(ordered=ordered), seed=seed)
    one, other = race(sluice, jobs(), jobs())

    assert len(sluice.rows) == JOBS
    assert one.created + other.created == JOBS
    assert one.existing + other.existing == JOBS
    assert (one.refused, other.refused) == ([], [])


@pytest.mark.parametrize("seed", range(5))
def test_of_two_files_that_disagree_one_wins_each_job_and_the_other_hears_of_it(seed: int) -> None:
    sluice = SimSluice(settings(), seed=seed)
    one, other = race(sluice, jobs(payload="1"), jobs(payload="2"))

    assert one.created + other.created == JOBS
    assert len(one.refused) + len(other.refused) == JOBS
    stands = [row.payload for row in sluice.rows.values()]
    assert (stands.count("1"), stands.count("2")) == (one.created, other.created)


@pytest.mark.parametrize(
    "fault",
    [
        CrashOn("ledger.create", 3, When.AFTER),
        CrashOn("blobs.put_once", 1, When.AFTER),  # the object is there, no row points at it yet
        CrashOn("ledger.create", 1, When.BEFORE),
    ],
)
def test_a_submission_that_dies_is_submitted_again_and_adds_what_was_missing(fault: FaultHook) -> None:
    sluice = SimSluice(settings(), seed=1, crash=fault)
    large = f'{{"text": "{"x" * 5000}"}}'
    sluice.submit(jobs(150, payload=large))

    assert len(sluice.rows) == 150
    assert all(sluice.blobs.objects[row.payload_key] == large.encode() for row in sluice.rows.values())
    assert sluice.drain(max_ms=3_600_000)
    assert sluice.report().done == 150


def test_a_row_whose_answer_was_lost_counts_as_created() -> None:
    sluice = SimSluice(settings(), seed=1, faults=[FaultOn("ledger.create", Repeat(), nth=None, when=When.AFTER)])
    (report,) = race(sluice, jobs())

    assert (report.created, report.existing, report.refused) == (JOBS, 0, [])


def test_a_payload_object_that_is_gone_is_the_job_s_failure_and_visible() -> None:
    sluice = SimSluice(settings(), seed=1)
    sluice.submit(jobs(1, payload=f'"{"x" * 5000}"'))
    sluice.blobs.objects.clear()
    sluice.run(24 * 3_600_000)

    assert (sluice.rows["j0"].state, sluice.rows["j0"].last_error) == ("dead", "object_missing")
