"""The dashboard answers "when is it over" first, on metrics that exist, and names no row."""

from __future__ import annotations

import json
from typing import Any

from tests.infra.shape import Shape, text


def widgets(shape: Shape) -> list[dict[str, Any]]:
    (board,) = shape.of_type("AWS::CloudWatch::Dashboard").values()
    found: list[dict[str, Any]] = json.loads(text(board["Properties"]["DashboardBody"]))["widgets"]
    return found


def names(widget: dict[str, Any]) -> list[str]:
    return [each[1] for each in widget["properties"].get("metrics", [])]


def test_the_first_row_says_of_every_class_when_it_is_over(shape: Shape) -> None:
    first = [each for each in widgets(shape) if each["y"] == 0]

    assert [each["properties"]["title"] for each in first] == [
        "replay_summary: when is it over",
        "session_sweep: when is it over",
    ]
    assert all(names(each) == ["DrainEtaMinutes", "PendingRows", "DrainStalled", "Paused"] for each in first)


def test_below_it_stand_the_alarms_and_what_explains_a_drain(shape: Shape) -> None:
    shown = {name for each in widgets(shape) for name in names(each)}

    assert {"WaitingLiveRows", "WaitingRecoveryRows", "BudgetRows", "AdmittedRows", "DeferredRows"} <= shown
    assert {"UpstreamRatePerSecond", "RatePerSecond", "Refusals", "StartsPerMinute", "InFlightRows"} <= shown
    assert {"RetriesPerMinute", "DeadRows", "DeadLetters", "OldestEligibleAgeSeconds"} <= shown
    assert {"CostUsd", "WasteUsd", "CostPerJobUsd"} <= shown
    (alarm_panel,) = [each for each in widgets(shape) if each["type"] == "alarm"]
    assert len(alarm_panel["properties"]["alarms"]) == len(shape.of_type("AWS::CloudWatch::Alarm"))


def test_a_class_that_is_open_to_the_webhook_shows_its_accepted_and_deduplicated_runs(door_shape: Shape) -> None:
    assert {"WebhookAccepted", "WebhookDeduplicated"} <= {name for each in widgets(door_shape) for name in names(each)}


def test_its_dimension_is_the_class_and_nothing_else(shape: Shape) -> None:
    for each in widgets(shape):
        for metric in each["properties"].get("metrics", []):
            assert metric[0] == "SluiceTest"
            assert metric[2] == "JobClass"
            assert metric[3] in {"replay_summary", "session_sweep"}


def test_the_learned_rate_is_drawn_against_the_declared_limit(shape: Shape) -> None:
    (graph,) = [each for each in widgets(shape) if "UpstreamRatePerSecond" in names(each)]

    assert graph["properties"]["annotations"]["horizontal"] == [
        {"value": 8, "label": "declared limit", "yAxis": "left"}
    ]
