"""The stores: the ledger table (DESIGN section 6) and the bucket for payloads and outputs. Both outlive the stack."""

from __future__ import annotations

from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.at_rest import AtRest, pin
from infra.nag import ONE_REGION, accept

KEPT_DAYS: Final = 30
"""How long an object that was deleted can still be brought back."""

ACCESS_LOG_DAYS: Final = 365

RECOVERY: Final = (
    "Point-in-time recovery keeps every second of 35 days; a longer plan belongs to the organisation's own vault, which"
    " selects the table by its tags."
)

INDEX: Final = "work"
INDEX_ATTRIBUTES: Final = ("match_id", "epoch")
"""All that the index projects beside the keys. Final: a projection cannot be changed later."""


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
        accept(self.table, {"HIPAA.Security-DynamoDBInBackupPlan": RECOVERY})

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
