"""The webhook answer by answer: who may ask, what counts as asking, and what comes of it (I6, I12)."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from msgspec.structs import replace

from shared.domain.control import WEBHOOK, Run, RunKey, RunState
from shared.domain.job import Flag
from tests.handlers.webhook_world import (
    CLASS,
    NOW_MS,
    SCHEDULED,
    SHUT,
    WRONG,
    Gate,
    a_gate,
    body_of,
    event_of,
)

KEY = RunKey.of(CLASS, NOW_MS)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return a_gate(monkeypatch)


# -- one run per minute and class


def test_the_first_request_creates_the_run_and_asks_the_pacer(gate: Gate) -> None:
    answer = gate.post()
    assert (answer.status, answer.body) == (202, {"accepted": True, "created": True, "run_id": KEY.run_id})
    assert gate.runs == [Run(key=KEY, state=RunState.OPEN, source=WEBHOOK)]
    assert gate.trigger.started == [KEY]


def test_every_repeat_is_accepted_creates_nothing_and_asks_nobody(gate: Gate) -> None:
    gate.post()
    for answer in [gate.post() for _ in range(5)]:
        assert (answer.status, answer.body) == (202, {"accepted": True, "created": False, "run_id": KEY.run_id})
    assert (len(gate.runs), gate.trigger.started) == (1, [KEY])


def test_an_admission_is_one_write(gate: Gate) -> None:
    gate.post()
    assert dict(gate.ledger.writes) == {"admit_run": 1}


def test_a_minute_that_the_schedule_has_admitted_is_the_same_run(gate: Gate) -> None:
    key = RunKey.of(SCHEDULED, NOW_MS)
    assert gate.ledger.admit_run(key, source="schedule", now_ms=NOW_MS)
    assert gate.post(body_of(job_class=SCHEDULED)).body["created"] is False
    assert [run.source for run in gate.runs] == ["schedule"]


def test_the_last_moment_of_a_minute_and_the_first_of_the_next_are_two_runs(gate: Gate) -> None:
    gate.clock.now = NOW_MS - 5 * 60_000
    before = gate.post(body_of("11:59", scheduled_at="2026-11-30T11:59:59.9Z"))
    after = gate.post(body_of("12:00", scheduled_at="2026-11-30T12:00:00.1Z"))
    assert [answer.body["created"] for answer in (before, after)] == [True, True]
    assert [run.key.run_id[-6:] for run in gate.runs] == ["11:59Z", "12:00Z"]


def test_classes_have_runs_of_their_own(gate: Gate) -> None:
    assert gate.post(body_of(job_class=SCHEDULED)).body["created"] is True
    assert gate.post().body["created"] is True


# -- what is refused


@pytest.mark.parametrize(
    ("event", "status", "reason"),
    [
        (event_of(body_of(), method="GET"), 405, "method"),
        (event_of(body_of(), method="DELETE", token=None), 405, "method"),
        (event_of(body_of(), **{"content-type": "text/plain"}), 415, "content_type"),
        (event_of(b"x" * 4097), 413, "too_large"),
        (event_of("{"), 400, "not_json"),
        (event_of(body_of() | {"limit": "9"}), 400, "wrong_fields"),
        (event_of(body_of() | {"run_id": "mine"}), 400, "wrong_run_id"),
        (event_of(body_of(job_class=SHUT)), 400, "class_not_open"),
        (event_of(body_of("12:02")), 409, "stale"),
        (event_of(body_of("12:06")), 409, "future"),
    ],
)
def test_what_is_refused_says_why_and_admits_nothing(gate: Gate, event: Any, status: int, reason: str) -> None:
    answer = gate.ask(event)
    assert (answer.status, answer.body) == (status, {"accepted": False, "reason": reason})
    assert gate.runs == []


def test_a_wrong_method_is_told_the_right_one(gate: Gate) -> None:
    assert gate.post(method="PUT").headers["allow"] == "POST"


def test_without_the_token_nothing_is_said_about_the_body(gate: Gate) -> None:
    for body in ("{", b"x" * 9000, body_of("09:00"), body_of(job_class=SHUT)):
        assert gate.ask(event_of(body, token=WRONG)).status == 401


# -- the switch


def test_a_closed_webhook_admits_nothing_at_once_and_opens_again(gate: Gate) -> None:
    flag = Flag(by="ada", why="a token was printed", at_ms=NOW_MS)
    assert gate.post().status == 202
    gate.ledger.switch_webhook(CLASS, flag, closed=True)
    for minute in ("12:05", "12:04"):
        answer = gate.post(body_of(minute))
        assert (answer.status, answer.reason) == (409, "closed")
    assert gate.post(body_of(job_class=SCHEDULED)).status == 202  # each class has its own
    gate.ledger.switch_webhook(CLASS, replace(flag, why="rotated"), closed=False)
    assert gate.post(body_of("12:04")).body["created"] is True


# -- what is printed


def test_nothing_printed_at_debug_holds_a_token_or_what_a_caller_wrote(
    gate: Gate, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POWERTOOLS_LOG_LEVEL", "DEBUG")
    caplog.set_level(logging.DEBUG)
    gate.restart()
    gate.post()
    gate.post(token=WRONG)
    gate.post("canary-body")
    gate.post(body_of() | {"job_class": "canary-class"})
    gate.post(body_of() | {"run_id": "canary-run"})
    gate.post(**{"canary-header": "canary-value"})
    gate.ask({"canary": "canary"})
    printed = "".join(capfd.readouterr()) + caplog.text
    assert printed.count("webhook_refused") >= 5
    assert "canary" not in printed


def metrics_in(printed: str) -> list[dict[str, Any]]:
    documents = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return [document for document in documents if "_aws" in document]


def test_accepted_deduplicated_and_refused_are_counted_by_class_and_reason(
    gate: Gate, capfd: pytest.CaptureFixture[str]
) -> None:
    gate.post()
    gate.post()
    gate.post(token=WRONG)
    gate.post(body_of("12:02"))
    counted = [
        {name: value for name, value in document.items() if name not in ("_aws", "JobClass")}
        | {"class": document["JobClass"]}
        for document in metrics_in(capfd.readouterr().out)
    ]
    assert counted == [
        {"WebhookAccepted": [1.0], "class": CLASS},
        {"WebhookDeduplicated": [1.0], "class": CLASS},
        {"WebhookRefused": [1.0], "WebhookRefusedUnauthorized": [1.0], "class": "unknown"},
        {"WebhookRefused": [1.0], "WebhookRefusedStale": [1.0], "class": CLASS},
    ]
