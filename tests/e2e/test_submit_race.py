"""The real command line on the emulator: 10,000 rows submitted twice at once, an interruption, and odd identifiers."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ops.local.emulator import ROOT, Emulator
from shared.aws.clients import Clients
from shared.aws.keys import INDEX, PARTITION, POSITION
from shared.aws.queue import parse_delivery
from shared.aws.wiring import Environment, wire
from shared.domain.configuration import parse_settings
from shared.domain.job import Lane
from shared.steps.sending import send_jobs
from tests.commands.test_submit import TWINS

pytestmark = pytest.mark.e2e

ROWS = 10_000
LARGE = 50
TABLE, BUCKET = "sluice-race", "sluice-race-payloads"
CONFIG = '[classes.replays]\nkind = "replay_summary"\n'
QUEUES = json.dumps({"replays": {lane: f"http://127.0.0.1/0/{lane}.fifo" for lane in ("live", "recovery")}})


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator() as running:
        yield running


@pytest.fixture
def command(emulator: Emulator, tmp_path: Path) -> Iterator[list[str]]:
    """`python -m ops` of a deployment with an empty table."""
    dynamodb, s3 = emulator.client("dynamodb"), emulator.client("s3")
    names = ("pk", "sk", PARTITION, POSITION)
    dynamodb.create_table(
        TableName=TABLE,
        KeySchema=key_schema("pk", "sk"),
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
        GlobalSecondaryIndexes=[
            {
                "IndexName": INDEX,
                "KeySchema": key_schema(PARTITION, POSITION),
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["match_id", "epoch"]},
            }
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    config, outputs = tmp_path / "sluice.toml", tmp_path / "outputs.json"
    config.write_text(CONFIG)
    outputs.write_text(json.dumps({"Sluice": {"TableName": TABLE, "BucketName": BUCKET, "QueueUrls": QUEUES}}))
    yield [sys.executable, "-m", "ops", "--config", str(config), "--outputs", str(outputs)]
    dynamodb.delete_table(TableName=TABLE)
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for found in page.get("Contents", ()):
            s3.delete_object(Bucket=BUCKET, Key=found["Key"])
    s3.delete_bucket(Bucket=BUCKET)


def key_schema(partition: str, position: str) -> list[dict[str, str]]:
    return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": position, "KeyType": "RANGE"}]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.jsonl"
    with path.open("w", encoding="utf-8") as out:
        for number in range(ROWS):
            payload: dict[str, Any] = {"replay_key": f"replays/{number}"}
            if number < LARGE:
                payload["text"] = "ä" * 3_000  # above 4 KB: through the object store
            job = {"job_id": f"Spiel {number} ⚽", "match_id": f"m{number % 500}", "payload": payload}
            out.write(json.dumps(job | {"job_class": "replays"}, ensure_ascii=False) + "\n")
    return path


def start(command: list[str], emulator: Emulator, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, **emulator.environment()}
    return subprocess.Popen(
        [*command, *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str], *, code: int = 0) -> dict[str, Any]:
    stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == code, stderr
    assert "Traceback" not in stderr
    summary: dict[str, Any] = json.loads(stdout)
    return summary


def waiting_rows(emulator: Emulator) -> int:
    """Rows with a place in the index. By a scan: the emulator walks the table for every query, and `status --exact`
    makes a dozen at once, which outlasts the command's patience on a busy machine."""
    pages = emulator.client("dynamodb").get_paginator("scan").paginate(TableName=TABLE, IndexName=INDEX, Select="COUNT")
    return sum(page["Count"] for page in pages)


def test_two_processes_submit_one_file_at_once(command: list[str], emulator: Emulator, jobs: Path) -> None:
    shuffled = jobs.with_name("shuffled.jsonl")  # in the same order, the process that is ahead would stay ahead
    rows = jobs.read_text(encoding="utf-8").splitlines(keepends=True)
    random.Random(7).shuffle(rows)
    shuffled.write_text("".join(rows), encoding="utf-8")
    racers = [start(command, emulator, "submit", str(path), "--json") for path in (jobs, shuffled)]
    one, other = (ended(racer) for racer in racers)
    print(f"one: {one['created']} created, {one['existing']} there; other: {other['created']}, {other['existing']}")

    assert one["created"] + other["created"] == ROWS
    assert one["existing"] + other["existing"] == ROWS
    assert (one["refused"], other["refused"]) == (0, 0)
    assert waiting_rows(emulator) == ROWS
    assert len(emulator.client("s3").list_objects_v2(Bucket=BUCKET)["Contents"]) == LARGE


def test_a_submission_that_is_interrupted_is_gone_on_with(command: list[str], emulator: Emulator, jobs: Path) -> None:
    first = start(command, emulator, "submit", str(jobs), "--json")
    time.sleep(2.5)
    first.send_signal(signal.SIGINT)
    interrupted = ended(first, code=130)
    assert interrupted["outcome"] == "interrupted"
    assert 0 < interrupted["created"] < ROWS

    rest = ended(start(command, emulator, "submit", str(jobs), "--json", "--from-line", str(interrupted["next_line"])))
    assert interrupted["created"] + rest["created"] == ROWS
    assert rest["existing"] == 0

    again = ended(start(command, emulator, "submit", str(jobs), "--json"))
    print(f"interrupted: {interrupted['created']} created; rest: {rest['created']}; again: {again['created']}")
    assert (again["created"], again["existing"], again["refused"]) == (0, ROWS, 0)


def test_near_twins_stay_distinct_in_the_table_and_on_their_way_through_the_queue(
    command: list[str], emulator: Emulator, tmp_path: Path
) -> None:
    jobs = tmp_path / "twins.jsonl"
    job = {"job_class": "replays", "payload": {}}
    jobs.write_text("".join(json.dumps(job | {"job_id": twin, "match_id": twin}) + "\n" for twin in TWINS))
    assert ended(start(command, emulator, "submit", str(jobs), "--json"))["created"] == len(TWINS)

    sqs = emulator.client("sqs")
    attributes = {"FifoQueue": "true", "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    url = sqs.create_queue(QueueName="twins.fifo", Attributes=attributes)["QueueUrl"]
    environment = Environment(
        table=TABLE, bucket=BUCKET, queues={"replays": dict.fromkeys(Lane, url)}, config_path=tmp_path / "unused"
    )
    ports = wire(environment, parse_settings(CONFIG), clients=Clients(emulator.client)).ports
    rows = [ports.ledger.read_job(twin) for twin in TWINS]
    assert [(row.job_id, row.match_id) for row in rows if row is not None] == [(twin, twin) for twin in TWINS]

    assert send_jobs(ports, [replace(row, lane=Lane.LIVE) for row in rows if row is not None]) == len(TWINS)
    arrived: dict[str, str] = {}
    while len(arrived) < len(TWINS):
        answer = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=2, MessageSystemAttributeNames=["All"]
        )
        assert answer.get("Messages"), f"{len(arrived)} of {len(TWINS)} arrived"
        for message in answer["Messages"]:
            record = {"body": message["Body"], "messageId": message["MessageId"]}
            record |= {"receiptHandle": message["ReceiptHandle"], "attributes": message["Attributes"]}
            delivery = parse_delivery(record, Lane.LIVE)
            arrived[delivery.message.job_id] = delivery.group
    assert set(arrived) == set(TWINS)
    assert len(set(arrived.values())) == len(TWINS)
