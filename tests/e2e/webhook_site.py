"""A deployment with an open webhook on the emulator, and a caller outside."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ops.local.deploy import deploy
from ops.local.emulator import Emulator
from shared.aws.clients import Clients
from shared.aws.wiring import wire
from shared.config import load_settings, read_environment
from shared.core.model import NewJob
from shared.core.runs import Run, RunKey, RunState
from shared.ports import Ledger, Ports
from shared.usecases.submit import submit_jobs

ALONE, BOTH = "document_classification", "replay_summary"
ROWS = 3
CONFIG = f"""
[sluice]
pacer_timeout_s = 40

[upstreams.nobody]
endpoint = "http://127.0.0.1:9/"
limit_per_s = 100.0
timeout_s = 1.0

[classes.{ALONE}]
kind = "replay_summary"
upstream = "nobody"
upstream_share = 0.5
webhook = true
schedule = "repair"
function_timeout_s = 20
slots = 4

[classes.{BOTH}]
kind = "replay_summary"
upstream = "nobody"
upstream_share = 0.5
webhook = true
function_timeout_s = 20
slots = 4
"""


@dataclass(slots=True, kw_only=True)
class Site:
    """A deployment, its ports, and a caller outside."""

    emulator: Emulator
    outputs: dict[str, str]
    ports: Ports
    config: Path

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
    """Deployed as CONFIG says, with a few jobs of each class waiting."""
    config.write_text(CONFIG)
    with Emulator() as emulator:
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
        jobs = [
            NewJob(job_id=f"{name}-{number}", job_class=name, match_id=f"m{number}", payload='{"replay_key": "none"}')
            for name in (ALONE, BOTH)
            for number in range(ROWS)
        ]
        submit_jobs(ports, settings, jobs)
        yield Site(emulator=emulator, outputs=outputs, ports=ports, config=config)


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
