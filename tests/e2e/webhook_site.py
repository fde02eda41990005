"""A deployment with an open webhook on the emulator, and a caller outside."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ops.local.deployment import deploy
from ops.local.emulator import Emulator
from ops.local.upstream import InferenceServer
from shared.aws.clients import Clients
from shared.aws.wiring import read_environment, wire
from shared.domain.configuration import load_settings
from shared.domain.control import Run, RunKey, RunState
from shared.domain.job import NewJob, State
from shared.domain.settings import Settings
from shared.ports import Ledger, Ports
from shared.submit.submission import submit_jobs

ALONE, BOTH = "document_classification", "replay_summary"
ROWS = 3
LIMIT_PER_S = 100.0
REPLAY_KEY = "replays/one"


def config_text(upstream: str) -> str:
    return f"""
[sluice]
pacer_timeout_s = 40

[upstreams.model]
endpoint = "{upstream}/v1/summarise"
limit_per_s = {LIMIT_PER_S}
timeout_s = 40.0

[classes.{ALONE}]
kind = "replay_summary"
upstream = "model"
upstream_share = 0.5
webhook = true
schedule = "repair"
function_timeout_s = 60
slots = 4

[classes.{BOTH}]
kind = "replay_summary"
upstream = "model"
upstream_share = 0.5
webhook = true
function_timeout_s = 60
slots = 4
"""


@dataclass(slots=True, kw_only=True)
class Site:
    """A deployment, its ports, and a caller outside. The upstream answers only while `answering` is set."""

    emulator: Emulator
    outputs: dict[str, str]
    ports: Ports
    settings: Settings
    config: Path
    answering: threading.Event

    @property
    def ledger(self) -> Ledger:
        return self.ports.ledger

    @property
    def path(self) -> str:
        api = self.outputs["WebhookUrl"].partition("://")[2].partition(".")[0]
        return f"/_aws/execute-api/{api}/$default/drain-runs"  # the emulator's own form: its host name may not resolve

    @property
    def url(self) -> str:
        return f"{self.emulator.endpoint}{self.path}"

    def secret(self, stage: str = "AWSCURRENT") -> str:
        found = self.emulator.client("secretsmanager").get_secret_value(
            SecretId=self.outputs["WebhookSecret"], VersionStage=stage
        )
        return str(found["SecretString"])

    def ask(
        self, body: Any, *, token: str | None = None, method: str = "POST", content_type: str = "application/json"
    ) -> tuple[int, Any, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.emulator.port, timeout=180)
        text = body if isinstance(body, (str, bytes)) else json.dumps(body)
        headers = {"content-type": content_type, "authorization": f"Bearer {self.secret() if token is None else token}"}
        try:
            connection.request(method, self.path, text, headers)
            answer = connection.getresponse()
            sent = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, json.loads(answer.read()), sent
        finally:
            connection.close()

    def submit(self, job_class: str, ids: Iterable[str]) -> list[str]:
        """A job per id, each a match of its own with one replay to summarise; the ids. They are due since yesterday:
        a live one could be in flight before a run has admitted it."""
        payload, due_ms = json.dumps({"replay_key": REPLAY_KEY}), self.ports.clock.now_ms() - 86_400_000
        jobs = [NewJob(job_id=each, job_class=job_class, match_id=each, payload=payload, due_ms=due_ms) for each in ids]
        submit_jobs(self.ports, self.settings, jobs)
        return [job.job_id for job in jobs]

    def state(self, job_id: str) -> State:
        job = self.ledger.read_job(job_id)
        assert job is not None
        return job.state

    def tick(self, job_class: str, minute_ms: int) -> Any:
        """What the schedule does, waited for."""
        event = {"job_class": job_class, "scheduled_at": iso(minute_ms)}
        answer = self.emulator.client("lambda").invoke(
            FunctionName=self.outputs["PacerName"], Payload=json.dumps(event).encode()
        )
        assert "FunctionError" not in answer, answer["Payload"].read()
        return json.loads(answer["Payload"].read())

    def ended(self, key: RunKey, *, timeout_s: float = 90) -> Run:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            run = self.ledger.read_run(key)
            if run is not None and run.state in (RunState.CLOSED, RunState.SKIPPED):
                return run
            time.sleep(0.2)
        raise AssertionError(f"{key.run_id} did not end")


@contextmanager
def open_site(config: Path) -> Iterator[Site]:
    """Deployed as `config_text` says, with a few jobs of each class waiting."""
    answering = threading.Event()
    answering.set()
    with Emulator() as emulator, _upstream(answering) as url:
        config.write_text(config_text(url))
        outputs = dict(deploy(emulator, config))
        environment = read_environment(
            {
                "SLUICE_TABLE": outputs["TableName"],
                "SLUICE_BUCKET": outputs["BucketName"],
                "SLUICE_QUEUES": outputs["QueueUrls"],
            }
        )
        settings = load_settings(config)
        ports = wire(environment, settings, clients=Clients(emulator.client)).ports
        site = Site(
            emulator=emulator, outputs=outputs, ports=ports, settings=settings, config=config, answering=answering
        )
        emulator.client("s3").put_object(Bucket=outputs["BucketName"], Key=REPLAY_KEY, Body=b"1. e4 e5 1-0\n")
        for name in (ALONE, BOTH):
            site.submit(name, [f"{name}-{number}" for number in range(ROWS)])
        yield site


@contextmanager
def _upstream(answering: threading.Event) -> Iterator[str]:
    """The demo's own, in this process, so that a test can hold its answers back."""
    server = InferenceServer(limit_per_s=LIMIT_PER_S, burst=LIMIT_PER_S, think=answering.wait)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        answering.set()
        server.shutdown()
        server.server_close()
        thread.join()


def iso(minute_ms: int) -> str:
    return f"{datetime.fromtimestamp(minute_ms / 1000, tz=UTC):%Y-%m-%dT%H:%M:%SZ}"


def fresh_minute(site: Site, job_class: str) -> RunKey:
    """The latest minute that may be asked for and has no run yet: it stays acceptable for the longest."""
    while True:
        key = RunKey.of(job_class, time.time_ns() // 1_000_000 + 25_000)
        if site.ledger.read_run(key) is None:
            return key
        time.sleep(1)


def body_of(key: RunKey) -> dict[str, str]:
    return {"run_id": key.run_id, "scheduled_at": iso(key.minute_ms), "job_class": key.job_class}
