"""The alarm table: every row complete, on a metric that is really printed, with a heading in docs/operations.md."""

from __future__ import annotations

import re
from typing import Any

import pytest

from infra.alarms import RUNBOOK
from shared.pacer.forecast import ETA_TICKS
from tests.infra.conftest import ROOT, ShapeOf
from tests.infra.shape import Shape

FOUR_SIGNALS = ("DrainEtaGrowing", "DeferredAtZero", "ChunkNearTheWall", "Refusals")
EVERY_CLASS = {
    "DrainEta",
    "DrainEtaGrowing",
    "DrainEtaAccelerating",
    "DrainStalled",
    "DeferredAtZero",
    "NoTick",
    "StoppedItself",
    "ChunkNearTheWall",
    "NoStarts",
    "HopCap",
    "OldestAge",
    "DeadRows",
    "DeadLetters",
}
OF_AN_UPSTREAM = {"Refusals", "PermitsStarved"}
OF_A_SPEND_BOUND = {"Spend"}
CLASSES = {"replay_summary": "ReplaySummary", "session_sweep": "SessionSweep"}


def alarms(shape: Shape) -> dict[str, dict[str, Any]]:
    return {key: each["Properties"] for key, each in shape.of_type("AWS::CloudWatch::Alarm").items()}


def heading(properties: dict[str, Any]) -> str:
    return str(properties["AlarmDescription"]).rpartition("#")[2]


def of(shape: Shape, job_class: str, runbook: str) -> dict[str, Any]:
    """The one alarm of a class with this heading."""
    (alarm,) = [
        properties
        for key, properties in alarms(shape).items()
        if key.startswith(f"Alarms{CLASSES[job_class]}{runbook}") and heading(properties) == runbook.lower()
    ]
    return alarm


def test_every_class_has_the_whole_table_and_one_with_an_upstream_more(shape: Shape) -> None:
    headings: dict[str, set[str]] = {name: set() for name in CLASSES}
    for key, properties in alarms(shape).items():
        for name, prefix in CLASSES.items():
            if key.startswith(f"Alarms{prefix}"):
                headings[name].add(heading(properties))
    assert headings["replay_summary"] == {each.lower() for each in EVERY_CLASS | OF_AN_UPSTREAM | OF_A_SPEND_BOUND}
    assert headings["session_sweep"] == {each.lower() for each in EVERY_CLASS}


def test_an_alarm_states_each_of_its_properties(shape: Shape) -> None:
    for key, properties in alarms(shape).items():
        assert set(properties) == {
            "ActionsEnabled",
            "AlarmActions",
            "AlarmDescription",
            "ComparisonOperator",
            "DatapointsToAlarm",
            "Dimensions",
            "EvaluationPeriods",
            "MetricName",
            "Namespace",
            "OKActions",
            "Period",
            "Statistic",
            "Threshold",
            "TreatMissingData",
        } - {"ActionsEnabled"}, key
        assert properties["AlarmActions"] == properties["OKActions"] == [{"Ref": "AlarmTopic"}]
        assert properties["TreatMissingData"] != "missing", key
        assert 1 <= properties["DatapointsToAlarm"] <= properties["EvaluationPeriods"]
        assert len(properties["AlarmDescription"]) <= 1024
        # A day, or a week for periods of an hour and more, is all that CloudWatch evaluates over.
        span_s = properties["Period"] * properties["EvaluationPeriods"]
        assert span_s <= (7 * 86_400 if properties["Period"] >= 3600 else 86_400)


PARTS = ("- **First look:** ", "- **Command:** ", "- **Escalate:** ")


def sections() -> dict[str, str]:
    """The runbook's headings, in small letters as its anchors are, and what stands below each."""
    text = (ROOT / RUNBOOK).read_text(encoding="utf-8").partition("\n# Alarms\n")[2]
    _, *parts = re.split(r"^## (\w+)$", text, flags=re.MULTILINE)
    return {name.lower(): body for name, body in zip(parts[::2], parts[1::2], strict=True)}


def test_every_alarm_has_its_heading_in_the_runbook_and_every_heading_its_alarm(
    shape: Shape, shape_of: ShapeOf
) -> None:
    both = (shape, shape_of("everything"))  # which has a webhook and producers, and no bound to what it spends
    assert set(sections()) == {heading(alarm) for one in both for alarm in alarms(one).values()}
    assert all(f"{RUNBOOK}#" in each["AlarmDescription"] for each in alarms(shape).values())


def test_every_heading_says_what_it_means_where_to_look_what_to_type_and_when_to_escalate() -> None:
    for name, body in sections().items():
        assert body.lstrip().startswith("*"), f"{name} begins with its meaning"
        places = [body.find(part) for part in PARTS]
        assert places == sorted(places), name
        assert min(places) > 0, name
        assert "`" in body[places[1] : places[2]], f"{name} names a command"


@pytest.mark.parametrize("signal", FOUR_SIGNALS)
def test_the_four_signals_say_what_to_change(shape: Shape, signal: str) -> None:
    assert " Change: " in of(shape, "replay_summary", signal)["AlarmDescription"]


def test_a_class_s_own_alarms_count_in_its_tick_intervals(shape: Shape) -> None:
    for properties in alarms(shape).values():
        if properties["Namespace"] == "SluiceTest":
            interval_s = {"replay_summary": 60, "session_sweep": 300}[properties["Dimensions"][0]["Value"]]
            assert properties["Period"] == interval_s
    assert of(shape, "replay_summary", "NoStarts")["EvaluationPeriods"] == 10
    assert of(shape, "session_sweep", "NoStarts")["EvaluationPeriods"] == 2


def test_silence_is_the_heartbeat_s_alarm_and_nobody_else_s(shape: Shape) -> None:
    beat = of(shape, "replay_summary", "NoTick")

    assert (beat["MetricName"], beat["Statistic"], beat["EvaluationPeriods"]) == ("Ticks", "Sum", 2)
    assert (beat["ComparisonOperator"], beat["Threshold"]) == ("LessThanThreshold", 1)
    breaching = [heading(each) for each in alarms(shape).values() if each["TreatMissingData"] == "breaching"]
    assert set(breaching) == {"notick"}


def test_thresholds_follow_the_configuration(shape: Shape) -> None:
    assert of(shape, "replay_summary", "DrainEta")["Threshold"] == 240  # minutes: four hours
    assert of(shape, "replay_summary", "OldestAge")["Threshold"] == 3600
    assert of(shape, "replay_summary", "ChunkNearTheWall")["Threshold"] == 88  # 80 % of 120 s less 10 s
    assert of(shape, "replay_summary", "Refusals")["Threshold"] == 0.02
    assert of(shape, "replay_summary", "Spend")["Threshold"] == 4  # 80 % of 5 USD
    assert (of(shape, "session_sweep", "DrainEtaAccelerating")["Threshold"]) == 1.25  # a quarter of five minutes


def test_a_stall_outlasts_the_ticks_that_the_eta_looks_back_over(shape: Shape) -> None:
    assert of(shape, "replay_summary", "DrainStalled")["EvaluationPeriods"] == ETA_TICKS + 1


def test_the_topic_lets_this_account_s_alarms_in_and_nobody_without_tls(shape: Shape) -> None:
    (policy,) = shape.of_type("AWS::SNS::TopicPolicy").values()
    statements = {each["Sid"]: each for each in policy["Properties"]["PolicyDocument"]["Statement"]}

    assert statements["AlarmsOfThisAccount"]["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert statements["AlarmsOfThisAccount"]["Condition"] == {
        "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    }
    assert [each["Effect"] for each in statements.values()].count("Deny") == 1
