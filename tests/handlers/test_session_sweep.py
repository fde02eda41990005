"""`session_sweep` on DynamoDB: its scan and its conditional deletes, and the whole worker around it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from functions.worker.handler import handler
from functions.worker.kinds import session_sweep
from functions.worker.kinds.session_sweep import DynamoSessions
from shared.aws import wiring
from shared.aws.clients import Clients
from shared.aws.keys import Item
from shared.aws.runtime import ThreadParallel
from shared.domain.job import Job, Lane, NewJob, State
from shared.domain.stats import window_of
from shared.errors import StorageUnavailable
from shared.pacer.tick import TickRequest, run_tick
from shared.submit.submission import submit_jobs
from tests.contract.moto_world import moto_aws
from tests.contract.worlds import AwsWorld, aws_client, create_table
from tests.handlers.deployment import record_of
from tests.kinds.chunks import FakeContext, a_job, run_to_end

NOW_S = 1_796_040_000
HOUR_S = 3_600
TABLE = "game-sessions"
ONE_THREAD = ThreadParallel(1)  # moto is not thread-safe (fact F34)


def session(session_id: str, expires: Item | None) -> Item:
    return {"session_id": {"S": session_id}, "player": {"S": "canary-player"}} | (expires or {})


def create_sessions(dynamodb: Any, *items: Item, key: tuple[str, ...] = ("session_id",)) -> None:
    dynamodb.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[
            {"AttributeName": name, "KeyType": kind} for name, kind in zip(key, ("HASH", "RANGE"), strict=False)
        ],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in key],
    )
    for item in items:
        dynamodb.put_item(TableName=TABLE, Item=item)


def left(dynamodb: Any) -> set[str]:
    pages = dynamodb.get_paginator("scan").paginate(TableName=TABLE)
    return {item["session_id"]["S"] for page in pages for item in page["Items"]}


@pytest.fixture
def clients() -> Iterator[Clients]:
    with moto_aws():
        yield Clients(aws_client())


def sweep(clients: Clients, *key: str, page_rows: int = 10) -> FakeContext:
    sessions = DynamoSessions(clients, TABLE, key or ["session_id"], parallel=ONE_THREAD, page_rows=page_rows)
    context = FakeContext()
    job = a_job({}, due_ms=NOW_S * 1000)
    run_to_end(lambda job, cursor, given: session_sweep.sweep_page(sessions, job, cursor, given), job, context)
    return context


# -- the table


def test_the_expired_go_page_by_page_and_the_live_stay(clients: Clients) -> None:
    items = [session(f"s{n}", {"expires_s": {"N": str(NOW_S + n - 20)}}) for n in range(41)]
    create_sessions(clients.dynamodb, *items)
    context = sweep(clients, page_rows=7)
    assert left(clients.dynamodb) == {f"s{n}" for n in range(20, 41)}
    assert context.counted == {session_sweep.DELETED: 20, session_sweep.SPARED: 0}


@pytest.mark.parametrize(
    "expires",
    [
        None,  # lasts for ever
        {"expires_s": {"NULL": True}},
        {"expires_s": {"N": str(NOW_S)}},
        {"expires_s": {"N": f"{NOW_S}.5"}},
    ],
)
def test_a_session_whose_expiry_has_not_passed_is_never_deleted(clients: Clients, expires: Item | None) -> None:
    """Expiries of other types are in tests/e2e: moto cannot compare them."""
    create_sessions(clients.dynamodb, session("s", expires), session("old", {"expires_s": {"N": "-1"}}))
    sweep(clients)
    assert left(clients.dynamodb) == {"s"}


def test_the_delete_asks_again_and_does_not_trust_the_page(clients: Clients) -> None:
    create_sessions(clients.dynamodb, *(session(f"s{n}", {"expires_s": {"N": "5"}}) for n in range(3)))
    sessions = DynamoSessions(clients, TABLE, ["session_id"], parallel=ONE_THREAD)
    page = sessions.page(expired_before_s=NOW_S, resume=None)
    renewed = session("s0", {"expires_s": {"N": str(NOW_S + HOUR_S)}})
    clients.dynamodb.put_item(TableName=TABLE, Item=renewed)
    clients.dynamodb.delete_item(TableName=TABLE, Key={"session_id": {"S": "s1"}})
    assert len(page.expired) == 3
    assert sessions.delete(page.expired, expired_before_s=NOW_S) == 1
    assert left(clients.dynamodb) == {"s0"}


def test_a_table_with_two_key_attributes_whose_names_are_reserved_words(clients: Clients) -> None:
    items = [
        {"user": {"S": f"u{n % 3}"}, "session_id": {"S": f"s{n}"}, "expires_s": {"N": str(NOW_S - 10 + n)}}
        for n in range(20)
    ]
    create_sessions(clients.dynamodb, *items, key=("user", "session_id"))
    sweep(clients, "user", " session_id", page_rows=4)
    assert left(clients.dynamodb) == {f"s{n}" for n in range(10, 20)}


def failing(error: Exception) -> Clients:
    class Client:
        def __getattr__(self, operation: str) -> Any:
            def call(**_: Any) -> Any:
                raise error

            return call

    return Clients(lambda service, config: Client())


def refused(code: str, status: int = 400) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "DeleteItem")


@pytest.mark.parametrize(
    "error",
    [
        refused("ProvisionedThroughputExceededException"),
        refused("ThrottlingException"),
        refused("InternalServerError", 500),
        refused("TransactionConflictException"),  # only the delete can meet one
        ReadTimeoutError(endpoint_url="https://dynamodb"),
    ],
)
def test_a_table_that_does_not_answer_is_an_outage_and_not_the_jobs_failure(error: Exception) -> None:
    sessions = DynamoSessions(failing(error), TABLE, ["session_id"], parallel=ONE_THREAD)
    with pytest.raises(StorageUnavailable):
        sessions.delete([{"session_id": {"S": "s"}}], expired_before_s=NOW_S)


# -- the worker around it

CONFIG = """
[classes.session_sweep]
kind = "session_sweep"
function_timeout_s = 60
options.sessions_table = "game-sessions"
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsWorld]:
    """A deployment on moto: ledger, queues, sessions, and the environment that the handler reads."""
    config = tmp_path / "sluice.toml"
    config.write_text(CONFIG)
    with moto_aws():
        world = AwsWorld(aws_client())
        queues = {"session_sweep": {lane.value: url for lane, url in world.urls.items()}}
        for name, value in {
            "SLUICE_TABLE": world.name,
            "SLUICE_BUCKET": world.name,
            "SLUICE_QUEUES": json.dumps(queues),
            "SLUICE_CONFIG": str(config),
            "POWERTOOLS_SERVICE_NAME": world.name,  # a logger of its own, which writes to this test's output
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(session_sweep, "DELETE_THREADS", 1)
        for cached in (wiring.host, session_sweep._sessions):
            cached.cache_clear()
        yield world
        for cached in (wiring.host, session_sweep._sessions):
            cached.cache_clear()


class Context:
    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def claimed(host: wiring.Host) -> Job:
    """One job, submitted and claimed by a tick whose message is then handed over below."""
    settings = host.settings.classes["session_sweep"]
    submitted = NewJob(job_id="sweep-1", job_class="session_sweep", match_id="sessions", payload="{}")
    submit_jobs(host.ports, host.settings, [submitted])
    now_ms = host.ports.clock.now_ms()
    request = TickRequest(scheduled_ms=window_of(now_ms), source="test", nonce="tick-1", deadline_ms=now_ms + 50_000)
    assert run_tick(host.ports, settings, None, request).confirmed == 1
    job = host.ports.ledger.read_job("sweep-1")
    assert job is not None
    return job


def received(world: AwsWorld, job: Job) -> dict[str, Any]:
    url = world.urls[Lane(job.lane or "live")]
    (message,) = world.clients.sqs.receive_message(QueueUrl=url, MessageSystemAttributeNames=["All"])["Messages"]
    return record_of(message, url)


def test_a_job_sweeps_the_table_of_its_class_and_names_no_session(
    world: AwsWorld, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    host = wiring.host()
    job = claimed(host)
    due_s = job.due_ms // 1000
    create_sessions(
        world.clients.dynamodb,
        *(session(f"canary-{n}", {"expires_s": {"N": str(due_s - 1)}}) for n in range(session_sweep.PAGE_ROWS + 5)),
        session("live", {"expires_s": {"N": str(due_s + HOUR_S)}}),
    )
    assert handler({"Records": [received(world, job)]}, Context()) == {"batchItemFailures": []}
    after = host.ports.ledger.read_job("sweep-1")
    assert after is not None
    assert (after.state, after.attempts) == (State.DONE, 0)
    assert left(world.clients.dynamodb) == {"live"}
    assert host.ports.ledger.outputs("sweep-1") == []
    (stats,) = host.ports.ledger.read_stats("session_sweep", windows_ms=[window_of(host.ports.clock.now_ms())])
    assert stats.counters[session_sweep.DELETED] == session_sweep.PAGE_ROWS + 5
    assert stats.counters["chunks"] == 2
    shown = capfd.readouterr()
    assert "canary" not in shown.out + shown.err + "".join(
        record.getMessage() for record in caplog.records if record.name.split(".")[0] not in ("botocore", "moto")
    )


def test_a_table_that_does_not_exist_is_the_jobs_failure(world: AwsWorld) -> None:
    host = wiring.host()
    job = claimed(host)
    assert handler({"Records": [received(world, job)]}, Context()) == {"batchItemFailures": []}
    after = host.ports.ledger.read_job("sweep-1")
    assert after is not None
    assert (after.state, after.attempts, after.last_error) == (State.WAITING, 1, "ResourceNotFoundException")


def test_the_ledger_is_never_in_reach_by_a_payload(world: AwsWorld) -> None:
    """What a payload says of a table is ignored: the one of the class is swept."""
    create_sessions(world.clients.dynamodb, session("old", {"expires_s": {"N": "5"}}))
    create_table(world.clients.dynamodb, "other")
    context = FakeContext(options={"sessions_table": TABLE})
    job = a_job({"table": "other", "sessions_table": "other"}, due_ms=NOW_S * 1000)
    run_to_end(session_sweep.process_chunk, job, context)
    assert left(world.clients.dynamodb) == set()
