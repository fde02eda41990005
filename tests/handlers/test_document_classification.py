"""`document_classification` through the real worker at DEBUG: nothing about the patient in anything that it prints,
writes to the ledger, sends to a queue or asks under."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shared.aws.upstream import HttpUpstream
from shared.domain.job import NewJob, State
from shared.domain.settings import UpstreamSettings
from shared.errors import QuotaExhausted, Refused, UpstreamFailed, UpstreamHeld, UpstreamRejected
from tests.content.records import CANARIES, LABELS, record
from tests.handlers.deployment import Deployment, deployed

CONFIG = f"""
[upstreams.model]
endpoint = "http://127.0.0.1:1/v1/classify"
limit_per_s = 400

[classes.document_classification]
kind = "document_classification"
upstream = "model"
function_timeout_s = 60
options.labels = "{LABELS}"
"""


@dataclass(slots=True)
class Model:
    """Stands where the HTTP client stands: what it is asked is what leaves the process."""

    label: Any = "discharge_letter"
    error: Exception | None = None
    asked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def call(
        self, _: UpstreamSettings, body: Mapping[str, Any], *, idempotency_key: str, timeout_s: float
    ) -> Mapping[str, Any]:
        self.asked.append((idempotency_key, body))
        if self.error is not None:
            raise self.error
        return {"label": self.label, "echo": "Hannelore Kanarienvogel"}


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    model = Model()
    monkeypatch.setattr(HttpUpstream, "call", lambda _, *args, **options: model.call(*args, **options))
    return model


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    with deployed(CONFIG, tmp_path, monkeypatch) as world:
        yield world


@pytest.fixture
def said(world: Deployment, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Asserts in the end that no canary is in the output, the logs, the ledger or the queues."""
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []
    yield seen
    shown = capfd.readouterr()
    # Of the call: in a fixture's last part `caplog.records` are that part's own.
    records = [each for each in caplog.get_records("call") if each.name.split(".")[0] != "moto"]
    rows = world.aws.clients.dynamodb.scan(TableName=world.aws.name)["Items"]
    queued = [
        message["Body"]
        for url in world.aws.urls.values()
        for message in world.aws.clients.sqs.receive_message(QueueUrl=url, VisibilityTimeout=0).get("Messages", ())
    ]
    seen += [shown.out, shown.err, *(each.getMessage() for each in records), str(rows), *queued]
    assert [canary for canary in CANARIES if any(canary in each for each in seen)] == []
    assert "rec-1" in str(rows), "the ledger was looked at"


def a_document(job_id: str = "doc-1") -> NewJob:
    payload = json.dumps({"record_id": "rec-1"})
    return NewJob(job_id=job_id, job_class="document_classification", match_id=job_id, payload=payload)


def test_a_document_is_classified_and_nothing_about_the_patient_is_seen(
    world: Deployment, model: Model, said: list[str]
) -> None:
    world.put("records/rec-1", record())
    (row,) = world.work(a_document())
    assert (row.state, row.attempts) == (State.DONE, 0)
    assert world.objects("labels/") == {"labels/rec-1.json": b'{"record_id": "rec-1", "label": "discharge_letter"}'}
    ((key, body),) = model.asked
    assert key == "doc-1::0"
    assert not any(
        canary in json.dumps(body) for canary in CANARIES if canary not in ("diabetes-canary", *LABELS.split(", "))
    )


@pytest.mark.parametrize(
    ("content", "label", "error", "reason"),
    [
        (record(), "Hannelore", None, "bad_answer"),
        (record(), {"name": "Hannelore"}, None, "bad_answer"),
        (b'{"patient": "Hannelore"', "x", None, "bad_payload"),
        (record(), "x", UpstreamRejected("400"), "upstream_rejected"),
        (record(), "x", Refused(1.0), "refused"),
        (record(), "x", UpstreamHeld(1.0), "held"),
        (record(), "x", UpstreamFailed("500"), "upstream_failed"),
        (record(), "x", QuotaExhausted("402"), "quota_exhausted"),
        (record(), "x", ValueError("Hannelore Kanarienvogel, 1957-03-09"), "ValueError"),  # a library that quotes
    ],
)
def test_what_fails_says_so_with_a_reason_code_and_nothing_else(
    world: Deployment, model: Model, said: list[str], content: bytes, label: Any, error: Exception | None, reason: str
) -> None:
    model.label, model.error = label, error
    world.put("records/rec-1", content)
    (row,) = world.work(a_document())
    assert (row.state, row.last_error) == (State.WAITING, reason)
    assert world.objects("labels/") == {}


def test_a_record_that_is_not_there_is_named_by_its_kind_of_fault_only(
    world: Deployment, model: Model, said: list[str]
) -> None:
    (row,) = world.work(a_document())
    assert (row.last_error, model.asked) == ("object_missing", [])
