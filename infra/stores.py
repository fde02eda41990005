"""Everything that holds state: the ledger table, the bucket of payloads and outputs, queues and log groups.

`AtRest` says how each is kept: whether it outlives its stack, and under whose key it lies on disk. By default the key
is AWS's own. With `customer_managed_key` it is one of this account's, made here, for all that Sluice stores: rows,
messages, objects, log lines, alarms and the webhook's secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import aws_cdk as cdk
from aws_cdk import Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IConstruct

from infra.nag import IN_A_VAULT, KEY_IS_A_CHOICE, LIES_WITH_THE_LOST, ONE_REGION, accept

KEPT_DAYS: Final = 30
"""How long an object that was deleted can still be brought back."""

ACCESS_LOG_DAYS: Final = 365
"""How long it can be looked up who asked for which object."""

MESSAGE_DAYS: Final = 14
"""The most that SQS offers: nothing is lost while somebody is on holiday."""

LOG_RETENTION: Final = logs.RetentionDays.ONE_MONTH

INDEX: Final = "work"

INDEX_ATTRIBUTES: Final = ("match_id", "epoch")
"""All that the index projects beside the keys. Final: a projection cannot be changed later."""

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
    """The one key, with a new backing key every year. The services that use it in their own name have a statement each.

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


class Ledger(Construct):
    """The one table. Its logical id, keys and index are pinned: changing one replaces it, with every row in it."""

    def __init__(self, scope: Construct, construct_id: str, *, at_rest: AtRest) -> None:
        super().__init__(scope, construct_id)
        self.table = dynamodb.Table(
            self,
            "Table",
            partition_key=_text("pk"),
            sort_key=_text("sk"),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=at_rest.tables,
            encryption_key=at_rest.key,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            time_to_live_attribute="expires_s",
            deletion_protection=not at_rest.ephemeral,
            removal_policy=at_rest.removal,
        )
        self.table.add_global_secondary_index(
            index_name=INDEX,
            partition_key=_text("work_partition"),
            sort_key=_text("work_position"),
            projection_type=dynamodb.ProjectionType.INCLUDE,
            non_key_attributes=list(INDEX_ATTRIBUTES),
        )
        pin(self.table, "Ledger")
        accept(self.table, {"HIPAA.Security-DynamoDBInBackupPlan": IN_A_VAULT})

    @property
    def rows_arn(self) -> str:
        return self.table.table_arn

    @property
    def index_arn(self) -> str:
        return f"{self.table.table_arn}/index/{INDEX}"


class Payloads(Construct):
    """The private bucket for payloads and outputs that are too large for a row, and the log of who asked for what.

    Sluice never overwrites or deletes an object; versions are for whoever else does.
    """

    def __init__(self, scope: Construct, construct_id: str, *, at_rest: AtRest) -> None:
        super().__init__(scope, construct_id)
        # S3 can deliver its logs under a key of its own only. They hold names of objects, never what is in them.
        accesses = _bucket(self, "Accesses", AtRest(ephemeral=at_rest.ephemeral), logged_days=ACCESS_LOG_DAYS)
        pin(accesses, "PayloadAccesses")
        self.bucket = _bucket(self, "Bucket", at_rest, accesses=accesses)
        pin(self.bucket, "Payloads")

    @property
    def objects_arn(self) -> str:
        return self.bucket.arn_for_objects("*")


def _bucket(
    scope: Construct,
    construct_id: str,
    at_rest: AtRest,
    *,
    accesses: s3.IBucket | None = None,
    logged_days: int | None = None,
) -> s3.Bucket:
    bucket = s3.Bucket(
        scope,
        construct_id,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        encryption=at_rest.buckets,
        encryption_key=at_rest.key,
        bucket_key_enabled=True if at_rest.key else None,
        enforce_ssl=True,
        versioned=True,
        lifecycle_rules=[
            s3.LifecycleRule(
                expiration=Duration.days(logged_days) if logged_days else None,
                noncurrent_version_expiration=Duration.days(KEPT_DAYS),
                abort_incomplete_multipart_upload_after=Duration.days(1),
            )
        ],
        server_access_logs_bucket=accesses,
        removal_policy=at_rest.removal,
    )
    accept(bucket, {"HIPAA.Security-S3BucketReplicationEnabled": ONE_REGION})
    at_rest.explain(bucket, "HIPAA.Security-S3DefaultEncryptionKMS")
    return bucket


def _text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)


def queue(scope: Construct, construct_id: str, logical_id: str, *, at_rest: AtRest, **more: Any) -> sqs.Queue:
    """A queue that takes nothing over plain HTTP and keeps its messages for as long as can be; `more` is CDK's."""
    made = sqs.Queue(
        scope,
        construct_id,
        retention_period=Duration.days(MESSAGE_DAYS),
        encryption=at_rest.queues,
        encryption_master_key=at_rest.key,
        enforce_ssl=True,
        removal_policy=at_rest.removal,
        **more,
    )
    pin(made, logical_id)
    return made


def fifo_queue(
    scope: Construct,
    construct_id: str,
    logical_id: str,
    *,
    visibility_s: int,
    at_rest: AtRest,
    dead_letter_queue: sqs.DeadLetterQueue | None = None,
) -> sqs.Queue:
    """A FIFO queue in high-throughput mode, which needs both settings: dedup and quota per message group."""
    return queue(
        scope,
        construct_id,
        logical_id,
        at_rest=at_rest,
        fifo=True,
        content_based_deduplication=False,
        deduplication_scope=sqs.DeduplicationScope.MESSAGE_GROUP,
        fifo_throughput_limit=sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID,
        visibility_timeout=Duration.seconds(visibility_s),
        dead_letter_queue=dead_letter_queue,
    )


def lost_queue(scope: Construct, logical_id: str, *, at_rest: AtRest) -> sqs.Queue:
    """Where the events end that no function could be told of, or that it failed at: a person looks."""
    made = queue(scope, logical_id, logical_id, at_rest=at_rest)
    accept(made, {"AwsSolutions-SQS3": LIES_WITH_THE_LOST})
    return made


def log_group(scope: Construct, construct_id: str, *, at_rest: AtRest) -> logs.LogGroup:
    """A group of its own for each that writes. The service would otherwise make one that keeps everything for ever."""
    group = logs.LogGroup(
        scope, construct_id, retention=LOG_RETENTION, encryption_key=at_rest.key, removal_policy=at_rest.removal
    )
    at_rest.explain(group, "HIPAA.Security-CloudWatchLogGroupEncrypted")
    return group
