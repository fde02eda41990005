"""What Sluice relies on in the emulator's FIFO queues and mappings: an upgrade that changes it is noticed."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Callable
from typing import Any

import pytest

from ops.local import processes
from ops.local.emulator import Emulator

pytestmark = pytest.mark.e2e

VISIBILITY_S = 2


@pytest.fixture
def queue(request: pytest.FixtureRequest, sqs: Any) -> str:
    attributes = {
        "FifoQueue": "true",
        "VisibilityTimeout": str(VISIBILITY_S),
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
    }
    url = sqs.create_queue(QueueName=f"{request.node.name[:70]}.fifo", Attributes=attributes)["QueueUrl"]
    return str(url)


def until(reached: Callable[[], bool], *, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():
        assert time.monotonic() < deadline, "not reached in time"
        time.sleep(0.05)


def send(sqs: Any, queue: str, group: str, *bodies: str, again: str = "") -> None:
    for body in bodies:
        sqs.send_message(
            QueueUrl=queue, MessageBody=body, MessageGroupId=group, MessageDeduplicationId=f"{body}{again}"
        )


def receive(sqs: Any, queue: str) -> list[dict[str, Any]]:
    answer = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"])
    return list(answer.get("Messages", []))


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["Body"] for message in messages]


def test_a_dedup_id_stays_taken_after_its_message_was_deleted(sqs: Any, queue: str) -> None:
    send(sqs, queue, "m", "first")
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=receive(sqs, queue)[0]["ReceiptHandle"])
    send(sqs, queue, "m", "first")
    assert receive(sqs, queue) == []
    send(sqs, queue, "m", "first", again="-copy-1")
    assert bodies(receive(sqs, queue)) == ["first"]


def test_a_message_in_flight_locks_its_group_and_no_other(sqs: Any, queue: str) -> None:
    send(sqs, queue, "m", "m1")
    held = receive(sqs, queue)
    send(sqs, queue, "m", "m2")
    send(sqs, queue, "n", "n1")
    assert bodies(receive(sqs, queue)) == ["n1"]
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=held[0]["ReceiptHandle"])
    assert bodies(receive(sqs, queue)) == ["m2"]


def test_an_unacknowledged_message_comes_back_after_the_visibility_timeout_and_not_before(sqs: Any, queue: str) -> None:
    send(sqs, queue, "m", "m1", "m2")
    first = receive(sqs, queue)[0]
    received = time.monotonic()
    assert receive(sqs, queue) == []
    while not (again := receive(sqs, queue)):
        time.sleep(0.05)
    assert time.monotonic() - received > VISIBILITY_S - 0.5
    assert bodies(again)[0] == "m1"
    counts = [message["Attributes"]["ApproximateReceiveCount"] for message in (first, again[0])]
    assert counts == ["1", "2"]
    moments = [message["Attributes"]["ApproximateFirstReceiveTimestamp"] for message in (first, again[0])]
    assert moments[0] == moments[1]


# -- a function behind a FIFO queue

HANDLER = """
import json, os, pathlib, time

def handler(event, context):
    seen = pathlib.Path(os.environ["SEEN"])
    earlier = seen.read_text() if seen.exists() else ""
    failed, groups = [], set()
    for record in event["Records"]:
        body, group = record["body"], record["attributes"]["MessageGroupId"]
        with seen.open("a") as out:
            out.write(body + " " + record["attributes"]["ApproximateReceiveCount"] + "\\n")
        if body == "hangs" and "hangs" not in earlier:
            time.sleep(60)
        if group in groups or (body.startswith("fails") and body not in earlier):
            groups.add(group)
            failed.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failed}
"""


Seen = Callable[[], list[str]]


@pytest.fixture
def start_worker(function_name: str, emulator: Emulator, sqs: Any, queue: str) -> Callable[[], Seen]:
    """Maps a worker to the queue; gives what it has seen so far, as "body receive-count" lines."""
    log = emulator.tmp / f"{function_name}.seen"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("worker.py", HANDLER)
    functions = emulator.client("lambda")
    functions.create_function(
        FunctionName=function_name,
        Runtime="python3.11",
        Handler="worker.handler",
        Role="arn:aws:iam::000000000000:role/worker",
        Code={"ZipFile": archive.getvalue()},
        Timeout=20,
        Environment={"Variables": {"SEEN": str(log)}},
    )

    def start() -> Seen:
        attributes = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
        functions.create_event_source_mapping(
            FunctionName=function_name,
            EventSourceArn=attributes["QueueArn"],
            BatchSize=10,
            FunctionResponseTypes=["ReportBatchItemFailures"],
        )
        return lambda: log.read_text().splitlines() if log.exists() else []

    return start


@pytest.fixture
def function_name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)[:60]


def test_a_reported_failure_comes_back_alone_and_its_group_stays_in_order(
    sqs: Any, queue: str, start_worker: Callable[[], Seen]
) -> None:
    send(sqs, queue, "m", "fails", "m2")
    send(sqs, queue, "n", "n1")
    seen = start_worker()  # after the messages, so that they come in one batch
    until(lambda: len(seen()) == 5 and waiting(sqs, queue) == 0)
    assert seen() == ["fails 1", "m2 1", "n1 1", "fails 2", "m2 2"]


def test_a_killed_function_process_loses_nothing(
    function_name: str, emulator: Emulator, sqs: Any, queue: str, start_worker: Callable[[], Seen]
) -> None:
    send(sqs, queue, "m", "hangs", "m2")
    seen = start_worker()
    until(lambda: seen() == ["hangs 1"])
    pids = emulator.function_processes(function_name)
    assert len(pids) == 1
    assert processes.kill(pids[0])
    until(lambda: len(seen()) == 3 and waiting(sqs, queue) == 0)
    assert seen() == ["hangs 1", "hangs 2", "m2 2"]
    assert emulator.function_processes(function_name) != pids


def waiting(sqs: Any, queue: str) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    attributes = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
    return sum(int(attributes[name]) for name in names)
