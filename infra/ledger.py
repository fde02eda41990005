"""The stores: the ledger table (DESIGN section 6) and the bucket for payloads and outputs. Both outlive the stack."""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct

INDEX: Final = "work"
INDEX_ATTRIBUTES: Final = ("match_id", "epoch")
"""All that the index projects beside the keys. Final: a projection cannot be changed later."""


class Ledger(Construct):
    """The one table. Its logical id, keys and index are pinned: changing one replaces it, with every row in it."""

    def __init__(self, scope: Construct, construct_id: str, *, ephemeral: bool) -> None:
        super().__init__(scope, construct_id)
        self.table = dynamodb.Table(
            self,
            "Table",
            partition_key=_text("pk"),
            sort_key=_text("sk"),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.AWS_MANAGED,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            time_to_live_attribute="expires_s",
            deletion_protection=not ephemeral,
            removal_policy=removal(ephemeral),
        )
        self.table.add_global_secondary_index(
            index_name=INDEX,
            partition_key=_text("work_partition"),
            sort_key=_text("work_position"),
            projection_type=dynamodb.ProjectionType.INCLUDE,
            non_key_attributes=list(INDEX_ATTRIBUTES),
        )
        pin(self.table, "Ledger")

    @property
    def rows_arn(self) -> str:
        return self.table.table_arn

    @property
    def index_arn(self) -> str:
        return f"{self.table.table_arn}/index/{INDEX}"


class Payloads(Construct):
    """The private bucket for payloads and outputs that are too large for a row."""

    def __init__(self, scope: Construct, construct_id: str, *, ephemeral: bool) -> None:
        super().__init__(scope, construct_id)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            versioned=False,
            removal_policy=removal(ephemeral),
        )
        pin(self.bucket, "Payloads")

    @property
    def objects_arn(self) -> str:
        return self.bucket.arn_for_objects("*")


def removal(ephemeral: bool) -> cdk.RemovalPolicy:
    """What holds state stays when the stack goes, except in a stack that says it is a throw-away."""
    return cdk.RemovalPolicy.DESTROY if ephemeral else cdk.RemovalPolicy.RETAIN


def pin(resource: cdk.Resource, logical_id: str) -> None:
    """Give a stateful resource a logical id of our own, so that moving its construct in the tree cannot replace it."""
    child = resource.node.default_child
    assert isinstance(child, cdk.CfnElement)
    child.override_logical_id(logical_id)


def _text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)
