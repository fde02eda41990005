"""The public door: an HTTP API with one route, the function behind it, and the secret with its rotation.

Two deployments differ in nothing but their secret, which no template ever holds: Secrets Manager makes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.alarms import GOOD, ONCE, AlarmSpec, Condition, at_least, metric_of, never_for
from infra.function import Shipment, SluiceFunction
from infra.job_class import class_id
from infra.nag import Trigger, accept
from infra.stores import AtRest, log_group, pin
from shared.domain.settings import Schedule, Settings, WebhookSettings

PATH: Final = "/drain-runs"
INTEGRATION_TIMEOUT_MS: Final = 10_000
DOOR_TIMEOUT_S: Final = 20
"""Longer than the integration's: the gateway then gives the answer, and a write under way is not cut off."""

MEMORY_MB: Final = 512
SECRET_LENGTH: Final = 48
NO_CLASS: Final = "unknown"

JUDGED_BY_THE_DOOR: Final = (
    "The function judges the bearer token itself, in constant time and against the secret's present and previous"
    " version, which no authorizer of the gateway can."
)
SILENT_MINUTES: Final = 15

# No header, body, query, path or address: a token in the wrong place must not end up here (I12).
ACCESS_LOG: Final[Mapping[str, str]] = {
    "requestId": "$context.requestId",
    "time": "$context.requestTimeEpoch",
    "route": "$context.routeKey",
    "status": "$context.status",
    "latencyMs": "$context.responseLatency",
    "integrationStatus": "$context.integrationStatus",
}


