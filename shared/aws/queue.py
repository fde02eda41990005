"""The `WorkQueue` on SQS FIFO: one queue per class and lane, tiny messages, a group per match."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from botocore.exceptions import ClientError
from msgspec import DecodeError, Meta, Struct, convert, field, structs

from shared.aws.clients import Clients, answered, code_of
from shared.domain.job import Lane
from shared.domain.messages import BatchAnswer, Delivery, Message, Outgoing
from shared.errors import InvalidInput, QueueUnavailable

_EXPIRED: Final = frozenset({"ReceiptHandleIsInvalid", "InvalidParameterValue", "InvalidParameterValueException"})
"""How SQS names a receipt that is not valid any more; DeleteMessage has no other parameter of ours to be invalid."""

_REFUSED: Final = _EXPIRED | {"MessageNotInflight"}
"""How SQS refuses to extend a message that is not this worker's any more."""


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
        read = _read_record(record)
        job_class, lane = self._source(read.source_arn)
        delivery = _delivery(read, lane)
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
    return {
        "Id": str(position),
        "MessageBody": json.dumps(structs.asdict(outgoing.message), separators=(",", ":")),
        "MessageGroupId": outgoing.group,
        "MessageDeduplicationId": outgoing.message.dedup_id,
    }


def _positions(entries: Sequence[Mapping[str, Any]], size: int) -> frozenset[int]:
    known = {str(position): position for position in range(size)}
    return frozenset(known[entry["Id"]] for entry in entries if entry.get("Id") in known)


# -- an event's record

_Text: TypeAlias = Annotated[str, Meta(min_length=1)]

_Digits: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9]{1,20}\Z")]


class _Attributes(Struct, frozen=True, kw_only=True, rename="pascal"):
    message_group_id: _Text
    approximate_receive_count: _Digits
    approximate_first_receive_timestamp: _Digits


class _Record(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a delivery is made of; a record says more than this."""

    body: _Text
    message_id: _Text
    receipt_handle: _Text
    attributes: _Attributes
    source_arn: str = field(default="", name="eventSourceARN")


def parse_delivery(record: object, lane: Lane) -> Delivery:
    """One SQS event record, also of the dead-letter queue. Raises `InvalidInput`, which never shows the content.

    Called inside the record's own handler: a record that is not ours must not fail its neighbours (fact F32).
    """
    return _delivery(_read_record(record), lane)


def _read_record(record: object) -> _Record:
    with _of_our_shape("record"):
        return convert(record, _Record)


def _delivery(record: _Record, lane: Lane) -> Delivery:
    with _of_our_shape("body"):
        message = msgspec.json.decode(record.body, type=Message)
    return Delivery(
        message=message,
        lane=lane,
        group=record.attributes.message_group_id,
        message_id=record.message_id,
        receipt=record.receipt_handle,
        receive_count=int(record.attributes.approximate_receive_count),
        first_received_ms=int(record.attributes.approximate_first_receive_timestamp),
    )


@contextmanager
def _of_our_shape(name: str) -> Iterator[None]:
    """msgspec's own words are not told: they quote the names of fields that nobody knows (I12)."""
    try:
        yield
    except (DecodeError, RecursionError):
        raise InvalidInput(name, got="another shape", expected="what our queue was sent") from None
