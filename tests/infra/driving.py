"""A deployment on moto whose functions are called as AWS calls them, while what they ask of AWS is recorded."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from functions.pacer.handler import handler as pacer
from functions.worker.handler import handler as worker
from shared.domain.job import Job, NewJob
from shared.domain.stats import window_of
from shared.errors import JobFailure
from shared.kind import Chunk
from shared.submit.submission import submit_jobs
from tests.handlers.canaries import Site, open_site
from tests.infra.calls import Recorder

CONFIG: Final = """
[upstreams.model]
api = "bedrock-converse"
model = "example.model-v1:0"
limit_per_s = 400

[classes.plain]
kind = "probe"
batch_size = 10

[classes.called]
kind = "probe"
webhook = true
schedule = "repair"

[classes.ordered]
kind = "probe"
ordered = true
batch_size = 10

[classes.asking]
kind = "probe_asking"
upstream = "model"

[classes.guild_weekly_report]
kind = "guild_weekly_report"
options.matches_table = "game-matches"

[classes.session_sweep]
kind = "session_sweep"
ordered = true
options.sessions_table = "game-sessions"

[producers.match_ended]
replay_class = "plain"
screenshot_class = "ordered"

[producers.guild_reports]
job_class = "guild_weekly_report"
guilds_table = "game-guilds"

[producers.session_sweep]
job_class = "session_sweep"
"""


class LittleTime:
    """Lambda's context: the margin for a commit, and half a chunk."""

    def get_remaining_time_in_millis(self) -> int:
        return 10_500


class EnoughTime:
    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def probe(job: Any, cursor: str, context: Any) -> Chunk:
    """Does what its payload says."""
    payload = json.loads(job.payload)
    match payload.get("does"):
        case "fail":
            raise JobFailure
        case "objects":
            context.put_blob_once("results/1", b"1", content_type="text/plain")
            context.read_blob("results/1", start=0, length=1)
        case "ask":
            context.call_upstream({"replay": "1"})
        case "outputs":
            context.outputs()
        case "output" | "pages" if not cursor:
            return Chunk(next_cursor="1", output={"page": 1} if payload["does"] == "output" else None)
    return Chunk(next_cursor=None)


@dataclass(slots=True, kw_only=True)
class Drive:
    site: Site
    recorder: Recorder
    minutes: Iterator[int]

    def call(self, name: str, handler: Callable[[Any, Any], Any], event: Any, context: Any = None) -> Any:
        with self.recorder.recording(name):
            return handler(event, context or EnoughTime())

    def submit(self, job_class: str, *payloads: Mapping[str, Any], match_id: str = "") -> list[str]:
        jobs = [
            NewJob(
                job_id=f"job-{uuid.uuid4()}",
                job_class=job_class,
                match_id=match_id or f"match-{uuid.uuid4()}",
                payload=json.dumps(payload),
            )
            for payload in payloads
        ]
        submit_jobs(self.site.host.ports, self.site.host.settings, jobs)
        return [each.job_id for each in jobs]

    def tick(self, job_class: str, **event: Any) -> Any:
        """Of a minute that none of the class has had, and that is not over: heads hand their places on until then."""
        minute_ms = window_of(self.site.host.ports.clock.now_ms()) + 60_000 * next(self.minutes)
        at = iso(minute_ms)
        return self.call("pacer", pacer, {"job_class": job_class, "scheduled_at": at, **event})

    def work(self, job_class: str, *, receives: int = 1, context: Any = None) -> Any:
        records = self.site.records(job_class)
        assert records, f"nothing to work for {job_class}"
        for record in records:
            record["attributes"]["ApproximateReceiveCount"] = str(receives)
        answer = self.call(f"worker {job_class}", worker, {"Records": records}, context)
        for record in records:  # as the mapping does; a group is locked until then
            url = next(url for url in self.site.urls[job_class].values() if url.endswith(_queue_of(record)))
            self.site.aws.sqs.delete_message(QueueUrl=url, ReceiptHandle=record["receiptHandle"])
        return answer

    def state(self, job_id: str) -> Job:
        return self.site.world.job(job_id)


def iso(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _queue_of(record: Mapping[str, Any]) -> str:
    return str(record["eventSourceARN"]).rpartition(":")[2]


@contextmanager
def driving(directory: Path, patch: pytest.MonkeyPatch) -> Iterator[Drive]:
    for name, calls in (("probe", 0), ("probe_asking", 1)):
        kind = ModuleType(name)
        kind.__dict__.update(calls_per_chunk=calls, process_chunk=probe)
        patch.setitem(sys.modules, f"functions.worker.kinds.{name}", kind)
    with open_site(CONFIG, directory, patch) as site:
        recorder = Recorder()
        with recorder.installed(patch):
            yield Drive(site=site, recorder=recorder, minutes=count(1))
