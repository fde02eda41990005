"""Races, on the emulator only: moto is not thread-safe and proves nothing about them (fact F34)."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from shared.aws.runtime import ThreadParallel
from shared.domain.control import Busy, RunKey, Taken
from shared.domain.job import Created, Output
from shared.domain.lifecycle import Won, commit
from shared.domain.settings import UpstreamSettings
from shared.domain.upstream import Granted
from tests.contract.jobs import a_job, claim_of, queued
from tests.contract.worlds import CLASS, NOW_MS, AwsWorld

pytestmark = pytest.mark.e2e

RACERS = 8


def test_each_row_is_claimed_by_one_of_eight(emulator_world: AwsWorld) -> None:
    ids = [f"job-{number}" for number in range(20)]
    emulator_world.ledger.create([a_job(job_id) for job_id in ids])
    races = [(job_id, f"pacer-{racer}") for job_id in ids for racer in range(RACERS)]

    results = ThreadParallel(16).map(
        lambda race: (race[0], emulator_world.ledger.move(claim_of(a_job(race[0]), nonce=race[1]))), races
    )

    assert Counter(job_id for job_id, result in results if isinstance(result, Won)) == Counter(ids)


def test_one_of_eight_commits_a_chunk_with_its_output(emulator_world: AwsWorld) -> None:
    job = queued(emulator_world.ledger)
    moves = [
        commit(job, next_cursor="1", output=Output(cursor="", body=f'"{racer}"'), nonce=f"worker-{racer}")
        for racer in range(RACERS)
    ]
    results = ThreadParallel(RACERS).map(emulator_world.ledger.move, moves)

    (winner,) = [racer for racer, result in enumerate(results) if isinstance(result, Won)]
    assert emulator_world.ledger.outputs("job-1") == [Output(cursor="", body=f'"{winner}"')]


def test_one_of_eight_creates_admits_and_takes(emulator_world: AwsWorld) -> None:
    ledger, key, racers = emulator_world.ledger, RunKey.of(CLASS, NOW_MS), list(range(RACERS))
    parallel = ThreadParallel(RACERS)

    created = parallel.map(lambda racer: ledger.create([a_job(), a_job("job-2")]), racers)
    admitted = parallel.map(lambda racer: ledger.admit_run(key, source="schedule", now_ms=NOW_MS), racers)
    taken = parallel.map(
        lambda racer: ledger.take_run(key, owner=f"tick-{racer}", now_ms=NOW_MS, until_ms=NOW_MS + 50_000), racers
    )

    assert Counter(answer for answers in created for answer in answers)[Created.CREATED] == 2
    assert admitted.count(True) == 1
    assert taken.count(Taken(planned=False)) == 1
    assert taken.count(Busy(run_id=key.run_id)) == RACERS - 1


def test_fifty_writers_share_one_rate_without_losing_a_slot(emulator_world: AwsWorld) -> None:
    upstream = UpstreamSettings(name="shared", endpoint="http://x", limit_per_s=10)

    def reserve(_: int) -> float:
        answer = emulator_world.limiter.reserve(upstream, calls=1, now_ms=NOW_MS, latest_ms=NOW_MS + 60_000)
        assert isinstance(answer, Granted)
        return answer.start_ms

    with ThreadPoolExecutor(50) as pool:
        starts = sorted(pool.map(reserve, range(100)))

    assert starts == [NOW_MS + number * 100 for number in range(100)]
