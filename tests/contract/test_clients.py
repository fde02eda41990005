"""Clients are patient for less than the deadline's margin, made late, and their errors are judged in one place."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError
from botocore.stub import Stubber

from shared.aws import clients as module
from shared.aws.clients import (
    HASTY_LEDGER,
    LEDGER,
    OBJECTS,
    ONCE,
    QUEUE,
    SECRETS,
    TRIGGER,
    Clients,
    Patience,
    answered,
)
from shared.aws.ledger import DynamoLedger
from shared.aws.table import PAUSES_S, Table
from shared.domain.control import Allowance
from shared.domain.job import Output, State
from shared.domain.lifecycle import Lost, commit, finish
from shared.domain.ordering import Match, MatchChanged, enter
from shared.domain.settings import ClassSettings
from shared.errors import LedgerUnavailable
from shared.submit.submission import admitted_at_once
from tests.contract.jobs import a_job
from tests.contract.worlds import aws_client

JOB = a_job(state=State.QUEUED, epoch=1)
MOVE = finish(JOB, output=None, nonce="n")
WITH_OUTPUT = commit(JOB, next_cursor="1", output=Output(cursor="", body="{}"), nonce="n")


@pytest.mark.parametrize("patience", (LEDGER, ONCE, QUEUE, OBJECTS, SECRETS, HASTY_LEDGER, TRIGGER))
def test_no_call_outlives_the_margin_of_a_worker(patience: Patience) -> None:
    margin_s = ClassSettings(name="any", kind="any").chunk_margin_s

    assert patience.worst_s + sum(PAUSES_S) < margin_s
    config = patience.config()
    assert (config.connect_timeout, config.read_timeout) == (patience.connect_s, patience.read_s)
    assert config.retries == {"mode": "standard", "total_max_attempts": patience.attempts}


def test_clients_are_made_on_first_use_once_and_with_room_for_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    made = Clients()

    assert made._made == {}
    assert made.dynamodb is made.dynamodb
    assert made.dynamodb is not made.dynamodb_once
    assert made.sqs.meta.config.max_pool_connections >= 32


def test_importing_the_adapters_makes_no_client_and_needs_no_region() -> None:
    code = "import boto3; boto3.session.Session = None; import shared.aws.wiring"

    assert subprocess.run([sys.executable, "-c", code], env={}, check=False).returncode == 0


def test_the_sdk_does_not_print_requests_at_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    assert Clients().dynamodb is not None

    for name in module._QUOTING:
        assert logging.getLogger(name).getEffectiveLevel() >= logging.ERROR


# -- errors


@pytest.mark.parametrize(
    "error",
    (
        ReadTimeoutError(endpoint_url="x"),
        ConnectTimeoutError(endpoint_url="x"),
        EndpointConnectionError(endpoint_url="x"),
    ),
)
def test_a_network_that_fails_is_unavailable(error: Exception) -> None:
    with pytest.raises(LedgerUnavailable), answered(LedgerUnavailable):
        raise error


@pytest.fixture
def stubbed() -> Any:
    client = aws_client()("dynamodb", LEDGER.config())
    slept: list[float] = []
    ledger = DynamoLedger(Table(Clients(lambda *_: client), "table", sleep=slept.append))
    with Stubber(client) as stubber:
        yield ledger, stubber, slept


@pytest.mark.parametrize(
    ("code", "status"),
    (
        ("ProvisionedThroughputExceededException", 400),
        ("ThrottlingException", 400),
        ("RequestLimitExceeded", 400),
        ("InternalServerError", 500),
        ("Unheard", 503),
    ),
)
def test_a_throttle_and_a_server_error_are_unavailable(stubbed: Any, code: str, status: int) -> None:
    ledger, stubber, _ = stubbed
    stubber.add_client_error("update_item", code, http_status_code=status)

    with pytest.raises(LedgerUnavailable, match=code):
        ledger.move(MOVE)


@pytest.mark.parametrize("code", ("ValidationException", "AccessDeniedException", "ResourceNotFoundException"))
def test_a_bug_is_raised_as_it_is(stubbed: Any, code: str) -> None:
    ledger, stubber, _ = stubbed
    stubber.add_client_error("update_item", code, http_status_code=400)

    with pytest.raises(ClientError, match=code):
        ledger.move(MOVE)


def test_a_conflict_is_tried_again_with_jitter(stubbed: Any) -> None:
    ledger, stubber, slept = stubbed
    for _ in range(2):
        stubber.add_client_error("update_item", "TransactionConflictException", http_status_code=400)
    stubber.add_client_error("update_item", "ConditionalCheckFailedException", http_status_code=400)

    assert ledger.move(MOVE) == Lost()
    assert all(0 < pause <= full for pause, full in zip(slept, PAUSES_S, strict=False))
    assert len(slept) == 2


def test_a_conflict_that_lasts_is_unavailable(stubbed: Any) -> None:
    ledger, stubber, _ = stubbed
    for _ in range(len(PAUSES_S) + 1):
        stubber.add_client_error("update_item", "TransactionConflictException", http_status_code=400)

    with pytest.raises(LedgerUnavailable, match="conflict"):
        ledger.move(MOVE)


def _cancelled(stubber: Stubber, *codes: str) -> None:
    stubber.add_client_error(
        "transact_write_items",
        "TransactionCanceledException",
        http_status_code=400,
        modeled_fields={"CancellationReasons": [{"Code": code} for code in codes]},
    )


def test_a_cancelled_transaction_is_judged_by_item(stubbed: Any) -> None:
    ledger, stubber, slept = stubbed
    _cancelled(stubber, "TransactionConflict", "None")
    _cancelled(stubber, "None", "ThrottlingError")
    _cancelled(stubber, "ConditionalCheckFailed", "TransactionConflict")

    assert ledger.move(WITH_OUTPUT) == Lost()  # two that pass, then a condition that decides
    assert len(slept) == 2


ALLOWANCE = Allowance(job_class="replay", rows=1, run_id="r")
ENTERING = admitted_at_once(a_job(), ALLOWANCE, now_ms=1)
STEP = enter(Match(job_class="replay", match_id="m"), ENTERING)
ALL_ATTEMPTS = len(PAUSES_S) + 1


def test_who_meets_other_submitters_at_every_attempt_does_without_the_allowance(stubbed: Any) -> None:
    ledger, stubber, _ = stubbed
    for _ in range(ALL_ATTEMPTS):
        _cancelled(stubber, "None", "TransactionConflict")
    for _ in range(ALL_ATTEMPTS):
        _cancelled(stubber, "None", "None", "None", "TransactionConflict")

    assert not ledger.spend(ALLOWANCE, [ENTERING])
    assert ledger.step_match(STEP, spends=ALLOWANCE) == MatchChanged()


def test_a_match_that_is_held_by_others_at_every_attempt_is_unavailable(stubbed: Any) -> None:
    ledger, stubber, _ = stubbed
    for _ in range(ALL_ATTEMPTS):
        _cancelled(stubber, "TransactionConflict", "None", "None")

    with pytest.raises(LedgerUnavailable, match="conflict"):
        ledger.step_match(STEP)


def test_a_tick_or_a_pause_outlasts_a_burst_of_submitters_at_the_allowance(stubbed: Any) -> None:
    ledger, stubber, _ = stubbed
    for _ in range(3 * ALL_ATTEMPTS):
        stubber.add_client_error("update_item", "TransactionConflictException", http_status_code=400)
    stubber.add_response("update_item", {"Attributes": {"granted": {"N": "3"}, "spent_0": {"N": "1"}}})

    assert ledger.withdraw("replay").unspent == 2


@pytest.mark.parametrize("codes", (("ValidationError", "None"), ("ConditionalCheckFailed", "ValidationError")))
def test_a_transaction_that_is_wrong_is_a_bug(stubbed: Any, codes: tuple[str, str]) -> None:
    ledger, stubber, _ = stubbed
    _cancelled(stubber, *codes)

    with pytest.raises(ClientError):
        ledger.move(WITH_OUTPUT)


def test_a_batch_of_creations_sends_again_what_was_throttled(stubbed: Any) -> None:
    ledger, stubber, _ = stubbed
    throttled = {"Error": {"Code": "ThrottlingError", "Message": ""}}
    stubber.add_response("batch_execute_statement", {"Responses": [throttled, {}, throttled]})
    stubber.add_response("batch_execute_statement", {"Responses": [{}, {}]})

    assert [answer.value for answer in ledger.create([a_job(f"j{n}") for n in range(3)])] == ["created"] * 3


def test_a_batch_with_a_statement_that_is_wrong_is_a_bug(stubbed: Any) -> None:
    ledger, stubber, _ = stubbed
    wrong = {"Error": {"Code": "ValidationError", "Message": "too large"}}
    stubber.add_response("batch_execute_statement", {"Responses": [{}, wrong]})

    with pytest.raises(ClientError, match="ValidationError"):
        ledger.create([a_job(f"j{n}") for n in range(2)])


def test_a_batch_read_goes_on_with_what_was_left_out(stubbed: Any) -> None:
    ledger, stubber, _ = stubbed
    key = {"pk": {"S": "STATS#replay#1970-01-01T00:00Z#0"}, "sk": {"S": "STATS"}}
    left_out = {"table": {"Keys": [key]}}
    stubber.add_response("batch_get_item", {"Responses": {}, "UnprocessedKeys": left_out})
    stubber.add_response("batch_get_item", {"Responses": {"table": [key | {"c_calls": {"N": "2"}}]}})

    (window,) = ledger.read_stats("replay", windows_ms=[0])
    assert window.counters == {"calls": 2}


def test_only_the_paginating_helper_asks_for_what_comes_in_pages() -> None:
    """`Table.call` takes the operation as text, which the architecture's law does not see."""
    paged = {"query", "scan", "batch_get_item"}
    found = {
        path.name
        for path in Path(module.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in paged
    }

    assert found == {"table.py"}