class Webhook(Construct):
    """`door` and `rotation` are the two functions; who may do what with them is the stack's to say."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: WebhookSettings, at_rest: AtRest) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        self._at_rest = at_rest
        self.secret = secretsmanager.Secret(
            self,
            "Secret",
            description="Bearer token of the drain-run webhook",
            generate_secret_string=secretsmanager.SecretStringGenerator(
                password_length=SECRET_LENGTH, exclude_punctuation=True, include_space=False
            ),
            encryption_key=at_rest.key,
            removal_policy=at_rest.removal,
        )
        pin(self.secret, "WebhookSecret")
        at_rest.explain(self.secret, "HIPAA.Security-SecretsManagerUsingKMSKey")
        self._api = apigateway.CfnApi(
            self, "Api", name=f"{cdk.Stack.of(self).stack_name}-webhook", protocol_type="HTTP"
        )

    @property
    def url(self) -> str:
        return f"{self._api.attr_api_endpoint}{PATH}"

    def door(self, shipment: Shipment, *, environment: Mapping[str, str]) -> SluiceFunction:
        return SluiceFunction(
            self,
            "Door",
            room="webhook",
            trigger=Trigger.REQUEST,
            timeout_s=DOOR_TIMEOUT_S,
            memory_mb=MEMORY_MB,
            shipment=shipment,
            environment=environment,
        )

    def rotation(self, shipment: Shipment, *, environment: Mapping[str, str]) -> SluiceFunction:
        return SluiceFunction(
            self,
            "Rotation",
            room="rotation",
            trigger=Trigger.REQUEST,
            timeout_s=30,
            memory_mb=256,
            shipment=shipment,
            environment=environment,
        )

    def serve(self, door: SluiceFunction) -> None:
        """Every method goes to the function, so that a wrong one is told which is right (405 with Allow)."""
        integration = apigateway.CfnIntegration(
            self,
            "Integration",
            api_id=self._api.ref,
            integration_type="AWS_PROXY",
            integration_uri=door.function.function_arn,
            integration_method="POST",
            payload_format_version="2.0",
            timeout_in_millis=INTEGRATION_TIMEOUT_MS,
        )
        route = apigateway.CfnRoute(
            self,
            "Route",
            api_id=self._api.ref,
            route_key=f"ANY {PATH}",
            target=f"integrations/{integration.ref}",
            authorization_type="NONE",
        )
        accept(route, {"AwsSolutions-APIG4": JUDGED_BY_THE_DOOR})
        log = log_group(self, "AccessLog", at_rest=self._at_rest)
        apigateway.CfnStage(
            self,
            "Stage",
            api_id=self._api.ref,
            stage_name="$default",
            auto_deploy=True,
            default_route_settings=apigateway.CfnStage.RouteSettingsProperty(
                throttling_rate_limit=self._settings.requests_per_s,
                throttling_burst_limit=self._settings.burst,
                detailed_metrics_enabled=False,
            ),
            access_log_settings=apigateway.CfnStage.AccessLogSettingsProperty(
                destination_arn=log.log_group_arn, format=json.dumps(ACCESS_LOG)
            ),
        )
        requests = cdk.Stack.of(self).format_arn(
            service="execute-api", resource=self._api.ref, resource_name=f"*/*{PATH}"
        )
        door.may_be_called(self, "MayBeCalled", by="apigateway", source_arn=requests)

    def rotate(self, rotation: SluiceFunction) -> None:
        """From now on, on its schedule: a deployment takes nobody's token away.

        When this is created or changed, Secrets Manager makes an AWSPENDING version, runs the function's testSecret
        step on it, alone, and removes it again. All four steps run when a rotation is due or asked for.
        """
        account = cdk.Stack.of(self).account
        permission = rotation.may_be_called(
            self, "MayRotate", by="secretsmanager", source_arn=self.secret.secret_arn, account=account
        )
        if self._at_rest.ephemeral:
            return  # it does not live long enough to rotate, and the local emulator knows no such resource
        schedule = secretsmanager.CfnRotationSchedule(
            self,
            "RotationSchedule",
            secret_id=self.secret.secret_arn,
            rotation_lambda_arn=rotation.function.function_arn,
            rotation_rules=secretsmanager.CfnRotationSchedule.RotationRulesProperty(
                automatically_after_days=self._settings.rotation_days
            ),
            rotate_immediately_on_update=False,
        )
        schedule.add_resource_dependency(permission)
        schedule.node.add_dependency(rotation.role)


def webhook_alarms(settings: Settings, rotation: lambda_.IFunction) -> Iterator[AlarmSpec]:
    """The rows of the alarm table that are about the webhook and its secret."""
    yield _refusals(
        settings,
        "SecretUnusable",
        ONCE,
        "The webhook's secret is missing, shorter than 16 bytes or not ASCII, so nobody is let in. Rotate it:"
        " aws secretsmanager rotate-secret.",
    )
    yield _refusals(
        settings,
        "SecretUnavailable",
        at_least(5, periods=1, missing=GOOD),
        "The webhook cannot read its secret. Look at Secrets Manager, at the function's role and at the key.",
    )
    yield _refusals(
        settings,
        "Fault",
        ONCE,
        "The webhook failed in a way that it does not know. Its log names the kind of error (webhook_fault).",
    )
    yield _refusals(
        settings,
        "Unauthorized",
        at_least(30, periods=1, missing=GOOD),
        "Many requests without the right token: somebody guesses, or a client missed a rotation. No run can come"
        " of it. To stop listening: python -m ops webhook close --reason ...",
    )
    # Any invocation that raised or ran out of time. Lambda counts it, so that nothing has to live to tell.
    yield AlarmSpec(
        "WebhookRotation",
        rotation.metric_errors(statistic="Sum", period=cdk.Duration.minutes(5)),
        ONCE,
        "A step of the secret's rotation failed. The token stays as it is, so that no caller notices; it grows"
        " older than it should. The rotation's log names the error.",
        "WebhookRotation",
    )
    for name in sorted(settings.webhook_classes):
        if settings.classes[name].schedule is Schedule.REPAIR:
            # Nobody else admits runs of this class: a clock that stopped outside shows only here.
            yield AlarmSpec(
                f"{class_id(name)}WebhookSilent",
                _a_minute(settings, "WebhookAccepted", name),
                never_for(SILENT_MINUTES),
                f"No run of {name} was asked for in {SILENT_MINUTES} minutes, and nothing else admits any. Look at the"
                " external clock, then at the webhook's refusals.",
                "WebhookSilent",
            )


def _refusals(settings: Settings, reason: str, condition: Condition, means: str) -> AlarmSpec:
    metric = _a_minute(settings, f"WebhookRefused{reason}", NO_CLASS)
    return AlarmSpec(f"Webhook{reason}", metric, condition, means, f"Webhook{reason}")


def _a_minute(settings: Settings, metric: str, job_class: str) -> cloudwatch.Metric:
    return metric_of(job_class, metric, namespace=settings.namespace, statistic="Sum", period_s=60)
