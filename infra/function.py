"""The one way a function is made: its own log group, its own role, nothing granted but what `allow` says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra import grants
from infra.ledger import AtRest
from infra.nag import Trigger, accept_function, accept_own_policy
from infra.observability import log_group

ENVIRONMENT_LIMIT_BYTES: Final = 4096
"""Lambda's bound on a function's environment, names and values together."""

ARCHITECTURE: Final = lambda_.Architecture.ARM_64
"""Cheaper than x86 for the same work. `make setup` stages the wheels of kinds for it, and infra.bundle checks them."""

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
    """A Lambda function.

    It has no reserved concurrency: a throttled delivery would burn the queue's receive count (fact F10). The lanes'
    MaximumConcurrency bounds it instead. `kind` is a worker's, whose dependencies it carries then. `recursive` is for a
    function whose chain of continuations is the design.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        service: str,
        trigger: Trigger,
        handler: str,
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
            runtime=lambda_.Runtime.PYTHON_3_11,
            architecture=ARCHITECTURE,
            code=shipment.code,
            layers=[shipment.layer, *(layer for name, layer in shipment.kind_layers.items() if name == kind)],
            handler=handler,
            timeout=Duration.seconds(timeout_s),
            memory_size=memory_mb,
            role=self.role,
            log_group=logs,
            recursive_loop=lambda_.RecursiveLoop.ALLOW if recursive else lambda_.RecursiveLoop.TERMINATE,
            environment={**shipment.environment, "POWERTOOLS_SERVICE_NAME": service, **environment},
        )
        accept_function(self.function, trigger)
        accept_own_policy(self.role)
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


def schedule_role(scope: Construct, function: SluiceFunction, *, lost_arn: str) -> iam.Role:
    """What a schedule needs: to start the function, and to lay aside what it could not deliver. Only this account's
    schedules may take it."""
    own_account = {"StringEquals": {"aws:SourceAccount": Stack.of(scope).account}}
    role = iam.Role(
        scope, "ScheduleRole", assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com", conditions=own_account)
    )
    for actions, resource in ((grants.INVOKE, function.function.function_arn), (grants.SEND, lost_arn)):
        role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=[resource]))
    for statement in function.at_rest.key_use(grants.SEND):
        role.add_to_policy(statement)
    accept_own_policy(role)
    return role
