"""The `WorkQueue` on SQS FIFO: one queue per class and lane, tiny messages, a group per match."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from botocore.exceptions import ClientError

from shared.aws.clients import Clients, answered, code_of
from shared.domain.job import Lane
from shared.domain.messages import BatchAnswer, Delivery, Message, Outgoing
from shared.errors import InvalidInput, QueueUnavailable

_FIELDS: Final = ("job_id", "job_class", "cursor", "epoch", "copy")

_EXPIRED: Final = frozenset({"ReceiptHandleIsInvalid", "InvalidParameterValue", "InvalidParameterValueException"})
"""How SQS names a receipt that is not valid any more; DeleteMessage has no other parameter of ours to be invalid."""

_REFUSED: Final = _EXPIRED | {"MessageNotInflight"}


class SqsQueue:
    """`queues` maps class and lane to a queue's URL."""

    def __init__(self, clients: Clients, queues: Mapping[str, Mapping[Lane, str]]) -> None:
        self._clients = clients
        self._queues = queues

    def send_batch(self, job_class: str, lane: Lane, batch: Sequence[Outgoing]) -> BatchAnswer:
        entries = [_entry(position, outgoing) for position, outgoing in enumerate(batch)]
        with answered(QueueUnavailable):
            answer = self._clients.sqs.send_message_batch(QueueUrl=self._queues[job_class][lane], Entries=entries)
        return BatchAnswer(
            successful=_positions(answer.get("Successful", ()), len(batch)),
            failed=_positions(answer.get("Failed", ()), len(batch)),
        )

    def delete(self, delivery: Delivery) -> None:
        try:
            with answered(QueueUnavailable):
                self._clients.sqs.delete_message(QueueUrl=self._url(delivery), ReceiptHandle=delivery.receipt)
        except ClientError as error:
            if code_of(error) not in _EXPIRED:
                raise

    def extend(self, delivery: Delivery, *, seconds: int) -> bool:
        """A queue that does not answer has not agreed: False too, and the caller does nothing (rule 4)."""
        try:
            with answered(QueueUnavailable):
                self._clients.sqs.change_message_visibility(
                    QueueUrl=self._url(delivery), ReceiptHandle=delivery.receipt, VisibilityTimeout=seconds
                )
        except QueueUnavailable:
            return False
        except ClientError as error:
            if code_of(error) not in _REFUSED:
                raise
            return False
        return True

    def delivery_of(self, record: object) -> Delivery:
        """One record of an event from a queue of ours. Raises `InvalidInput`, also for another queue's class."""
        source = _text(_mapping(record, "record"), "eventSourceARN")
        job_class, lane = self._source(source)
        delivery = parse_delivery(record, lane)
        if delivery.message.job_class != job_class:
            raise InvalidInput("body.job_class", got="another queue's class", expected=f"'{job_class}'")
        return delivery

    def _source(self, arn: str) -> tuple[str, Lane]:
        """The queue's class and lane. An ARN ends in account and name, as the URL's path does."""
        tail = arn.split(":")[-2:]
        for job_class, lanes in self._queues.items():
            for lane, url in lanes.items():
                if url.split("/")[-2:] == tail:
                    return job_class, lane
        raise InvalidInput("eventSourceARN", got="a queue that is not configured", expected="one of the class queues")

    def _url(self, delivery: Delivery) -> str:
        return self._queues[delivery.message.job_class][delivery.lane]


def _entry(position: int, outgoing: Outgoing) -> dict[str, str]:
    message = outgoing.message
    body = {name: getattr(message, name) for name in _FIELDS}
    return {
        "Id": str(position),
        "MessageBody": json.dumps(body, separators=(",", ":")),
        "MessageGroupId": outgoing.group,
        "MessageDeduplicationId": message.dedup_id,
    }


def _positions(entries: Sequence[Mapping[str, Any]], size: int) -> frozenset[int]:
    known = {str(position): position for position in range(size)}
    return frozenset(known[entry["Id"]] for entry in entries if entry.get("Id") in known)


# -- an event's record


def parse_delivery(record: object, lane: Lane) -> Delivery:
    """One SQS event record, also of the dead-letter queue. Raises `InvalidInput`, which never shows the content.

    Called inside the record's own handler: a record that is not ours must not fail its neighbours (fact F32).
    """
    fields = _mapping(record, "record")
    attributes = _mapping(fields.get("attributes"), "attributes")
    return Delivery(
        message=_message(_text(fields, "body")),
        lane=lane,
        group=_text(attributes, "MessageGroupId"),
        message_id=_text(fields, "messageId"),
        receipt=_text(fields, "receiptHandle"),
        receive_count=_digits(attributes, "ApproximateReceiveCount"),
        first_received_ms=_digits(attributes, "ApproximateFirstReceiveTimestamp"),
    )


def _message(body: str) -> Message:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidInput("body", got="text that is not JSON", expected="a JSON object") from None
    fields = _mapping(parsed, "body")
    if set(fields) != set(_FIELDS):
        raise InvalidInput("body", got="other fields", expected=f"exactly {', '.join(_FIELDS)}")
    return Message(
        job_id=_text(fields, "job_id"),
        job_class=_text(fields, "job_class"),
        cursor=_text(fields, "cursor", empty=True),
        epoch=_whole(fields, "epoch"),
        copy=_whole(fields, "copy"),
    )


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(name, got=type(value).__name__, expected="an object")
    return value


def _text(fields: Mapping[str, Any], name: str, *, empty: bool = False) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not (value or empty):
        raise InvalidInput(name, got="an empty string" if value == "" else type(value).__name__, expected="a string")
    return value


def _whole(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidInput(name, got=type(value).__name__, expected="a whole number from 0 up")
    return value


def _digits(fields: Mapping[str, Any], name: str) -> int:
    value = _text(fields, name)
    if not (value.isascii() and value.isdigit() and len(value) <= 20):
        raise InvalidInput(name, got="other text", expected="decimal digits")
    return int(value)
