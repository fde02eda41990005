"""What Sluice relies on in the local emulator: a small suite, so that an upgrade which changes it is noticed."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from ops.local import processes
from ops.local.emulator import DEFAULT_VENV, ROOT, Emulator

pytestmark = pytest.mark.e2e

RACERS, ROWS = 6, 60
VISIBILITY_S = 2


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator() as running:
        yield running


@pytest.fixture(scope="module")
def dynamodb(emulator: Emulator) -> Any:
    return emulator.client("dynamodb")


@pytest.fixture(scope="module")
def sqs(emulator: Emulator) -> Any:
    return emulator.client("sqs")


@pytest.fixture
def table(request: pytest.FixtureRequest, dynamodb: Any) -> str:
    dynamodb.create_table(
        TableName=request.node.name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return str(request.node.name)


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


# -- DynamoDB

RACER = """
import json, sys
from botocore.exceptions import ClientError
from botocore.session import Session
endpoint, table, racer, rows = sys.argv[1:]
client = Session().create_client("dynamodb", region_name="eu-central-1", endpoint_url=endpoint,
                                 aws_access_key_id="test", aws_secret_access_key="test")
won = 0
client.describe_table(TableName=table)  # the first call of a client is slow
print("ready", flush=True)
sys.stdin.readline()
for row in range(int(rows)):
    try:
        client.update_item(TableName=table, Key={"pk": {"S": str(row)}}, UpdateExpression="SET winner = :me",
                           ConditionExpression="attribute_not_exists(winner)",
                           ExpressionAttributeValues={":me": {"S": racer}})
        won += 1
    except ClientError as error:
        if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
            raise
print(won)
"""


def test_of_racing_processes_exactly_one_wins_each_conditional_update(
    emulator: Emulator, dynamodb: Any, table: str
) -> None:
    command = [sys.executable, "-c", RACER, emulator.endpoint, table]
    racers = [
        subprocess.Popen([*command, f"r{number}", str(ROWS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(RACERS)
    ]
    pipes = [(racer.stdin, racer.stdout) for racer in racers if racer.stdin and racer.stdout]
    assert [out.readline() for _, out in pipes] == ["ready\n"] * RACERS
    for start, _ in pipes:
        start.write("\n")
        start.flush()
    wins = [int(racer.communicate(timeout=60)[0]) for racer in racers]
    assert sum(wins) == ROWS
    assert len(dynamodb.scan(TableName=table)["Items"]) == ROWS


def test_of_racing_threads_exactly_one_wins_a_transaction_and_the_others_learn_why(dynamodb: Any, table: str) -> None:
    def create(racer: int) -> str:
        put = {"TableName": table, "Item": {"pk": {"S": "row"}, "by": {"N": str(racer)}}}
        try:
            dynamodb.transact_write_items(
                TransactItems=[{"Put": put | {"ConditionExpression": "attribute_not_exists(pk)"}}]
            )
        except ClientError as error:
            return str(error.response["CancellationReasons"][0]["Code"])
        return "won"

    with ThreadPoolExecutor(RACERS) as pool:
        ends = list(pool.map(create, range(RACERS)))
    assert ends.count("won") == 1
    assert set(ends) <= {"won", "ConditionalCheckFailed", "TransactionConflict"}


def test_a_failed_condition_shows_the_old_item(dynamodb: Any, table: str) -> None:
    dynamodb.put_item(TableName=table, Item={"pk": {"S": "row"}, "nonce": {"S": "theirs"}})
    with pytest.raises(ClientError) as caught:
        dynamodb.update_item(
            TableName=table,
            Key={"pk": {"S": "row"}},
            UpdateExpression="SET nonce = :mine",
            ConditionExpression="attribute_not_exists(nonce)",
            ExpressionAttributeValues={":mine": {"S": "mine"}},
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    assert caught.value.response["Error"]["Code"] == "ConditionalCheckFailedException"
    assert caught.value.response["Item"] == {"pk": {"S": "row"}, "nonce": {"S": "theirs"}}


def test_a_cancelled_transaction_writes_nothing_and_gives_a_reason_per_item(dynamodb: Any, table: str) -> None:
    dynamodb.put_item(TableName=table, Item={"pk": {"S": "taken"}, "by": {"S": "them"}})
    puts = [{"TableName": table, "Item": {"pk": {"S": key}}} for key in ("free", "taken")]
    guard = {
        "ConditionExpression": "attribute_not_exists(pk)",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    with pytest.raises(ClientError) as caught:
        dynamodb.transact_write_items(TransactItems=[{"Put": put | guard} for put in puts])
    reasons = caught.value.response["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["None", "ConditionalCheckFailed"]
    assert reasons[1]["Item"] == {"pk": {"S": "taken"}, "by": {"S": "them"}}
    assert "Item" not in dynamodb.get_item(TableName=table, Key={"pk": {"S": "free"}}, ConsistentRead=True)


def test_a_batch_of_inserts_names_the_duplicates_and_creates_the_others(dynamodb: Any, table: str) -> None:
    dynamodb.put_item(TableName=table, Item={"pk": {"S": "b"}, "by": {"S": "them"}})
    answers = dynamodb.batch_execute_statement(
        Statements=[
            {"Statement": f"INSERT INTO \"{table}\" VALUE {{'pk': ?}}", "Parameters": [{"S": key}]} for key in "abc"
        ]
    )["Responses"]
    assert [answer.get("Error", {}).get("Code") for answer in answers] == [None, "DuplicateItem", None]
    assert dynamodb.scan(TableName=table, Select="COUNT")["Count"] == 3
    assert dynamodb.get_item(TableName=table, Key={"pk": {"S": "b"}})["Item"]["by"] == {"S": "them"}


# -- SQS FIFO


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


# -- the emulator itself

HOST = """
import pathlib, sys, time
from ops.local.emulator import Emulator
with Emulator(pathlib.Path(sys.argv[1])) as emulator:
    print(emulator._process.pid, emulator.tmp, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("ending", (signal.SIGINT, None))
def test_nothing_of_the_emulator_outlives_its_owner(ending: signal.Signals | None) -> None:
    code = HOST if ending else HOST.replace("time.sleep(60)", "raise SystemExit(3)")
    command = [sys.executable, "-c", code, str(DEFAULT_VENV)]
    owner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert owner.stdout is not None
    group, tmp = owner.stdout.readline().decode().split()
    if ending:
        assert list(processes.members(int(group)))
        owner.send_signal(ending)
    owner.communicate(timeout=10)
    assert list(processes.members(int(group))) == []
    assert not Path(tmp).exists()


def test_without_its_environment_the_emulator_says_in_one_line_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(processes.NotInstalled) as caught, Emulator(tmp_path):
        pass
    assert str(caught.value) == (f"Something is not installed, run `make setup`: {tmp_path}/bin/ministack is missing")


def test_an_environment_for_clients_holds_no_credentials_of_the_developer(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "real")
    scrubbed = processes.scrubbed_environment(**emulator.environment())
    assert "real" not in json.dumps(scrubbed)
    assert "AWS_PROFILE" not in scrubbed
    assert {scrubbed["AWS_ENDPOINT_URL"], scrubbed["AWS_ENDPOINT_URL_S3"]} == {emulator.endpoint}
