"""What submits jobs by itself: the rule, the schedules, where lost events go, and who may do what."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from infra.bundle import Bundle
from infra.producers import cron
from shared.domain.settings import (
    GuildReportsSettings,
    MatchEndedSettings,
    ProducerSettings,
    SessionSweepSettings,
    Settings,
)
from shared.submit.producers import MATCH_ENDED
from tests.infra.conftest import synth_shape
from tests.infra.shape import Json, Shape, arn, environment, text
from tests.infra.test_roles import own_log, role_of

ALL = ProducerSettings(
    match_ended=MatchEndedSettings(bus="game-events", source="game.matches", replay_class="replay_summary"),
    guild_reports=GuildReportsSettings(job_class="replay_summary", guilds_table="game-guilds", at="03:05"),
    session_sweep=SessionSweepSettings(job_class="session_sweep", at="23:00"),
)
SUBMITS = {
    "dynamodb:PartiQLInsert": {"Ledger.Arn"},
    "dynamodb:GetItem": {"Ledger.Arn"},
    "dynamodb:BatchGetItem": {"Ledger.Arn"},
    "dynamodb:PutItem": {"Ledger.Arn"},
    "dynamodb:UpdateItem": {"Ledger.Arn"},  # the order of a match, the live allowance
    "s3:PutObject": {"Payloads.Arn/payloads/*"},
}


def sends(*live_classes: str) -> Json:
    return {"sqs:SendMessage": {"LostEvents.Arn", *(f"{each}LiveQueue.Arn" for each in live_classes)}}


@pytest.fixture(scope="module")
def shape(settings: Settings, bundle: Bundle) -> Shape:
    return synth_shape(replace(settings, producers=ALL), bundle, ephemeral=False)


def schedules(shape: Shape) -> dict[str, Json]:
    found = [each["Properties"] for each in shape.of_type("AWS::Scheduler::Schedule").values()]
    inputs = {json.loads(each["Target"]["Input"]).get("producer", ""): each for each in found}
    inputs.pop("")
    return inputs


def test_a_match_that_ended_is_told_to_the_intake_by_the_games_bus(shape: Shape) -> None:
    (rule_id, rule) = next(iter(shape.of_type("AWS::Events::Rule").items()))
    intake_id, _ = shape.the_function("sluice-intake")
    assert rule["Properties"]["EventBusName"] == "game-events"
    assert rule["Properties"]["EventPattern"] == {"detail-type": [MATCH_ENDED], "source": ["game.matches"]}
    (target,) = rule["Properties"]["Targets"]
    assert target["Arn"] == arn(intake_id)
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 21_600, "MaximumRetryAttempts": 20}
    assert target["DeadLetterConfig"] == {"Arn": arn("LostEvents")}
    permissions = [each["Properties"] for each in shape.of_type("AWS::Lambda::Permission").values()]
    assert [each["SourceArn"] for each in permissions if each["Principal"] == "events.amazonaws.com"] == [arn(rule_id)]


def test_the_bus_may_set_lost_events_aside_and_nobody_else_may_in_its_name(shape: Shape) -> None:
    (rule_id,) = shape.of_type("AWS::Events::Rule")
    statements = [
        statement
        for policy in shape.of_type("AWS::SQS::QueuePolicy").values()
        if {"Ref": "LostEvents"} in policy["Properties"]["Queues"]
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    ]
    (statement,) = statements
    assert statement["Principal"] == {"Service": "events.amazonaws.com"}
    assert statement["Condition"] == {"ArnEquals": {"aws:SourceArn": arn(rule_id)}}


def test_an_event_that_became_no_jobs_is_repeated_kept_and_alarmed(shape: Shape) -> None:
    functions = {shape.the_function(service)[0] for service in ("sluice-intake", "sluice-producer")}
    configs = {
        each["Properties"]["FunctionName"]["Ref"]: each["Properties"]
        for each in shape.of_type("AWS::Lambda::EventInvokeConfig").values()
    }
    for function in functions:
        assert configs[function]["MaximumRetryAttempts"] == 2
        assert configs[function]["DestinationConfig"]["OnFailure"]["Destination"] == arn("LostEvents")
    lost = shape.resources["LostEvents"]
    assert (lost["DeletionPolicy"], lost["Properties"]["MessageRetentionPeriod"]) == ("Retain", 14 * 86_400)
    watched = [
        text(alarm["Properties"]["Dimensions"][0]["Value"])
        for alarm in shape.of_type("AWS::CloudWatch::Alarm").values()
        if alarm["Properties"].get("MetricName") == "ApproximateNumberOfMessagesVisible"
    ]
    assert "LostEvents.QueueName" in watched


def test_the_schedules_hand_over_their_own_time_and_give_up_where_it_is_seen(shape: Shape) -> None:
    producer_id, _ = shape.the_function("sluice-producer")
    by_name = schedules(shape)
    assert {name: schedule["ScheduleExpression"] for name, schedule in by_name.items()} == {
        "guild_reports": "cron(5 3 ? * MON *)",
        "session_sweep": "cron(0 23 * * ? *)",
    }
    for schedule in by_name.values():
        assert schedule["ScheduleExpressionTimezone"] == "UTC"
        assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
        assert json.loads(schedule["Target"]["Input"])["scheduled_at"] == "<aws.scheduler.scheduled-time>"
        assert schedule["Target"]["Arn"] == arn(producer_id)
        assert schedule["Target"]["DeadLetterConfig"] == {"Arn": arn("LostEvents")}
        assert schedule["Target"]["RetryPolicy"]["MaximumRetryAttempts"] == 20


def test_a_producer_submits_and_does_nothing_else(shape: Shape) -> None:
    _, intake = shape.the_function("sluice-intake")
    assert shape.grants(role_of(intake)) == own_log(shape, intake) | SUBMITS | sends("ReplaySummary")
    guilds = {"arn:AWS::Partition:dynamodb:AWS::Region:AWS::AccountId:table/game-guilds"}
    _, producer = shape.the_function("sluice-producer")
    both = sends("ReplaySummary", "SessionSweep")
    assert shape.grants(role_of(producer)) == own_log(shape, producer) | SUBMITS | both | {"dynamodb:Scan": guilds}
    queues = text(environment(intake)["SLUICE_QUEUES"])
    assert ("replay_summary" in queues, "session_sweep" in queues) == (True, False)


def test_the_schedules_may_invoke_the_producer_and_nothing_else(shape: Shape) -> None:
    producer_id, _ = shape.the_function("sluice-producer")
    roles = {each["Target"]["RoleArn"]["Fn::GetAtt"][0] for each in schedules(shape).values()}
    (role,) = roles
    assert shape.grants(role) == {
        "lambda:InvokeFunction": {f"{producer_id}.Arn"},
        "sqs:SendMessage": {"LostEvents.Arn"},
    }


def test_what_is_not_said_is_not_deployed(settings: Settings, bundle: Bundle) -> None:
    sweep = ProducerSettings(session_sweep=ALL.session_sweep)
    only_sweep = synth_shape(replace(settings, producers=sweep), bundle, ephemeral=False)
    assert list(schedules(only_sweep)) == ["session_sweep"]
    only_sweep.template.resource_count_is("AWS::Events::Rule", 0)
    _, producer = only_sweep.the_function("sluice-producer")
    assert "dynamodb:Scan" not in only_sweep.grants(role_of(producer))


@pytest.mark.parametrize(
    ("at", "expected"), [("00:00", "cron(0 0 x)"), ("23:59", "cron(59 23 x)"), ("08:09", "cron(9 8 x)")]
)
def test_a_time_of_day_becomes_a_cron_expression_without_leading_zeros(at: str, expected: str) -> None:
    assert cron(at, "x") == expected
