"""A ledger that is halted at any moment of a troubled run, exported, and imported elsewhere, is drained there: every
job comes to its end, and no chunk that was committed on one side is run on the other.
"""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path

import pytest

from ops.long_run import Meter
from ops.simulator.checks.rows import is_progress
from ops.simulator.kinds import Duration, WorkKind
from ops.simulator.mix import Mix
from ops.simulator.sluice_world import SimSluice
from ops.simulator.world import World
from ops.submission.source import opened
from ops.transfer.export import Asked, Export, PartFile
from ops.transfer.importing import Import, Imported
from shared.domain.job import NewJob, State
from shared.domain.settings import RetrySettings, Settings
from shared.kind import Kind
from shared.memory.copy import MemoryCopy
from shared.operate.switches import halt
from shared.steps.counting import count_inflight
from tests.worlds import CLASS, HOUR_MS, MINUTE_MS, settings

JOBS = 24
CHUNKS = 4
SEEDS = range(8)


def declared() -> Settings:
    retry = RetrySettings(max_attempts=2, base_delay_s=5.0)
    return settings(limit_per_s=8.0, retry=retry, slots=8, declared_service_s=18.0, function_timeout_s=30)


def kinds(world: World) -> dict[str, Kind]:
    return {"sim": WorkKind(world, calls_per_chunk=1, duration=Duration(ms=(1000, 8000)))}


def jobs() -> list[NewJob]:
    """Every sixth fails whenever it runs; three to a match."""
    return [
        NewJob(
            job_id=f"j{number}",
            job_class=CLASS,
            match_id=f"m{number // 3}",
            payload=json.dumps({"chunks": CHUNKS, "poison": number % 6 == 5}),
        )
        for number in range(JOBS)
    ]


@cache
def stopped(seed: int) -> SimSluice:
    """A world with all kinds of trouble, halted after some minutes, and settled."""
    mix = Mix(seed)
    sluice = SimSluice(mix.settings_of(declared()), seed, kinds=kinds, **mix.options())
    mix.active = False  # until everything is submitted
    sluice.submit(jobs())
    mix.active = True
    mix.begin(sluice)
    sluice.run(60_000 + sluice.world.random("stop").randrange(4 * MINUTE_MS))
    mix.end(sluice)
    sluice.command("halt", lambda: halt(sluice.ports, CLASS, by="operator", why="moves"))
    for _ in range(60):
        sluice.run(MINUTE_MS)
        if count_inflight(sluice.ports, sluice.settings.classes[CLASS]) == 0 and not sluice.world.running:
            break
    return sluice


def moved(source: SimSluice, target: SimSluice, file: Path) -> Imported:
    meter = Meter(io.StringIO())
    asked = Asked(classes=(CLASS,), live=False, payloads=False)
    Export(source.ports, source.settings, MemoryCopy(source.ledger), asked, meter).run(PartFile(file))
    with opened(str(file), rewindable=True) as stream:
        run = Import(target.ports, target.settings, MemoryCopy(target.ledger), meter)
        return run.run(stream, by="operator", why="moves", merge=False, dry_run=False)


def committed(sluice: SimSluice) -> list[tuple[str, str]]:
    return [(step.before.job_id, step.before.cursor) for step in sluice.ledger.steps if is_progress(step)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_ledger_stopped_anywhere_goes_on_elsewhere(tmp_path: Path, seed: int) -> None:
    source = stopped(seed)
    target = SimSluice(source.settings, seed + 1000, kinds=kinds)
    result = moved(source, target, tmp_path / "ledger.jsonl")
    assert not result.refused, result.compared.faults
    assert target.rows == source.rows
    target.resume(CLASS)
    ordered = source.settings.classes[CLASS].ordered
    target.run(3 * HOUR_MS)
    ends = {job_id: job.state for job_id, job in target.rows.items()}
    held = {State.BEHIND} if ordered else set()
    assert set(ends.values()) <= {State.DONE, State.DEAD} | held, ends
    poisoned = {f"j{number}" for number in range(5, JOBS, 6)}
    assert {job_id for job_id, state in ends.items() if state is State.DEAD} == poisoned
    chunks = committed(source) + committed(target)
    assert len(chunks) == len(set(chunks)), "a chunk was committed on both sides"
    done = [job_id for job_id, state in ends.items() if state is State.DONE]
    assert all(len(target.ledger.outputs(job_id)) == CHUNKS for job_id in done)
    begun = {(start.job_id, start.cursor) for kind in target.kinds.values() for start in kind.starts}
    assert not begun & set(committed(source)), "a committed chunk was begun again"
    assert target.errors == []


def test_the_seeds_stop_drains_in_their_middle() -> None:
    """Otherwise the test above would move ledgers of nothing but waiting or finished rows."""
    middles = 0
    for seed in SEEDS:
        rows = stopped(seed).rows.values()
        middles += any(job.cursor and job.state is State.WAITING for job in rows)
    assert middles >= len(SEEDS) // 2
