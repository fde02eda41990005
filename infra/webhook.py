"""The public door: an HTTP API with one route, the function behind it, and the secret with its rotation.

Two deployments differ in nothing but their secret, which no template ever holds: Secrets Manager makes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.function import Shipment, SluiceFunction
from infra.ledger import AtRest, pin
from infra.nag import Trigger, accept
from infra.observability import BAD, BELOW, AlarmSpec, at_once, log_group
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
            service="sluice-webhook",
            trigger=Trigger.REQUEST,
            handler="functions.webhook.handler.handler",
            timeout_s=DOOR_TIMEOUT_S,
            memory_mb=MEMORY_MB,
            shipment=shipment,
            environment=environment,
        )

    def rotation(self, shipment: Shipment, *, environment: Mapping[str, str]) -> SluiceFunction:
        return SluiceFunction(
            self,
            "Rotation",
            service="sluice-rotation",
            trigger=Trigger.REQUEST,
            handler="functions.rotation.handler.handler",
            timeout_s=30,
            memory_mb=256,
            shipment=shipment,
            environment=environment,
        )

    def serve(self, door: SluiceFunction) -> None:
        """Every method goes to the function, so that a wrong one is told which is right (405 with Allow)."""
        stack = cdk.Stack.of(self)
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
        lambda_.CfnPermission(
            self,
            "MayBeCalled",
            action="lambda:InvokeFunction",
            function_name=door.function.function_name,
            principal="apigateway.amazonaws.com",
            source_arn=stack.format_arn(service="execute-api", resource=self._api.ref, resource_name=f"*/*{PATH}"),
        )

    def rotate(self, rotation: SluiceFunction) -> None:
        """From now on, on its schedule: a deployment takes nobody's token away.

        When this is created or changed, Secrets Manager makes an AWSPENDING version, runs the function's testSecret
        step on it, alone, and removes it again. All four steps run when a rotation is due or asked for.
        """
        permission = lambda_.CfnPermission(
            self,
            "MayRotate",
            action="lambda:InvokeFunction",
            function_name=rotation.function.function_name,
            principal="secretsmanager.amazonaws.com",
            source_account=cdk.Stack.of(self).account,
            source_arn=self.secret.secret_arn,
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
        schedule.add_dependency(permission)
        schedule.node.add_dependency(rotation.role)


def webhook_alarms(settings: Settings, rotation: lambda_.IFunction) -> Iterable[AlarmSpec]:
    """The rows of the alarm table that are about the webhook and its secret."""
    yield _refusals(
        settings,
        "WebhookSecretUnusable",
        metric="WebhookRefusedSecretUnusable",
        at_least=1,
        means="The webhook's secret is missing, shorter than 16 bytes or not ASCII, so nobody is let in. Rotate it:"
        " aws secretsmanager rotate-secret.",
    )
    yield _refusals(
        settings,
        "WebhookSecretUnavailable",
        metric="WebhookRefusedSecretUnavailable",
        at_least=5,
        means="The webhook cannot read its secret. Look at Secrets Manager, at the function's role and at the key.",
    )
    yield _refusals(
        settings,
        "WebhookFault",
        metric="WebhookRefusedFault",
        at_least=1,
        means="The webhook failed in a way that it does not know. Its log names the kind of error (webhook_fault).",
    )
    yield _refusals(
        settings,
        "WebhookUnauthorized",
        metric="WebhookRefusedUnauthorized",
        at_least=30,
        means="Many requests without the right token: somebody guesses, or a client missed a rotation. No run can come"
        " of it. To stop listening: python -m ops webhook close --reason ...",
    )
    yield _failing(
        "WebhookRotation",
        rotation,
        means="A step of the secret's rotation failed. The token stays as it is, so that no caller notices; it grows"
        " older than it should. The rotation's log names the error.",
    )
    for name in sorted(settings.webhook_classes):
        if settings.classes[name].schedule is Schedule.REPAIR:
            yield _silence(settings, name)


def _refusals(settings: Settings, name: str, *, metric: str, at_least: int, means: str) -> AlarmSpec:
    return at_once(name, _sum(settings, metric, NO_CLASS), means=means, runbook=name, at_least=at_least)


def _failing(name: str, function: lambda_.IFunction, *, means: str) -> AlarmSpec:
    """Any invocation that raised or ran out of time. Lambda counts it, so that nothing has to live to tell."""
    return at_once(
        name, function.metric_errors(statistic="Sum", period=cdk.Duration.minutes(5)), means=means, runbook=name
    )


def _silence(settings: Settings, name: str) -> AlarmSpec:
    """Nobody else admits runs of this class: a clock that stopped outside shows only here. No data is the alarm."""
    return AlarmSpec(
        name="".join(part.capitalize() for part in name.split("_")) + "WebhookSilent",
        metric=_sum(settings, "WebhookAccepted", name),
        threshold=1,
        comparison=BELOW,
        periods=SILENT_MINUTES,
        of_periods=SILENT_MINUTES,
        missing=BAD,
        means=f"No run of {name} was asked for in {SILENT_MINUTES} minutes, and nothing else admits any. Look at the"
        " external clock, then at the webhook's refusals.",
        runbook="WebhookSilent",
    )


def _sum(settings: Settings, metric: str, job_class: str) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=settings.namespace,
        metric_name=metric,
        dimensions_map={"JobClass": job_class},
        statistic="Sum",
        period=cdk.Duration.minutes(1),
    )
