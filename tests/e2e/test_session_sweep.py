"""`session_sweep` on the emulator: renewals that really race its deletes, and expiries that moto cannot compare."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from functions.worker.kinds.session_sweep import DELETED, DynamoSessions, sweep_page
from ops.local.emulator import DEFAULT_VENV, Emulator
from shared.aws.clients import Clients, code_of
from shared.aws.keys import Item
from shared.aws.runtime import ThreadParallel
from tests.kinds.chunks import FakeContext, a_job, run_to_end

pytestmark = pytest.mark.e2e

NOW_S = 1_796_040_000
EXPIRED: Item = {"expires_s": {"N": str(NOW_S - 1)}}


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator(Path(os.environ.get("SLUICE_EMULATOR", DEFAULT_VENV))) as running:
        yield running


@pytest.fixture
def clients(emulator: Emulator) -> Clients:
    return Clients(emulator.client)


@pytest.fixture
def table(clients: Clients) -> str:
    name = f"sessions-{uuid.uuid4().hex[:8]}"
    clients.dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "session_id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "session_id", "AttributeType": "S"}],
    )
    return name


def put(clients: Clients, table: str, expiries: dict[str, Item]) -> None:
    for session_id, expires in expiries.items():
        clients.dynamodb.put_item(TableName=table, Item={"session_id": {"S": session_id}, **expires})


def sweep(clients: Clients, table: str) -> FakeContext:
    sessions = DynamoSessions(clients, table, ["session_id"], parallel=ThreadParallel(8), page_rows=40)
    context = FakeContext()
    job = a_job({}, due_ms=NOW_S * 1000)
    run_to_end(lambda job, cursor, given: sweep_page(sessions, job, cursor, given), job, context)
    return context


def left(clients: Clients, table: str) -> dict[str, Any]:
    items = clients.dynamodb.scan(TableName=table, ConsistentRead=True)["Items"]
    return {item["session_id"]["S"]: item.get("expires_s") for item in items}


def test_no_session_whose_renewal_was_accepted_is_deleted(clients: Clients, table: str) -> None:
    names = [f"s{n}" for n in range(200)]
    put(clients, table, dict.fromkeys(names, EXPIRED))

    def renew(session_id: str) -> str | None:
        try:
            clients.dynamodb.update_item(
                TableName=table,
                Key={"session_id": {"S": session_id}},
                UpdateExpression="SET expires_s = :later",
                ConditionExpression="attribute_exists(session_id)",
                ExpressionAttributeValues={":later": {"N": str(NOW_S + 3_600)}},
            )
        except ClientError as error:
            if code_of(error) != "ConditionalCheckFailedException":
                raise
            return None
        return session_id

    with ThreadPoolExecutor(4) as pool:
        renewing = [pool.submit(renew, name) for name in random.Random(7).sample(names, 100)]
        context = sweep(clients, table)
    renewed = {future.result() for future in renewing} - {None}
    assert set(left(clients, table)) == renewed
    assert context.counted[DELETED] == len(names) - len(renewed)
    assert renewed, "no renewal came in time: nothing raced"


def test_an_expiry_that_is_no_number_is_not_in_the_past(clients: Clients, table: str) -> None:
    others: dict[str, Item] = {
        "text": {"expires_s": {"S": "0"}},
        "map": {"expires_s": {"M": {}}},
        "null": {"expires_s": {"NULL": True}},
        "none": {},
    }
    put(clients, table, {"old": EXPIRED, **others})
    sweep(clients, table)
    assert set(left(clients, table)) == set(others)
