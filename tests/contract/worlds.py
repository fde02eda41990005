"""The adapters under contract, each with what a test needs beside the ports: a queue's other end, answers to lose."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ReadTimeoutError

from shared.aws.blobs import S3Blobs
from shared.aws.clients import Clients
from shared.aws.keys import INDEX, PARTITION, POSITION
from shared.aws.ledger import DynamoLedger
from shared.aws.limiter import DynamoLimiter
from shared.aws.queue import SqsQueue
from shared.aws.table import Table
from shared.domain.job import Lane
from shared.domain.messages import Delivery
from shared.domain.settings import ClassSettings, Settings
from shared.memory.ledger import MemoryLedger
from shared.memory.queue import MemoryQueue
from shared.memory.resources import MemoryBlobs, MemoryLimiter
from shared.ports import Blobs, Ledger, Limiter, WorkQueue

NOW_MS = 1_796_040_000_000
"""2026-11-30T12:00Z."""

CLASS = "replay"
SETTINGS = Settings(classes={CLASS: ClassSettings(name=CLASS, kind="replay_summary", function_timeout_s=20)})


@dataclass(slots=True)
class MemoryWorld:
    ledger: Ledger
    limiter: Limiter
    blobs: Blobs
    queue: WorkQueue
    receive: Callable[[Lane], list[Delivery]]


def memory_world() -> MemoryWorld:
    queue = MemoryQueue(SETTINGS, lambda: NOW_MS)
    return MemoryWorld(
        ledger=MemoryLedger(lambda: NOW_MS),
        limiter=MemoryLimiter(),
        blobs=MemoryBlobs(),
        queue=queue,
        receive=lambda lane: queue.receive(CLASS, lane),
    )


class AwsWorld:
    """The AWS adapters over one account, moto's or the emulator's, with a table, queues and a bucket of its own."""

    def __init__(self, client: Callable[[str, Config], Any]) -> None:
        self._lost: set[str] = set()
        self._client = client
        self.clients = Clients(self._make)
        self.name = f"sluice-{uuid.uuid4().hex[:12]}"
        self.table = Table(self.clients, self.name, sleep=lambda _: None)
        self.ledger = DynamoLedger(self.table)
        self.limiter = DynamoLimiter(self.table)
        self.blobs = S3Blobs(self.clients, self.name)
        create_table(self.clients.dynamodb, self.name)
        self.clients.s3.create_bucket(
            Bucket=self.name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
        )
        self.urls = {lane: self._create_queue(lane) for lane in Lane}
        self.queue = SqsQueue(self.clients, {CLASS: self.urls})

    def receive(self, lane: Lane) -> list[Delivery]:
        """What an event source mapping would hand over, as it would write it."""
        answer = self.clients.sqs.receive_message(
            QueueUrl=self.urls[lane], MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
        )
        account, name = self.urls[lane].split("/")[-2:]
        arn = f"arn:aws:sqs:eu-central-1:{account}:{name}"
        return [self.queue.delivery_of(_record(message, arn)) for message in answer.get("Messages", ())]

    @contextmanager
    def answers_lost(self, operation: str) -> Iterator[None]:
        """The service does what `operation` asks, and its answer never arrives, whatever the SDK tries."""
        self._lost.add(operation)
        try:
            yield
        finally:
            self._lost.discard(operation)

    @contextmanager
    def first_answer_lost(self, operation: str) -> Iterator[None]:
        """The SDK's first attempt is done but not answered; its own retry gets the answer."""
        events = self.clients.dynamodb.meta.events
        name = f"needs-retry.dynamodb.{operation}"

        def again(attempts: int, **_: Any) -> float | None:
            return 0 if attempts == 1 else None

        events.register_first(name, again)
        try:
            yield
        finally:
            events.unregister(name, again)

    def _make(self, service: str, config: Config) -> Any:
        return _Lossy(self._client(service, config), self._lost)

    def _create_queue(self, lane: Lane) -> str:
        attributes = {"FifoQueue": "true", "VisibilityTimeout": "30"}
        answer = self.clients.sqs.create_queue(QueueName=f"{self.name}-{lane}.fifo", Attributes=attributes)
        return str(answer["QueueUrl"])


class _Lossy:
    """A boto3 client some of whose answers get lost on the way."""

    def __init__(self, client: Any, lost: set[str]) -> None:
        self._client = client
        self._lost = lost

    def __getattr__(self, name: str) -> Any:
        target = getattr(self._client, name)
        if name not in self._lost:
            return target

        def call(**request: Any) -> Any:
            target(**request)
            raise ReadTimeoutError(endpoint_url="lost")

        return call


def aws_client(endpoint: str | None = None) -> Callable[[str, Config], Any]:
    """Clients with made-up credentials, of moto or of the emulator at `endpoint`."""

    def client(service: str, config: Config) -> Any:
        return boto3.client(
            service,
            region_name="eu-central-1",
            endpoint_url=endpoint,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=config.merge(Config(s3={"addressing_style": "path"})),
        )

    return client


def create_table(dynamodb: Any, name: str) -> None:
    """The table as infra/stores.py deploys it."""
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=_schema("pk", "sk"),
        AttributeDefinitions=[
            {"AttributeName": attribute, "AttributeType": "S"} for attribute in ("pk", "sk", PARTITION, POSITION)
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": INDEX,
                "KeySchema": _schema(PARTITION, POSITION),
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["match_id", "epoch"]},
            }
        ],
    )


def _schema(partition: str, sort: str) -> list[dict[str, str]]:
    return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]


def _record(message: dict[str, Any], arn: str) -> dict[str, Any]:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "eventSourceARN": arn,
    }
