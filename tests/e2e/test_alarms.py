"""Deployed alarms over real ticks on the emulator: six of them go to ALARM, each for its own reason, and back.

The alarms are those of the synthesised stack, deployed by CloudFormation and read back from CloudWatch; the ticks are
the pacer's own over the emulator's table and queues, a minute apart by a clock that the test moves; what they print is
read as CloudWatch would; the local evaluator judges. Workers are a few lines: a test decides what is finished and when.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from infra.bundle import Bundle
from ops.local.emulator import Emulator
from shared.aws.runtime import ThreadParallel
from shared.aws.telemetry import EmfMetrics, JsonLog
from shared.domain import lifecycle, stats
from shared.domain.job import Flag, NewJob
from shared.domain.settings import ClassSettings, Settings, UpstreamSettings
from shared.operate import jobs
from shared.pacer.tick import TickRequest, pace
from shared.ports import Ports
from shared.steps.counting import read_inflight
from shared.submit.submission import submit_jobs
from tests.cloudwatch import AlarmRule, AlarmState, Sample, evaluate, samples_of
from tests.contract.worlds import CLASS, NOW_MS, AwsWorld, aws_client
from tests.infra.conftest import synth_shape

pytestmark = pytest.mark.e2e

MINUTE_MS = 60_000
OK, ALARM = AlarmState.OK, AlarmState.ALARM
SETTINGS = Settings(
    namespace="SluiceE2e",
    upstreams={"inference": UpstreamSettings(name="inference", endpoint="http://127.0.0.1:1", limit_per_s=8.0)},
    classes={
        CLASS: ClassSettings(
            name=CLASS, kind="sim", upstream="inference", slots=10, declared_service_s=6.0, eta_objective_s=600.0
        )
    },
)


@dataclass(slots=True)
class HandClock:
    now: int = NOW_MS

    def now_ms(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1000)


@pytest.fixture(scope="module")
def rules(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> dict[str, AlarmRule]:
    """The class's alarms, deployed, and read back as CloudWatch has them."""
    root = tmp_path_factory.mktemp("bundle")
    staged = Bundle(code=root / "code", layer=root / "layer")
    for directory in (staged.code, staged.layer):
        directory.mkdir()
        (directory / "content.py").write_text("VALUE = 1\n")
    shape = synth_shape(SETTINGS, staged, ephemeral=True)
    kept = ("AWS::CloudWatch::Alarm", "AWS::SNS::Topic", "AWS::SNS::TopicPolicy")
    own = {
        key: each
        for key, each in shape.resources.items()
        if each["Type"] in kept and each.get("Properties", {}).get("Namespace") != "AWS/SQS"
    }
    formation = emulator.client("cloudformation")
    formation.create_stack(StackName="alarms", TemplateBody=json.dumps({"Resources": own}))
    formation.get_waiter("stack_create_complete").wait(StackName="alarms", WaiterConfig={"Delay": 1})
    deployed = emulator.client("cloudwatch").describe_alarms(MaxRecords=100)["MetricAlarms"]
    assert all(each["AlarmActions"] and each["OKActions"] for each in deployed)
    return {each["AlarmDescription"].rpartition("#")[2]: AlarmRule.of(each) for each in deployed}


