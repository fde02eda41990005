"""The public door as it is deployed: one route, throttled and logged without a word of the caller's; exact grants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from infra.bundle import Bundle
from infra.webhook import ACCESS_LOG, DOOR_TIMEOUT_S, INTEGRATION_TIMEOUT_MS
from shared.aws.clients import HASTY_LEDGER, SECRETS, TRIGGER
from shared.aws.table import PAUSES_S
from shared.domain.settings import ClassSettings, Schedule, Settings, WebhookSettings
from shared.webhook.answer import NO_CLASS, refused_metric
from shared.webhook.request import Reason
from tests.infra.conftest import synth_shape
from tests.infra.shape import Shape, arn, environment, many, text
from tests.infra.test_roles import role_of
from tests.infra.test_stores import stateful

ROWS = {"Ledger.Arn"}
SECRET = {"WebhookSecret"}


def synth(bundle: Bundle, *, ephemeral: bool) -> Shape:
    settings = Settings(
        namespace="SluiceTest",
        webhook=WebhookSettings(requests_per_s=7, burst=70, rotation_days=14),
        classes={
            "documents": ClassSettings(name="documents", kind="sim", webhook=True, schedule=Schedule.REPAIR),
            "replays": ClassSettings(name="replays", kind="sim", webhook=True),
            "sessions": ClassSettings(name="sessions", kind="sim"),
        },
    )
    return synth_shape(settings, bundle, ephemeral=ephemeral)


@pytest.fixture(scope="module")
def door(bundle: Bundle) -> Shape:
    return synth(bundle, ephemeral=False)


def only(shape: Shape, resource_type: str) -> dict[str, Any]:
    (found,) = shape.of_type(resource_type).values()
    properties: dict[str, Any] = found["Properties"]
    return properties


def test_without_an_open_class_there_is_no_door(shape: Shape) -> None:
    types = {each["Type"] for each in shape.resources.values()}
    assert not [each for each in types if each.startswith(("AWS::ApiGateway", "AWS::SecretsManager"))]


def test_one_route_leads_to_the_function_and_the_gateway_waits_ten_seconds(door: Shape) -> None:
    function_id, function = door.the_function("sluice-webhook")
    assert only(door, "AWS::ApiGatewayV2::Api")["ProtocolType"] == "HTTP"
    route = only(door, "AWS::ApiGatewayV2::Route")
    assert route["RouteKey"] == "ANY /drain-runs"  # a wrong method is told the right one by the function
    integration = only(door, "AWS::ApiGatewayV2::Integration")
    assert integration["IntegrationUri"] == arn(function_id)
    assert integration["PayloadFormatVersion"] == "2.0"
    assert integration["TimeoutInMillis"] == INTEGRATION_TIMEOUT_MS == 10_000
    assert function["Timeout"] == DOOR_TIMEOUT_S > INTEGRATION_TIMEOUT_MS / 1000
    # The slowest request: both stages of the secret, control, the admission, the pacer.
    slowest_s = 2 * SECRETS.worst_s + 2 * HASTY_LEDGER.worst_s + TRIGGER.worst_s
    assert slowest_s + sum(PAUSES_S) < DOOR_TIMEOUT_S
    assert function["Handler"] == "functions.webhook.handler.handler"


def test_the_stage_throttles_and_logs_nothing_that_a_caller_wrote(door: Shape) -> None:
    stage = only(door, "AWS::ApiGatewayV2::Stage")
    assert (stage["StageName"], stage["AutoDeploy"]) == ("$default", True)
    settings = stage["DefaultRouteSettings"]
    assert (settings["ThrottlingRateLimit"], settings["ThrottlingBurstLimit"]) == (7, 70)
    assert json.loads(stage["AccessLogSettings"]["Format"]) == ACCESS_LOG
    asked = " ".join(ACCESS_LOG.values()).lower()
    for word in (
        "header",
        "body",
        "path",
        "query",
        "authorization",
        "identity",
        "sourceip",
        "useragent",
        "integrationerror",
    ):
        assert word not in asked


def test_only_this_api_and_only_secrets_manager_for_this_secret_may_call(door: Shape) -> None:
    permissions = {
        each["Properties"]["Principal"]: each["Properties"] for each in door.of_type("AWS::Lambda::Permission").values()
    }
    assert set(permissions) == {"apigateway.amazonaws.com", "secretsmanager.amazonaws.com"}
    assert text(permissions["apigateway.amazonaws.com"]["SourceArn"]).endswith("/*/*/drain-runs")
    rotation = permissions["secretsmanager.amazonaws.com"]
    assert rotation["SourceArn"] == {"Ref": "WebhookSecret"}
    assert rotation["SourceAccount"] == {"Ref": "AWS::AccountId"}


def test_the_door_may_admit_runs_of_open_classes_and_nothing_else(door: Shape) -> None:
    _, function = door.the_function("sluice-webhook")
    pacer_id, _ = door.the_function("sluice-pacer")
    granted = door.grants(role_of(function))
    assert {action: granted[action] for action in granted if not action.startswith("logs:")} == {
        "dynamodb:PutItem": ROWS,
        "dynamodb:GetItem": ROWS,
        "secretsmanager:GetSecretValue": SECRET,
        "lambda:InvokeFunction": {f"{pacer_id}.Arn"},
    }
    assert dict(keys_of(door, role_of(function))) == {
        "dynamodb:PutItem": ["RUN#documents#*", "RUN#replays#*"],
        "dynamodb:GetItem": ["CLASS#documents", "CLASS#replays"],
    }


def keys_of(shape: Shape, role_id: str) -> Iterator[tuple[str, list[str]]]:
    """Which partition keys each of the role's actions on rows is held to."""
    for policy in shape.of_type("AWS::IAM::Policy").values():
        if {"Ref": role_id} in policy["Properties"]["Roles"]:
            for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
                for action in many(statement["Action"]):
                    if action.startswith("dynamodb:"):
                        yield action, many(statement["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"])


