"""Who may ask the webhook, as its secret changes, ages or breaks; and what it answers while a part of it is away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from functions.webhook import handler as entry
from shared.aws import wiring
from shared.domain.control import RunState
from shared.errors import LedgerUnavailable
from tests.handlers.webhook_world import (
    OLD_TOKEN,
    TOKEN,
    WRONG,
    Gate,
    HandSecrets,
    HandTrigger,
    a_gate,
    body_of,
    event_of,
)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return a_gate(monkeypatch)


# -- who may ask


@pytest.mark.parametrize("token", [TOKEN, OLD_TOKEN])
def test_the_current_and_the_previous_secret_are_accepted(gate: Gate, token: str) -> None:
    assert gate.post(token=token).status == 202


@pytest.mark.parametrize("token", [None, "", WRONG, TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "schlüssel" * 5])
def test_any_other_token_is_refused_and_admits_nothing(gate: Gate, token: str | None) -> None:
    answer = gate.post(token=token)
    assert (answer.status, answer.reason) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert gate.runs == []


def test_a_request_without_a_token_costs_no_read_of_the_secret(gate: Gate) -> None:
    gate.post(token=None)
    assert gate.secrets.reads == 0


def test_the_stored_newline_is_not_part_of_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = a_gate(monkeypatch, secrets=HandSecrets(current=TOKEN.encode() + b"\n", previous=None))
    assert gate.post().status == 202


@pytest.mark.parametrize("current", [None, b"", b"\n", b"short", b"fifteen bytes!!\n"])
@pytest.mark.parametrize("token", ["", "short", "fifteen bytes!!", TOKEN, OLD_TOKEN])
def test_a_secret_that_is_missing_or_short_lets_nobody_in(
    monkeypatch: pytest.MonkeyPatch, current: bytes | None, token: str
) -> None:
    gate = a_gate(monkeypatch, secrets=HandSecrets(current=current))  # the previous one is fine, and not enough
    answer = gate.post(token=token)
    assert (answer.status, answer.reason) in {(503, "secret_unusable"), (401, "unauthorized")}
    assert (answer.status == 401) == (token == "")
    assert gate.runs == []


def test_a_broken_secret_is_read_again_once_in_ten_seconds(gate: Gate) -> None:
    gate.secrets.current = b"short"
    assert [gate.post().status for _ in range(5)] == [503] * 5
    assert gate.secrets.reads == 1
    gate.secrets.current = TOKEN.encode()
    gate.clock.now += 10_000
    assert gate.post().status == 202


def test_the_secret_is_read_once_a_minute(gate: Gate) -> None:
    for _ in range(60):
        gate.post()
        gate.clock.now += 1_000
    assert gate.secrets.reads == 1
    gate.post()
    assert gate.secrets.reads == 2


def test_a_token_that_was_rotated_out_dies_within_the_minute(gate: Gate) -> None:
    assert gate.post(token=OLD_TOKEN).status == 202
    gate.secrets.current, gate.secrets.previous = b"canary-token-new-12345678", TOKEN.encode()
    gate.clock.now += 59_999
    assert gate.post(token=OLD_TOKEN).status == 202
    gate.clock.now += 1
    assert gate.post(token=OLD_TOKEN).status == 401


def test_a_new_secret_is_taken_at_once_and_wrong_ones_read_at_most_every_ten_seconds(gate: Gate) -> None:
    gate.post()
    gate.secrets.current, gate.secrets.previous = b"canary-token-new-12345678", TOKEN.encode()
    gate.clock.now += 10_000
    assert gate.post(token="canary-token-new-12345678").status == 202
    reads = gate.secrets.reads
    for _ in range(100):
        assert gate.post(token=WRONG).status == 401
        gate.clock.now += 200
    assert gate.secrets.reads - reads <= 2


def test_without_the_store_a_young_copy_goes_on_and_an_old_one_does_not(gate: Gate) -> None:
    gate.post()
    gate.secrets.up = False
    gate.clock.now += 59_000
    assert [gate.post(token=token).status for token in (TOKEN, WRONG)] == [202, 401]
    gate.clock.now += 1_000
    answer = gate.post()
    assert (answer.status, answer.reason) == (503, "secret_unavailable")
    assert answer.headers["retry-after"] == "5"


def test_a_store_that_fails_is_asked_once_a_second_and_opens_nothing_meanwhile(gate: Gate) -> None:
    gate.secrets.up = False
    for _ in range(40):
        answer = gate.post()
        assert (answer.status, answer.reason) == (503, "secret_unavailable")
        gate.clock.now += 50
    assert (gate.secrets.reads, gate.runs) == (2, [])  # 40 requests in two seconds
    gate.secrets.up = True
    gate.clock.now += 1_000
    assert gate.post().status == 202


def test_a_failed_look_is_forgotten_after_a_second_and_by_a_clock_that_went_back(gate: Gate) -> None:
    gate.secrets.up = False
    assert gate.post().status == 503
    gate.secrets.up = True
    gate.clock.now += 999
    assert gate.post().status == 503
    gate.clock.now += 1
    assert gate.post().status == 202
    gate.restart()
    gate.secrets.up = False
    assert gate.post().status == 503
    gate.secrets.up = True
    gate.clock.now -= 60_000
    assert gate.post(body_of("12:04")).status == 202


# -- what is not there


class AwayLedger:
    def read_control(self, _job_class: str) -> None:
        raise LedgerUnavailable("ThrottlingException")


class StrangeLedger:
    def read_control(self, _job_class: str) -> None:
        raise KeyError(f"canary {TOKEN}")


def test_without_the_ledger_nothing_is_admitted_and_the_caller_may_try_again(gate: Gate) -> None:
    gate.broken(ledger=AwayLedger())
    answer = gate.post()
    assert (answer.status, answer.reason, answer.headers["retry-after"]) == (503, "ledger_unavailable", "5")


def test_a_fault_of_ours_is_a_503_and_prints_its_kind_only(gate: Gate, capfd: pytest.CaptureFixture[str]) -> None:
    gate.broken(ledger=StrangeLedger())
    assert gate.post().status == 503
    printed = "".join(capfd.readouterr())
    assert "KeyError" in printed
    assert "canary" not in printed


def test_a_process_that_cannot_even_start_says_so_and_recovers(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    wrong = tmp_path / "sluice.toml"
    wrong.write_text("[sluice]\ncanary = 1")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", f"webhook-{tmp_path.name}")  # a logger that prints where we listen
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "SluiceTest")
    monkeypatch.setenv("SLUICE_CONFIG", str(wrong))
    for missing in ("SLUICE_TABLE", "SLUICE_BUCKET"):
        monkeypatch.delenv(missing, raising=False)
    wiring.webhook.cache_clear()
    for start in ("nothing is set", "the configuration is wrong"):
        raw: Any = entry.handler(event_of(body_of()), None)
        assert (raw["statusCode"], json.loads(raw["body"])) == (503, {"accepted": False, "reason": "fault"}), start
        assert raw["headers"]["retry-after"] == "5"
        lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert [line["event"] for line in lines if "event" in line] == ["webhook_fault", "webhook_refused"]
        assert lines[0]["error"] == "ConfigError"
        (counted,) = [line for line in lines if "_aws" in line]
        assert counted["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "SluiceTest"
        assert (counted["JobClass"], counted["WebhookRefusedFault"]) == ("unknown", [1.0])
        assert "canary" not in str(lines)
        for name in ("SLUICE_TABLE", "SLUICE_BUCKET"):
            monkeypatch.setenv(name, "x")
        monkeypatch.setenv("SLUICE_QUEUES", "{}")
    gate = a_gate(monkeypatch)  # mended: the next request of the same process is served
    assert gate.post().status == 202


def test_a_run_whose_pacer_cannot_be_asked_is_admitted_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = a_gate(monkeypatch, trigger=HandTrigger(up=False))
    assert gate.post().body["created"] is True
    assert [run.state for run in gate.runs] == [RunState.OPEN]  # for the next tick: tests/webhook/test_webhook_runs.py
