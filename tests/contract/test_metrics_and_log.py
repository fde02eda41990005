"""What leaves the process: one class per metric document, finite numbers, and never what a job holds (I12)."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from ops.simulator.ports import SimLog
from shared.aws.runtime import ThreadParallel
from shared.aws.telemetry import EmfMetrics, JsonLog, unit_of
from shared.domain.job import Lane, Output
from shared.domain.lifecycle import commit
from shared.errors import InvalidInput
from shared.ports import RESERVED, Log
from tests.contract.jobs import a_job, claim_of, won
from tests.contract.test_queue import outgoing, record
from tests.contract.worlds import CLASS, AwsWorld

CANARY = "patient-4711"


def documents(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def metrics_of(document: Mapping[str, Any]) -> dict[str, str]:
    (directive,) = document["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "Sluice"
    assert directive["Dimensions"] == [["JobClass"]]
    return {metric["Name"]: metric["Unit"] for metric in directive["Metrics"]}


def test_a_set_of_values_is_one_document_with_one_dimension(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "worker")  # would be a second dimension
    EmfMetrics("Sluice").emit(CLASS, {"PendingRows": 2, "DrainEtaMinutes": 1.5})

    (document,) = documents(capsys)
    assert metrics_of(document) == {"PendingRows": "Count", "DrainEtaMinutes": "None"}
    assert (document["JobClass"], document["PendingRows"], document["DrainEtaMinutes"]) == (CLASS, [2.0], [1.5])
    assert "service" not in document


def test_two_classes_never_share_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = EmfMetrics("Sluice")
    ThreadParallel(8).map(
        lambda number: metrics.emit(f"class-{number}", {"PendingRows": number, f"Only{number}": 1}), list(range(40))
    )

    found = documents(capsys)
    assert sorted(document["JobClass"] for document in found) == sorted(f"class-{number}" for number in range(40))
    for document in found:
        number = int(document["JobClass"].removeprefix("class-"))
        assert set(metrics_of(document)) == {"PendingRows", f"Only{number}"}
        assert document["PendingRows"] == [number]


@pytest.mark.parametrize("value", (float("nan"), float("inf"), float("-inf")))
def test_a_value_that_is_not_finite_is_refused_whole(capsys: pytest.CaptureFixture[str], value: float) -> None:
    with pytest.raises(ValueError, match="DrainEtaMinutes"):
        EmfMetrics("Sluice").emit(CLASS, {"PendingRows": 2, "DrainEtaMinutes": value})
    assert capsys.readouterr().out == ""


def test_more_values_than_a_document_holds_are_several(capsys: pytest.CaptureFixture[str]) -> None:
    EmfMetrics("Sluice").emit(CLASS, {f"Metric{number}": number for number in range(250)})

    names = [name for document in documents(capsys) for name in metrics_of(document)]
    assert sorted(names) == sorted(f"Metric{number}" for number in range(250))


@pytest.mark.parametrize(
    ("name", "unit"),
    (
        ("RatePerSecond", "Count/Second"),
        ("OldestEligibleAgeSeconds", "Seconds"),
        ("ChunkMilliseconds", "Milliseconds"),
        ("DrainEtaMinutes", "None"),
        ("SentBytes", "Bytes"),
        ("AdmittedRows", "Count"),
    ),
)
def test_the_end_of_a_name_is_its_unit(name: str, unit: str) -> None:
    assert unit_of(name) == unit


def test_a_log_line_is_json_with_a_stable_event(capsys: pytest.CaptureFixture[str]) -> None:
    JsonLog().event("tick_closed", job_class=CLASS, budget=7, paused=False)

    (line,) = documents(capsys)
    assert line["event"] == line["message"] == "tick_closed"
    assert (line["job_class"], line["budget"], line["paused"]) == (CLASS, 7, False)
    assert line["level"] == "INFO"


@pytest.mark.parametrize("log", [JsonLog(), SimLog(lambda: 0)], ids=["production", "simulation"])
@pytest.mark.parametrize("field", sorted(RESERVED - {"name"}))
def test_a_field_that_every_line_has_is_refused_by_name(
    log: Log, field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=f"every line has already: {field}"):
        log.event("tick_closed", **{field: 1})
    assert capsys.readouterr().out == ""


def test_all_that_python_and_powertools_put_into_a_line_is_reserved(capsys: pytest.CaptureFixture[str]) -> None:
    JsonLog().event("tick_closed")
    try:
        raise KeyError("x")
    except KeyError:
        JsonLog()._logger.exception("fault")
    of_lines = {key for line in documents(capsys) for key in line}

    assert set(vars(logging.makeLogRecord({}))) | {"message", "asctime"} | of_lines <= RESERVED


def test_nothing_that_a_job_holds_is_printed_at_debug(
    moto_world: AwsWorld, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("boto3", "botocore", "s3transfer", "urllib3"):  # as in a process that made its session with us
        logging.getLogger(name).setLevel(logging.WARNING)
    job = a_job(CANARY, payload=f'"{CANARY}"', match_id=CANARY)
    with caplog.at_level(logging.DEBUG):
        moto_world.ledger.create([job, a_job("other", payload=CANARY)])
        row = won(moto_world.ledger.move(claim_of(job)))
        moto_world.ledger.move(commit(row, next_cursor=CANARY, output=Output(cursor="", body=CANARY), nonce="n"))
        moto_world.queue.send_batch(CLASS, Lane.LIVE, [outgoing(job_id=CANARY, match_id=CANARY)])
        moto_world.receive(Lane.LIVE)
        moto_world.blobs.put_once(CANARY, CANARY.encode(), content_type="text/plain")
        with pytest.raises(InvalidInput) as refused:
            moto_world.queue.delivery_of(record(body=CANARY))
        JsonLog().event("send_unconfirmed", job_class=CLASS, messages=1)

    printed = capfd.readouterr()
    assert CANARY not in printed.out + printed.err + caplog.text + str(refused.value)