def test_the_rotation_may_move_the_one_secret_on(door: Shape) -> None:
    _, function = door.the_function("sluice-rotation")
    granted = door.grants(role_of(function))
    assert {action: granted[action] for action in granted if not action.startswith("logs:")} == {
        f"secretsmanager:{verb}": SECRET
        for verb in ("GetSecretValue", "DescribeSecret", "PutSecretValue", "UpdateSecretVersionStage")
    }


def test_the_secret_is_made_by_aws_kept_and_rotated_on_its_own_schedule(door: Shape) -> None:
    secret = door.resources["WebhookSecret"]
    assert (secret["DeletionPolicy"], secret["UpdateReplacePolicy"]) == ("Retain", "Retain")
    made = secret["Properties"]["GenerateSecretString"]
    assert (made["PasswordLength"], made["ExcludePunctuation"]) == (48, True)
    assert "SecretString" not in secret["Properties"]
    rotation_id, _ = door.the_function("sluice-rotation")
    schedule = only(door, "AWS::SecretsManager::RotationSchedule")
    assert schedule["RotationLambdaARN"] == arn(rotation_id)
    assert schedule["RotationRules"] == {"AutomaticallyAfterDays": 14}
    # A deployment must not take the callers' token away; the function's testSecret step alone is tried then.
    assert schedule["RotateImmediatelyOnUpdate"] is False


def test_the_functions_know_where_the_secret_is_and_not_what_it_is(door: Shape) -> None:
    pacer_id, _ = door.the_function("sluice-pacer")
    webhook = environment(door.the_function("sluice-webhook")[1])
    assert webhook["SLUICE_PACER"] == {"Ref": pacer_id}
    for service in ("sluice-webhook", "sluice-rotation"):
        assert environment(door.the_function(service)[1])["SLUICE_SECRET"] == {"Ref": "WebhookSecret"}
    assert "{{resolve:" not in json.dumps(door.template.to_json())


def test_every_class_keeps_its_schedule_the_repair_too(door: Shape) -> None:
    inputs = [
        json.loads(each["Properties"]["Target"]["Input"]) for each in door.of_type("AWS::Scheduler::Schedule").values()
    ]
    assert {each["job_class"] for each in inputs} == {"documents", "replays", "sessions"}


def test_every_alarm_of_the_webhook_is_on_a_metric_that_it_emits(door: Shape) -> None:
    emitted = {refused_metric(reason) for reason in Reason} | {"WebhookAccepted", "WebhookDeduplicated"}
    alarms = {
        each["Properties"]["MetricName"]: each["Properties"]
        for each in door.of_type("AWS::CloudWatch::Alarm").values()
        if each["Properties"]["Namespace"] == "SluiceTest" and each["Properties"]["MetricName"].startswith("Webhook")
    }
    assert set(alarms) <= emitted
    unusable = alarms["WebhookRefusedSecretUnusable"]
    assert unusable["Dimensions"] == [{"Name": "JobClass", "Value": NO_CLASS}]
    assert (unusable["Threshold"], unusable["TreatMissingData"]) == (1, "notBreaching")
    silence = alarms["WebhookAccepted"]  # of the class that nothing else starts
    assert silence["Dimensions"] == [{"Name": "JobClass", "Value": "documents"}]
    assert (silence["ComparisonOperator"], silence["TreatMissingData"]) == ("LessThanThreshold", "breaching")


def test_a_rotation_that_fails_rings(door: Shape) -> None:
    """Callers would notice nothing for a while: the old token simply stays good."""
    rotation_id, _ = door.the_function("sluice-rotation")
    (alarm,) = [
        each["Properties"]
        for each in door.of_type("AWS::CloudWatch::Alarm").values()
        if each["Properties"]["Namespace"] == "AWS/Lambda"
    ]
    assert (alarm["MetricName"], alarm["Statistic"]) == ("Errors", "Sum")
    assert alarm["Dimensions"] == [{"Name": "FunctionName", "Value": {"Ref": rotation_id}}]
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (1, "GreaterThanOrEqualToThreshold")
    assert (alarm["EvaluationPeriods"], alarm["TreatMissingData"]) == (1, "notBreaching")


def test_the_outputs_name_the_door_and_its_secret(door: Shape) -> None:
    outputs = door.template.to_json()["Outputs"]
    assert text(outputs["WebhookUrl"]["Value"]).endswith("/drain-runs")
    assert outputs["WebhookSecret"]["Value"] == {"Ref": "WebhookSecret"}


def test_a_throw_away_stack_has_the_door_and_no_rotation_schedule(bundle: Bundle) -> None:
    shape = synth(bundle, ephemeral=True)
    types = [each["Type"] for each in shape.resources.values()]
    assert "AWS::ApiGatewayV2::Route" in types
    assert "AWS::SecretsManager::RotationSchedule" not in types
    assert shape.resources["WebhookSecret"]["DeletionPolicy"] == "Delete"
    assert set(stateful(shape)) >= {"Ledger", "DocumentsLiveQueue"}
