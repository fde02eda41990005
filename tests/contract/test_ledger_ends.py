"""One export, two implementations: imported into AWS's stores (moto, and the emulator) and drained there by the use
cases, or loaded into the simulator's and drained there under faults, every job comes to the same end.
"""

from __future__ import annotations

import io
import json
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from ops.long_run import Meter
from ops.simulator.kinds import Duration, WorkKind
from ops.simulator.ledger_drive import LedgerDrive
from ops.simulator.ledger_file import read_class
from ops.simulator.ports import SimLog, SimMetrics
from ops.simulator.scenario import load_scenario
from ops.simulator.sluice_world import SimSluice
from ops.simulator.world import World
from ops.submission.source import opened
from ops.transfer.export import Asked, Export, PartFile
from ops.transfer.importing import Import
from shared.aws.copy import DynamoCopy
from shared.aws.runtime import ThreadParallel
from shared.domain.job import Lane, NewJob
from shared.domain.settings import AbortRules, ClassSettings, RetrySettings, Settings
from shared.kind import Kind
from shared.memory.copy import MemoryCopy
from shared.operate.switches import halt, resume
from shared.pacer.tick import TickRequest, run_tick
from shared.ports import Ports
from shared.worker.invocation import work
from tests.contract.worlds import CLASS, NOW_MS, AwsWorld

METER = Meter(io.StringIO())
JOBS, CHUNKS = 16, 3


def settings(*, ordered: bool) -> Settings:
    job_class = ClassSettings(
        name=CLASS,
        kind="sim",
        ordered=ordered,
        slots=10,
        declared_service_s=6.0,
        function_timeout_s=60,
        staged_recovery=False,
        abort=AbortRules.off(),
        retry=RetrySettings(max_attempts=2, base_delay_s=5.0),
    )
    return Settings(classes={CLASS: job_class})


def kinds(world: World) -> dict[str, Kind]:
    return {"sim": WorkKind(world, calls_per_chunk=0, duration=Duration(ms=(3000, 9000)))}


def exported(file: Path, *, ordered: bool) -> SimSluice:
    """Halted in the middle of a drain in which every eighth job fails whenever it runs."""
    source = SimSluice(settings(ordered=ordered), seed=3, kinds=kinds)
    new = [
        NewJob(
            job_id=f"j{number}",
            job_class=CLASS,
            match_id=f"m{number // 2}",
            payload=json.dumps({"chunks": CHUNKS, "poison": number % 8 == 7}),
        )
        for number in range(JOBS)
    ]
    source.submit(new)
    source.run(64_000)
    source.command("halt", lambda: halt(source.ports, CLASS, by="operator", why="moves"))
    source.run(60_000)
    assert any(job.cursor and job.state == "waiting" for job in source.rows.values())
    asked = Asked(classes=(CLASS,), live=False, payloads=False)
    Export(source.ports, source.settings, MemoryCopy(source.ledger), asked, METER).run(PartFile(file))
    return source


@dataclass(slots=True)
class HandClock:
    now: int = NOW_MS + 600_000

    def now_ms(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1000)


def drained_on_aws(world: AwsWorld, file: Path, declared: Settings) -> dict[str, str]:
    clock = HandClock()
    ports = Ports(
        clock=clock,
        parallel=ThreadParallel(threads=1),  # moto is not thread-safe
        log=SimLog(clock.now_ms),
        metrics=SimMetrics(clock.now_ms),
        ledger=world.ledger,
        queue=world.queue,
        limiter=world.limiter,
        upstream=None,  # type: ignore[arg-type]  # no job calls it here
        blobs=world.blobs,
    )
    copy = DynamoCopy(world.table)
    with opened(str(file), rewindable=True) as source:
        run = Import(ports, declared, copy, METER)
        result = run.run(source, by="operator", why="moves", merge=False, dry_run=False)
    assert not result.refused, result.compared.faults
    resume(ports, CLASS, by="operator", why="moved")
    job_class, kind = declared.classes[CLASS], kinds(World(seed=1))["sim"]
    for _ in range(10):
        clock.now += 60_000
        request = TickRequest(
            scheduled_ms=clock.now, source="schedule", nonce=uuid.uuid4().hex, deadline_ms=clock.now + 45_000
        )
        run_tick(ports, job_class, None, request)
        while batches := [found for lane in Lane if (found := world.receive(lane))]:
            for batch in batches:
                end_ms, nonce = clock.now + 60_000, uuid.uuid4().hex
                left = work(ports, kind, job_class, None, batch, nonce=nonce, end_ms=end_ms, jitter=lambda: 0.5)
                assert left == []
                for delivery in batch:
                    ports.queue.delete(delivery)
    rows = copy.read_jobs([f"j{number}" for number in range(JOBS)])
    return {job_id: job.state.value for job_id, job in rows.items()}


@pytest.mark.parametrize("ordered", [False, True])
def test_both_implementations_come_to_the_same_ends(aws: AwsWorld, tmp_path: Path, ordered: bool) -> None:
    file = tmp_path / "ledger.jsonl"
    declared = exported(file, ordered=ordered).settings
    there = drained_on_aws(aws, file, declared)
    scenario = replace(load_scenario("mixed-faults"), expect=())
    run = LedgerDrive(scenario, read_class(str(file), declared, None), seed=11)
    run.run()
    result = run.finish()
    assert result.violations == {}, result.said
    here = run.ends()
    assert len(there) == JOBS
    assert {job_id for job_id, state in there.items() if state == "done"} == {
        job_id for job_id, state in here.items() if state == "done"
    }
    poisoned = {f"j{number}" for number in range(7, JOBS, 8)}
    assert {job_id for job_id, state in there.items() if state == "dead"} == poisoned
    # An operator's rounds in the simulator may skip a dead head, so that its match goes on.
    assert {job_id for job_id, state in here.items() if state in ("dead", "skipped")} == poisoned
