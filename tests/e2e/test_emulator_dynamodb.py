"""What Sluice relies on in the emulator's DynamoDB: an upgrade that changes it is noticed."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from ops.local.emulator import Emulator

pytestmark = pytest.mark.e2e

RACERS, ROWS = 6, 60


@pytest.fixture
def table(request: pytest.FixtureRequest, dynamodb: Any) -> str:
    dynamodb.create_table(
        TableName=request.node.name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return str(request.node.name)


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
