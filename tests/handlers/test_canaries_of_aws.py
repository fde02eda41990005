"""I12 when AWS fails: its errors quote what they were asked, and no handler passes that on."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError, ParamValidationError

from functions.dead_letter.handler import handler as dead_letter
from functions.intake.handler import handler as intake
from functions.pacer.handler import handler as pacer
from functions.rotation.handler import handler as rotation
from functions.webhook.handler import handler as webhook
from functions.worker.handler import handler as worker
from shared.aws import wiring
from tests.handlers.canaries import MATCH, OBJECT, PAYLOAD, TOKEN, Site, asked, install, match_event, returning


@contextmanager
def aws_quotes(operation: str, patch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """This operation is refused with an error that quotes all that it was given. Yields who met it."""
    real, met = BaseClient._make_api_call, []

    def call(client: Any, name: str, params: Any) -> Any:
        if name != operation:
            return real(client, name, params)
        met.append(name)
        if len(met) % 2:
            said = f"One or more parameter values were invalid: {params}"
            raise ClientError({"Error": {"Code": "ValidationException", "Message": said}}, name)
        raise ParamValidationError(report=f"Invalid type for parameter, value: {params}")

    with patch.context() as inner:
        inner.setattr(BaseClient, "_make_api_call", call)
        yield met


QUOTED = [
    (worker, "GetItem"),
    (worker, "GetObject"),
    (worker, "UpdateItem"),
    (worker, "TransactWriteItems"),
    (worker, "ChangeMessageVisibility"),
    (worker, "DeleteMessage"),
    (dead_letter, "GetItem"),
    (dead_letter, "UpdateItem"),
    (pacer, "GetItem"),
    (pacer, "Query"),
    (pacer, "UpdateItem"),
    (pacer, "TransactWriteItems"),
    (pacer, "SendMessageBatch"),
    (intake, "BatchExecuteStatement"),
    (intake, "PutObject"),
    (webhook, "GetSecretValue"),
    (webhook, "GetItem"),
    (webhook, "PutItem"),
    (webhook, "Invoke"),
    (rotation, "DescribeSecret"),
    (rotation, "GetSecretValue"),
    (rotation, "UpdateSecretVersionStage"),
]


def test_errors_of_aws_that_quote_their_request(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, returning(PAYLOAD, {"x": PAYLOAD}))
    site.aws.secrets.create_secret(Name="the-secret", SecretString=TOKEN)
    batches, ticks = batches_of(site), ticks_of(site)
    ready: dict[Any, Callable[[], Any]] = {
        worker: lambda: next(batches),
        dead_letter: lambda: next(batches),
        pacer: lambda: next(ticks),
        intake: lambda: ended(site),
        webhook: lambda: asked(site),
        rotation: lambda: turned(site),
    }
    unmet = []
    for handler, operation in QUOTED:
        event = ready[handler]()
        wiring.webhook.cache_clear()  # it remembers the secret
        with aws_quotes(operation, monkeypatch) as met:
            site.call(handler, event)
            site.call(handler, event)  # the other kind of error
        unmet += [] if met else [f"{handler.__module__} {operation}"]
    assert " ".join(unmet) == ""


def batches_of(site: Site) -> Iterator[dict[str, Any]]:
    """Two messages each: one whose payload lies in the object store, one that was delivered before."""
    batches = sum(handler in (worker, dead_letter) for handler, _ in QUOTED)
    large, small = {"note": PAYLOAD, "padding": "x" * 40_000}, {"note": PAYLOAD}
    site.submit("anything", *[large] * batches)
    site.submit("anything", *[small] * batches)
    site.tick("anything")
    records = {json.loads(record["body"])["job_id"]: record for record in site.records("anything")}
    in_order = [records[each] for each in sorted(records, key=lambda job_id: int(job_id.rpartition("/")[2]))]
    for first, second in zip(in_order[:batches], in_order[batches:], strict=True):
        second["attributes"]["ApproximateReceiveCount"] = "2"
        yield {"Records": [first, second]}


def ticks_of(site: Site) -> Iterator[dict[str, Any]]:
    """The first tick of a class: later ones may admit only what was earned since."""
    for name in site.host.settings.classes:
        if name != "anything":
            site.submit(name, {"note": PAYLOAD})
            yield {"job_class": name, "scheduled_at": "2026-11-30T13:00:00Z"}


def ended(site: Site) -> Any:
    """So many screenshots that their job's payload goes to the object store."""
    shots = [f"{OBJECT}/{number}/{'x' * 300}" for number in range(200)]
    return match_event(match_id=f"{MATCH} {site.calls}", screenshots=shots)


def turned(site: Site) -> Any:
    version = str(uuid.uuid4())
    site.aws.secrets.put_secret_value(
        SecretId="the-secret", ClientRequestToken=version, SecretString=f"{TOKEN}-new", VersionStages=["AWSPENDING"]
    )
    return {"Step": "finishSecret", "SecretId": "the-secret", "ClientRequestToken": version}
