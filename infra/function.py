"""The one way a function is made: its own log group, its own role, nothing granted but what `allow` says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.observability import function_log_group

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
    ephemeral: bool


class SluiceFunction(Construct):
    """A Lambda function.

    It has no reserved concurrency: a throttled delivery would burn the queue's receive count (TRAPS 10). The lanes'
    MaximumConcurrency bounds it instead. `kind` is a worker's, whose dependencies it carries then. `recursive` is for a
    function whose chain of continuations is the design.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        service: str,
        handler: str,
        timeout_s: int,
        memory_mb: int,
        shipment: Shipment,
        environment: Mapping[str, str],
        kind: str = "",
        recursive: bool = False,
    ) -> None:
        super().__init__(scope, construct_id)
        logs = function_log_group(self, ephemeral=shipment.ephemeral)
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
        self.allow(_LOG_ACTIONS, logs.log_group_arn)

    def allow(self, actions: tuple[str, ...], *resources: str, keys: Iterable[str] = ()) -> None:
        """Grant exactly these actions on exactly these resources; of a table, only rows with these partition keys."""
        only = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": sorted(keys)}} if keys else None
        self.role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=list(resources), conditions=only))

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
