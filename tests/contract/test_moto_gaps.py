"""What moto does not do and DynamoDB and SQS do. An upgrade that closes a gap fails here, and its crutch can go.

Not pinned, because it cannot be shown without a race: moto is not thread-safe (fact F34).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from moto import mock_aws

from shared.aws.clients import LEDGER, QUEUE
from tests.contract.worlds import aws_client, create_table

KEY = {"pk": {"S": "a"}, "sk": {"S": "b"}}


@pytest.fixture
def dynamodb() -> Iterator[Any]:
    with mock_aws():
        client = aws_client()("dynamodb", LEDGER.config())
        create_table(client, "table")
        yield client


def test_a_parametrised_insert_is_not_understood(dynamodb: Any) -> None:
    """The reason for the stand-in in moto_world.py."""
    insert = {"Statement": "INSERT INTO \"table\" VALUE {'pk': ?, 'sk': ?}", "Parameters": list(KEY.values())}

    with pytest.raises(TypeError):
        dynamodb.batch_execute_statement(Statements=[insert])


def test_a_client_token_is_not_remembered(dynamodb: Any) -> None:
    """So an SDK retry of a transaction looks like a twin; that the token helps is tested on the emulator."""
    put = {"Put": {"TableName": "table", "Item": KEY, "ConditionExpression": "attribute_not_exists(pk)"}}
    dynamodb.transact_write_items(TransactItems=[put], ClientRequestToken="token")

    with pytest.raises(dynamodb.exceptions.TransactionCanceledException):
        dynamodb.transact_write_items(TransactItems=[put], ClientRequestToken="token")


def test_an_empty_range_is_not_refused(dynamodb: Any) -> None:
    answer = dynamodb.query(
        TableName="table",
        KeyConditionExpression="pk = :pk AND sk BETWEEN :low AND :high",
        ExpressionAttributeValues={":pk": {"S": "a"}, ":low": {"S": "2"}, ":high": {"S": "1"}},
    )

    assert answer["Count"] == 0


def test_the_index_is_perfectly_fresh(dynamodb: Any) -> None:
    place = {"work_partition": {"S": "p"}, "work_position": {"S": "1"}}
    for _ in range(20):
        dynamodb.put_item(TableName="table", Item=KEY | place)
        found = dynamodb.query(
            TableName="table",
            IndexName="work",
            KeyConditionExpression="work_partition = :p",
            ExpressionAttributeValues={":p": {"S": "p"}},
        )
        assert found["Count"] == 1
        dynamodb.delete_item(TableName="table", Key=KEY)


def test_a_deduplication_id_is_forgotten_with_its_message() -> None:
    with mock_aws():
        sqs = aws_client()("sqs", QUEUE.config())
        url = sqs.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        message = {"QueueUrl": url, "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
        for _ in range(2):
            sqs.send_message(**message)
            (received,) = sqs.receive_message(QueueUrl=url)["Messages"]
            sqs.delete_message(QueueUrl=url, ReceiptHandle=received["ReceiptHandle"])
