"""A deployment on moto, as its handlers see it: the environment, the queues, and the way of a job through it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from functions.worker.handler import handler
from shared.aws import wiring
from shared.domain.job import Job, Lane, NewJob
from shared.domain.stats import window_of
from shared.pacer.tick import TickRequest, run_tick
from shared.submit.submission import submit_jobs
from tests.contract.moto_world import moto_aws
from tests.contract.worlds import AwsWorld, aws_client

TIMEOUT_MS: Final = 60_000


class Context:
    """Lambda's."""

    def get_remaining_time_in_millis(self) -> int:
        return TIMEOUT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """`aws` is the account, `host` what the handlers have made of it. Its class is the configuration's first."""

    aws: AwsWorld
    host: wiring.Host

    @property
    def job_class(self) -> str:
        return next(iter(self.host.settings.classes))

    def job(self, job_id: str) -> Job:
        job = self.host.ports.ledger.read_job(job_id)
        assert job is not None
        return job

    def work(self, *jobs: NewJob) -> list[Job]:
        """Submit, let a tick claim, hand each message to the worker; the rows afterwards."""
        ports, settings = self.host.ports, self.host.settings
        submit_jobs(ports, settings, jobs)
        self.work_waiting()
        return [self.job(job.job_id) for job in jobs]

    def work_waiting(self) -> int:
        """One tick and every message that it sent; how many there were."""
        ports, settings = self.host.ports, self.host.settings
        job_class, now_ms = settings.classes[self.job_class], ports.clock.now_ms()
        request = TickRequest(
            scheduled_ms=window_of(now_ms), source="test", nonce="tick-1", deadline_ms=now_ms + 50_000
        )
        sent = run_tick(ports, job_class, settings.upstream_of(job_class), request).confirmed
        for record in [record for lane in Lane for record in self._received(lane)]:
            assert handler({"Records": [record]}, Context()) == {"batchItemFailures": []}
        return sent

    def objects(self, prefix: str) -> dict[str, bytes]:
        s3 = self.aws.clients.s3
        listed = s3.list_objects_v2(Bucket=self.aws.name, Prefix=prefix).get("Contents", [])
        return {each["Key"]: s3.get_object(Bucket=self.aws.name, Key=each["Key"])["Body"].read() for each in listed}

    def put(self, key: str, body: bytes) -> None:
        self.aws.clients.s3.put_object(Bucket=self.aws.name, Key=key, Body=body)

    def _received(self, lane: Lane) -> Iterator[dict[str, Any]]:
        url = self.aws.urls[lane]
        answer = self.aws.clients.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
        )
        for message in answer.get("Messages", ()):
            yield record_of(message, url)


def record_of(message: Mapping[str, Any], url: str) -> dict[str, Any]:
    """A received message as the event source mapping of its queue hands it over."""
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "eventSourceARN": ":".join(["arn:aws:sqs:eu-central-1", *url.split("/")[-2:]]),
    }


@contextmanager
def deployed(config: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    """`config` is the text of a sluice.toml. Every class has the same two queues: one class at a time is worked."""
    path = directory / "sluice.toml"
    path.write_text(config)
    with moto_aws():
        world = AwsWorld(aws_client())
        names = [line.removeprefix("[classes.").rstrip("]") for line in config.splitlines() if "[classes." in line]
        queues = {name: {lane.value: url for lane, url in world.urls.items()} for name in names if "." not in name}
        for name, value in {
            "SLUICE_TABLE": world.name,
            "SLUICE_BUCKET": world.name,
            "SLUICE_QUEUES": json.dumps(queues),
            "SLUICE_CONFIG": str(path),
            "POWERTOOLS_SERVICE_NAME": world.name,  # a logger of its own, which writes to this test's output
            "POWERTOOLS_LOG_LEVEL": "DEBUG",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }.items():
            monkeypatch.setenv(name, value)
        wiring.host.cache_clear()
        yield Deployment(aws=world, host=wiring.host())
        wiring.host.cache_clear()
