"""How what holds state is kept: whether it outlives its stack, and under whose key it lies on disk.

By default the key is AWS's own. With `customer_managed_key` it is one of this account's, made here, for everything that
Sluice stores: rows, messages, objects, log lines, alarms and the webhook's secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IConstruct

from infra.nag import KEY_IS_A_CHOICE, accept

_DECRYPT: Final = "kms:Decrypt"
_NEW_DATA_KEY: Final = "kms:GenerateDataKey"

_KEY_USE: Final = {
    "sqs:SendMessage": (_DECRYPT, _NEW_DATA_KEY),
    "sqs:ReceiveMessage": (_DECRYPT,),
    "s3:GetObject": (_DECRYPT,),
    "s3:PutObject": (_NEW_DATA_KEY,),
    "secretsmanager:GetSecretValue": (_DECRYPT,),
    "secretsmanager:PutSecretValue": (_DECRYPT, _NEW_DATA_KEY),
}
"""What each service does with the key in its caller's name. Of a table it decrypts the table's own key, whatever the
action; what is missing here needs no key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtRest:
    """`key` is the customer-managed one, if there is one. An `ephemeral` stack takes its stores with it."""

    ephemeral: bool
    key: kms.IKey | None = None

    @property
    def removal(self) -> cdk.RemovalPolicy:
        """What holds state stays when the stack goes, except in a stack that says it is a throw-away."""
        return cdk.RemovalPolicy.DESTROY if self.ephemeral else cdk.RemovalPolicy.RETAIN

    @property
    def tables(self) -> dynamodb.TableEncryption:
        return dynamodb.TableEncryption.CUSTOMER_MANAGED if self.key else dynamodb.TableEncryption.AWS_MANAGED

    @property
    def queues(self) -> sqs.QueueEncryption:
        return sqs.QueueEncryption.KMS if self.key else sqs.QueueEncryption.SQS_MANAGED

    @property
    def buckets(self) -> s3.BucketEncryption:
        return s3.BucketEncryption.KMS if self.key else s3.BucketEncryption.S3_MANAGED

    def explain(self, construct: IConstruct, rule: str) -> None:
        """Except a construct from a rule that asks for a customer-managed key, where there is none."""
        if self.key is None:
            accept(construct, {rule: KEY_IS_A_CHOICE})

    def key_use(self, actions: Iterable[str]) -> Iterator[iam.PolicyStatement]:
        """What a role with these actions needs of the key, each service apart: the key serves no other way."""
        if self.key is None:
            return
        for service, of_service in groupby(sorted(actions), key=lambda action: action.partition(":")[0]):
            default = (_DECRYPT,) if service == "dynamodb" else ()
            needed = sorted({use for action in of_service for use in _KEY_USE.get(action, default)})
            if needed:
                via = f"{service}.{cdk.Stack.of(self.key).region}.amazonaws.com"
                yield iam.PolicyStatement(
                    actions=needed,
                    resources=[self.key.key_arn],
                    conditions={"StringEquals": {"kms:ViaService": via}},
                )


def customer_key(scope: Construct, *, ephemeral: bool) -> kms.Key:
    """The one key, with a new backing key every year. The services that use it in their own name have a line each.

    Its loss would be the loss of everything, so it stays with what it encrypts.
    """
    stack = cdk.Stack.of(scope)
    key = kms.Key(
        scope,
        "CustomerKey",
        description=f"Everything that {stack.stack_name} stores",
        enable_key_rotation=True,
        removal_policy=AtRest(ephemeral=ephemeral).removal,
    )
    pin(key, "CustomerKey")
    log_groups = stack.format_arn(
        service="logs", resource="log-group", resource_name="*", arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME
    )
    key.add_to_resource_policy(
        iam.PolicyStatement(
            sid="LogGroupsOfThisAccount",
            principals=[iam.ServicePrincipal(f"logs.{stack.region}.amazonaws.com")],
            actions=["kms:Encrypt", _DECRYPT, "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey"],
            resources=["*"],
            conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": log_groups}},
        )
    )
    # An alarm publishes to the topic; a rule lays what it cannot deliver with the lost.
    key.add_to_resource_policy(
        iam.PolicyStatement(
            sid="AlarmsAndEventsOfThisAccount",
            principals=[iam.ServicePrincipal(f"{name}.amazonaws.com") for name in ("cloudwatch", "events")],
            actions=[_DECRYPT, _NEW_DATA_KEY],
            resources=["*"],
            conditions={"StringEquals": {"aws:SourceAccount": stack.account}},
        )
    )
    return key


def pin(resource: cdk.Resource, logical_id: str) -> None:
    """Give a stateful resource a logical id of our own, so that moving its construct in the tree cannot replace it."""
    child = resource.node.default_child
    assert isinstance(child, cdk.CfnElement)
    child.override_logical_id(logical_id)
