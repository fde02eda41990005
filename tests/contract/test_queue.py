"""The work queue: answers by position, acknowledgement, and a strict reading of what arrives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.stub import ANY, Stubber
from msgspec.structs import replace

from shared.aws.clients import QUEUE, Clients
from shared.aws.queue import SqsQueue, parse_delivery
from shared.domain.job import Lane
from shared.domain.messages import BatchAnswer, Message, Outgoing, group_id
from shared.errors import InvalidInput, QueueUnavailable
from tests.contract.worlds import CLASS, AwsWorld, MemoryWorld, aws_client

URL = "https://sqs.eu-central-1.amazonaws.com/123456789012/sluice-replay-live.fifo"
ARN = "arn:aws:sqs:eu-central-1:123456789012:sluice-replay-live.fifo"
QUEUES = {CLASS: {Lane.LIVE: URL, Lane.RECOVERY: URL.replace("live", "recovery")}}


def outgoing(number: int = 0, *, match_id: str | None = None, **fields: Any) -> Outgoing:
    message = Message(job_id=f"job-{number} ü", job_class=CLASS, cursor="c#1", epoch=1, copy=0)
    return Outgoing(message=replace(message, **fields), group=group_id(match_id or f"Spiel {number} – Rückspiel"))


def test_a_batch_arrives_as_it_was_sent(world: MemoryWorld | AwsWorld) -> None:
    batch = [outgoing(number) for number in range(10)]

    assert world.queue.send_batch(CLASS, Lane.LIVE, batch) == BatchAnswer(
        successful=frozenset(range(10)), failed=frozenset()
    )
    deliveries = world.receive(Lane.LIVE)
    assert {(delivery.message, delivery.group) for delivery in deliveries} == {
        (one.message, one.group) for one in batch
    }
    assert {(delivery.lane, delivery.receive_count) for delivery in deliveries} == {(Lane.LIVE, 1)}
    assert all(delivery.first_received_ms > 0 and delivery.message_id for delivery in deliveries)
    assert world.receive(Lane.RECOVERY) == []


def test_a_group_arrives_in_order(world: MemoryWorld | AwsWorld) -> None:
    batch = [outgoing(number, match_id="one match") for number in range(3)]
    world.queue.send_batch(CLASS, Lane.RECOVERY, batch)

    assert [delivery.message for delivery in world.receive(Lane.RECOVERY)] == [one.message for one in batch]


def test_the_same_message_again_is_accepted_and_dropped(world: MemoryWorld | AwsWorld) -> None:
    for _ in range(2):
        answer = world.queue.send_batch(CLASS, Lane.LIVE, [outgoing()])
        assert answer.successful == frozenset({0})

    assert len(world.receive(Lane.LIVE)) == 1


def test_another_epoch_or_copy_is_another_message(world: MemoryWorld | AwsWorld) -> None:
    world.queue.send_batch(CLASS, Lane.LIVE, [outgoing(), outgoing(copy=1), outgoing(epoch=2)])

    assert [(one.message.epoch, one.message.copy) for one in world.receive(Lane.LIVE)] == [(1, 0), (1, 1), (2, 0)]


def test_what_is_deleted_is_gone_and_its_receipt_may_be_used_again(world: MemoryWorld | AwsWorld) -> None:
    world.queue.send_batch(CLASS, Lane.LIVE, [outgoing()])
    (delivery,) = world.receive(Lane.LIVE)

    world.queue.delete(delivery)
    world.queue.delete(delivery)
    assert world.receive(Lane.LIVE) == []


def test_extending_keeps_a_message_and_a_dead_receipt_is_refused(world: MemoryWorld | AwsWorld) -> None:
    world.queue.send_batch(CLASS, Lane.LIVE, [outgoing()])
    (delivery,) = world.receive(Lane.LIVE)

    assert world.queue.extend(delivery, seconds=40)
    assert world.receive(Lane.LIVE) == []
    world.queue.delete(delivery)
    assert not world.queue.extend(delivery, seconds=40)


# -- what SQS can answer and local stand-ins do not


@pytest.fixture
def sqs() -> Any:
    client = aws_client()("sqs", QUEUE.config())
    with Stubber(client) as stubber:
        yield client, stubber


@pytest.fixture
def stubbed(sqs: Any) -> tuple[SqsQueue, Any]:
    client, stubber = sqs
    return SqsQueue(Clients(lambda *_: client), QUEUES), stubber


def test_entries_are_reconciled_by_position_and_some_are_in_neither_list(stubbed: tuple[SqsQueue, Any]) -> None:
    queue, stubber = stubbed
    entry = {"MessageId": "m", "MD5OfMessageBody": "x"}
    answer = {
        "Successful": [{"Id": "2", **entry}, {"Id": "0", **entry}],
        "Failed": [{"Id": "3", "Code": "InternalError", "SenderFault": False}, {"Id": "77", **_fault()}],
    }
    stubber.add_response("send_message_batch", answer, {"QueueUrl": URL, "Entries": ANY})

    assert queue.send_batch(CLASS, Lane.LIVE, [outgoing(number) for number in range(4)]) == BatchAnswer(
        successful=frozenset({0, 2}), failed=frozenset({3})
    )


def test_an_entry_says_what_fifo_needs_and_nothing_of_the_payload(stubbed: tuple[SqsQueue, Any]) -> None:
    queue, stubber = stubbed
    one = outgoing(1)
    entry = {
        "Id": "0",
        "MessageBody": '{"job_id":"job-1 \\u00fc","job_class":"replay","cursor":"c#1","epoch":1,"copy":0}',
        "MessageGroupId": one.group,
        "MessageDeduplicationId": one.message.dedup_id,
    }
    stubber.add_response("send_message_batch", {"Successful": [], "Failed": []}, {"QueueUrl": URL, "Entries": [entry]})

    assert queue.send_batch(CLASS, Lane.LIVE, [one]) == BatchAnswer(successful=frozenset(), failed=frozenset())


@pytest.mark.parametrize(
    "code", ("InvalidParameterValue", "ReceiptHandleIsInvalid", "AWS.SimpleQueueService.ReceiptHandleIsInvalid")
)
def test_an_expired_receipt_is_ignored_on_delete_and_refused_on_extend(
    stubbed: tuple[SqsQueue, Any], code: str
) -> None:
    queue, stubber = stubbed
    stubber.add_client_error("delete_message", code, http_status_code=400)
    stubber.add_client_error("change_message_visibility", code, http_status_code=400)
    delivery = parse_delivery(record(), Lane.LIVE)

    queue.delete(delivery)
    assert not queue.extend(delivery, seconds=30)


@pytest.mark.parametrize(("code", "status"), (("RequestThrottled", 400), ("InternalFailure", 500), ("Odd", 503)))
def test_a_queue_that_does_not_answer_is_unavailable(stubbed: tuple[SqsQueue, Any], code: str, status: int) -> None:
    queue, stubber = stubbed
    for operation in ("send_message_batch", "delete_message", "change_message_visibility"):
        stubber.add_client_error(operation, code, http_status_code=status)
    delivery = parse_delivery(record(), Lane.LIVE)

    with pytest.raises(QueueUnavailable):
        queue.send_batch(CLASS, Lane.LIVE, [outgoing()])
    with pytest.raises(QueueUnavailable):
        queue.delete(delivery)
    assert not queue.extend(delivery, seconds=30)  # not agreed is refused (rule 4)


# -- what arrives


def record(**changes: Any) -> dict[str, Any]:
    body = {"job_id": "j", "job_class": CLASS, "cursor": "", "epoch": 1, "copy": 0}
    attributes = {
        "MessageGroupId": "m",
        "ApproximateReceiveCount": "2",
        "ApproximateFirstReceiveTimestamp": "1796040000123",
    }
    whole = {
        "messageId": "id-1",
        "receiptHandle": "r",
        "body": json.dumps(body),
        "attributes": attributes,
        "eventSourceARN": ARN,
    }
    return {name: value for name, value in (whole | changes).items() if value is not ...}


def test_a_record_is_read_with_its_lane() -> None:
    delivery = SqsQueue(Clients(), QUEUES).delivery_of(record())

    assert delivery.message == Message(job_id="j", job_class=CLASS, cursor="", epoch=1, copy=0)
    assert (delivery.lane, delivery.group, delivery.receipt) == (Lane.LIVE, "m", "r")
    assert (delivery.receive_count, delivery.first_received_ms) == (2, 1_796_040_000_123)
    recovery = SqsQueue(Clients(), QUEUES).delivery_of(record(eventSourceARN=ARN.replace("live", "recovery")))
    assert recovery.lane is Lane.RECOVERY


@pytest.mark.parametrize("arn", (..., "", 5, ARN + "x", ARN.replace("123456789012", "210987654321"), "live.fifo"))
def test_a_record_of_another_queue_is_refused(arn: object) -> None:
    with pytest.raises(InvalidInput):
        SqsQueue(Clients(), QUEUES).delivery_of(record(eventSourceARN=arn))


def test_a_message_of_another_class_is_refused() -> None:
    body = json.dumps({"job_id": "j", "job_class": "thumbnail", "cursor": "", "epoch": 1, "copy": 0})

    with pytest.raises(InvalidInput, match="another queue's class"):
        SqsQueue(Clients(), QUEUES).delivery_of(record(body=body))


CANARY = "patient-4711"


@pytest.mark.parametrize(
    "body",
    (
        "",
        CANARY,
        f'"{CANARY}"',
        "null",
        "[]",
        "[" * 100_000,
        "9" * 5000,
        "{}",
        f'{{"job_id":"{CANARY}","job_class":"replay","cursor":"","epoch":1}}',  # a field is missing
        f'{{"job_id":"{CANARY}","job_class":"replay","cursor":"","epoch":1,"copy":0,"payload":1}}',  # or too many
        f'{{"job_id":"{CANARY}","job_class":"replay","cursor":"","epoch":true,"copy":0}}',
        f'{{"job_id":"{CANARY}","job_class":"replay","cursor":"","epoch":-1,"copy":0}}',
        f'{{"job_id":"{CANARY}","job_class":"replay","cursor":"","epoch":1.0,"copy":0}}',
        f'{{"job_id":"{CANARY}","job_class":"replay","cursor":null,"epoch":1,"copy":0}}',
        f'{{"job_id":"{CANARY}","job_class":5,"cursor":"","epoch":1,"copy":0}}',
        '{"job_id":"","job_class":"replay","cursor":"","epoch":1,"copy":NaN}',
    ),
)
def test_a_body_that_is_not_ours_is_refused_without_showing_it(body: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_delivery(record(body=body), Lane.LIVE)
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    "broken",
    (
        None,
        "a string",
        {},
        record(messageId=...),
        record(receiptHandle=""),
        record(body=None),
        record(attributes=...),
        record(attributes={}),
        record(attributes=record()["attributes"] | {"ApproximateReceiveCount": "1.5"}),
        record(attributes=record()["attributes"] | {"ApproximateReceiveCount": "٣"}),  # digits of another script
        record(attributes=record()["attributes"] | {"ApproximateFirstReceiveTimestamp": "9" * 5000}),
        record(attributes=record()["attributes"] | {"MessageGroupId": None}),
    ),
)
def test_a_record_that_is_not_one_is_refused(broken: object) -> None:
    with pytest.raises(InvalidInput):
        parse_delivery(broken, Lane.LIVE)


def _fault() -> dict[str, Any]:
    return {"Code": "x", "SenderFault": True}