@dataclass(slots=True)
class Pool:
    """A class on the emulator: its ticks, its alarms, and workers that do what the test says."""

    ports: Ports
    clock: HandClock
    rules: dict[str, AlarmRule]
    output: pytest.CaptureFixture[str]
    samples: list[Sample] = field(default_factory=list)
    states: dict[str, AlarmState] = field(default_factory=dict)
    submitted: int = 0

    def submit(self, count: int) -> None:
        ids = range(self.submitted, self.submitted + count)
        new = [NewJob(job_id=f"j{n}", job_class=CLASS, match_id=f"m{n}", payload="{}") for n in ids]
        assert submit_jobs(self.ports, SETTINGS, new).created == count
        self.submitted += count

    def work(self, count: int, *, dying: bool = False) -> None:
        """The oldest in flight end."""
        for nominee in read_inflight(self.ports, SETTINGS.classes[CLASS])[:count]:
            job = self.ports.ledger.read_job(nominee.job_id)
            assert job is not None
            nonce = uuid.uuid4().hex
            self.ports.ledger.move(
                lifecycle.die(job, reason="job_failure", now_ms=self.clock.now, nonce=nonce)
                if dying
                else lifecycle.finish(job, output=None, nonce=nonce)
            )

    def minute(self, *, finished: int = 0, tick: bool = True) -> None:
        """Workers end so many jobs, a minute passes, the tick comes, and CloudWatch looks."""
        self.work(finished)
        self.clock.now += MINUTE_MS
        if tick:
            request = TickRequest(
                scheduled_ms=self.clock.now,
                source="schedule",
                nonce=uuid.uuid4().hex,
                deadline_ms=self.clock.now + 45_000,
            )
            pace(self.ports, SETTINGS, SETTINGS.classes[CLASS], request)
            printed = samples_of(self.output.readouterr().out.splitlines())
            self.samples += [replace(each, at_ms=self.clock.now) for each in printed]
        for name, rule in self.rules.items():
            before = self.states.get(name, AlarmState.INSUFFICIENT_DATA)
            end_ms = self.clock.now + MINUTE_MS
            self.states[name] = evaluate(rule, self.samples, now_ms=end_ms, before=before)

    def until(self, name: str, state: AlarmState, *, within: int, **minute: Any) -> None:
        waited = 0
        while self.states.get(name) is not state and waited < within:
            self.minute(**minute)
            waited += 1
        assert self.states.get(name) is state, f"{name} after {within} minutes: {self.states}"


@pytest.fixture
def pool(
    emulator: Emulator, rules: dict[str, AlarmRule], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Pool:
    world = AwsWorld(aws_client(emulator.endpoint))
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", world.name)  # a logger of its own, which writes to this test's output
    clock = HandClock()
    ports = Ports(
        clock=clock,
        parallel=ThreadParallel(),
        log=JsonLog(),
        metrics=EmfMetrics(SETTINGS.namespace),
        ledger=world.ledger,
        queue=world.queue,
        limiter=world.limiter,
        upstream=None,  # type: ignore[arg-type]  # no job calls it here
        blobs=world.blobs,
    )
    made = Pool(ports=ports, clock=clock, rules=rules, output=capsys)
    for _ in range(3):
        made.minute()
    return made


def test_the_eta_goes_over_its_objective_and_back(pool: Pool) -> None:
    pool.submit(120)
    pool.until("draineta", ALARM, within=12, finished=5)
    pool.until("draineta", OK, within=15, finished=12)


def test_the_eta_grows_and_falls_again(pool: Pool) -> None:
    pool.submit(400)
    for _ in range(8):
        pool.minute(finished=20)
    assert pool.states["drainetagrowing"] is OK
    for finished in (10, 5, 2, 1):
        pool.minute(finished=finished)
    assert pool.states["drainetagrowing"] is ALARM
    pool.until("drainetagrowing", OK, within=6, finished=30)


def test_a_drain_stalls_and_goes_on(pool: Pool) -> None:
    pool.submit(60)
    pool.until("drainstalled", ALARM, within=14)
    pool.until("drainstalled", OK, within=8, finished=10)


def test_the_heartbeat_stops_and_comes_back(pool: Pool) -> None:
    assert pool.states["notick"] is OK
    pool.until("notick", ALARM, within=6, tick=False)
    pool.until("notick", OK, within=4)


def test_a_job_dies_and_is_skipped(pool: Pool) -> None:
    pool.submit(3)
    pool.minute()
    pool.work(1, dying=True)
    pool.until("deadrows", ALARM, within=2)
    (dead,) = [f"j{n}" for n in range(3) if _state(pool, f"j{n}") == "dead"]
    signature = Flag(by="ada", why="nobody needs it", at_ms=pool.clock.now)
    jobs.skip(pool.ports, SETTINGS.classes[CLASS], dead, signature=signature, nonce="op")
    pool.until("deadrows", OK, within=2)


def test_the_upstream_refuses_and_relents(pool: Pool) -> None:
    for refusals, state in ((5, ALARM), (0, OK)):
        for _ in range(7):
            window_ms = stats.window_of(pool.clock.now)
            counters = {stats.CALLS: 50, stats.REFUSALS: refusals}
            pool.ports.ledger.add_stats(CLASS, window_ms=window_ms, shard=0, counters=counters)
            pool.minute()
        assert pool.states["refusals"] is state


def _state(pool: Pool, job_id: str) -> str:
    job = pool.ports.ledger.read_job(job_id)
    return "" if job is None else job.state.value
