"""The one way a function is made, called and scheduled: its own log group, its own role, nothing granted but what
`allow` says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from infra import grants
from infra.nag import Trigger, accept_function, accept_own_policy
from infra.stores import AtRest, log_group

ARCHITECTURE: Final = lambda_.Architecture.ARM_64
"""Cheaper than x86 for the same work. `make setup` stages the dependencies' wheels for it, infra.bundle checks them."""

RUNTIME: Final = lambda_.Runtime.PYTHON_3_11

_LOG_ACTIONS: Final = ("logs:CreateLogStream", "logs:PutLogEvents")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """What every function carries."""

    code: lambda_.Code
    layer: lambda_.ILayerVersion
    kind_layers: Mapping[str, lambda_.ILayerVersion]
    environment: Mapping[str, str]
    at_rest: AtRest


class SluiceFunction(Construct):
    """A Lambda function: `functions/<room>/handler.py`.

    It has no reserved concurrency: a throttled delivery would burn the queue's receive count (fact F10). The lanes'
    MaximumConcurrency bounds it instead. `kind` is a worker's, whose dependencies it carries then. `recursive` is for a
    function whose chain of continuations is the design.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        room: str,
        trigger: Trigger,
        timeout_s: int,
        memory_mb: int,
        shipment: Shipment,
        environment: Mapping[str, str],
        kind: str = "",
        recursive: bool = False,
    ) -> None:
        super().__init__(scope, construct_id)
        self.at_rest = shipment.at_rest
        logs = log_group(self, "Logs", at_rest=shipment.at_rest)
        self.role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        self.function = lambda_.Function(
            self,
            "Function",
            runtime=RUNTIME,
            architecture=ARCHITECTURE,
            code=shipment.code,
            layers=[shipment.layer, *(layer for name, layer in shipment.kind_layers.items() if name == kind)],
            handler=f"functions.{room}.handler.handler",
            timeout=Duration.seconds(timeout_s),
            memory_size=memory_mb,
            role=self.role,
            log_group=logs,
            recursive_loop=lambda_.RecursiveLoop.ALLOW if recursive else lambda_.RecursiveLoop.TERMINATE,
            environment={**shipment.environment, "POWERTOOLS_SERVICE_NAME": service_of(room), **environment},
        )
        accept_function(self.function, self.role, trigger)
        self.allow(_LOG_ACTIONS, logs.log_group_arn)

    def allow(self, actions: tuple[str, ...], *resources: str, keys: Iterable[str] = ()) -> None:
        """Grant exactly these actions on exactly these resources; of a table, only rows with these partition keys.

        With a customer-managed key, also what the actions need of it.
        """
        only = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": sorted(keys)}} if keys else None
        self.role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=list(resources), conditions=only))
        for statement in self.at_rest.key_use(actions):
            self.role.add_to_policy(statement)

    def retry(self, *, times: int, max_age_s: int, lost_arn: str) -> None:
        """Asynchronous invocations that fail are repeated and then lie with the lost, which takes a grant."""
        asynchronous = lambda_.CfnEventInvokeConfig(
            self,
            "Asynchronous",
            function_name=self.function.function_name,
            qualifier="$LATEST",
            maximum_event_age_in_seconds=max_age_s,
            maximum_retry_attempts=times,
            destination_config=lambda_.CfnEventInvokeConfig.DestinationConfigProperty(
                on_failure=lambda_.CfnEventInvokeConfig.OnFailureProperty(destination=lost_arn)
            ),
        )
        asynchronous.node.add_dependency(self.role)

    def may_be_called(
        self, scope: Construct, construct_id: str, *, by: str, source_arn: str, account: str | None = None
    ) -> lambda_.CfnPermission:
        """Let a service call the function, for this one source of calls."""
        return lambda_.CfnPermission(
            scope,
            construct_id,
            action="lambda:InvokeFunction",
            function_name=self.function.function_name,
            principal=f"{by}.amazonaws.com",
            source_account=account,
            source_arn=source_arn,
        )


def service_of(room: str) -> str:
    """The name that a function's log lines and metrics carry."""
    return f"sluice-{room.replace('_', '-')}"


class Schedules:
    """Schedules of one function. They share a role, since each does the same: start the function, and lay aside what it
    could not deliver. Only this account's schedules may take it."""

    def __init__(self, scope: Construct, function: SluiceFunction, *, lost_arn: str) -> None:
        self._target_arn = function.function.function_arn
        self._lost_arn = lost_arn
        own_account = {"StringEquals": {"aws:SourceAccount": Stack.of(scope).account}}
        self._role = iam.Role(
            scope, "ScheduleRole", assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com", conditions=own_account)
        )
        for actions, resource in ((grants.INVOKE, self._target_arn), (grants.SEND, lost_arn)):
            self._role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=[resource]))
        for statement in function.at_rest.key_use(grants.SEND):
            self._role.add_to_policy(statement)
        accept_own_policy(self._role)

    def add(
        self,
        scope: Construct,
        construct_id: str,
        *,
        description: str,
        expression: str,
        event: Mapping[str, str],
        max_age_s: int,
        retries: int,
    ) -> None:
        """Call the function with `event` and the scheduled time, which names the call however late it comes (I6)."""
        schedule = scheduler.CfnSchedule(
            scope,
            construct_id,
            description=description,
            schedule_expression=expression,
            schedule_expression_timezone="UTC",
            state="ENABLED",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=self._target_arn,
                role_arn=self._role.role_arn,
                input=json.dumps({**event, "scheduled_at": "<aws.scheduler.scheduled-time>"}),
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_event_age_in_seconds=max_age_s, maximum_retry_attempts=retries
                ),
                dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(arn=self._lost_arn),
            ),
        )
        schedule.node.add_dependency(self._role)
