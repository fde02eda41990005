"""What holds state: its settings, and the logical ids that must never change."""

from __future__ import annotations

import pytest

from tests.infra.shape import Shape

STATEFUL = ("AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable", "AWS::S3::Bucket", "AWS::SQS::Queue")

# Changing a line here replaces the resource: its rows, objects or messages stay behind in the old one.
PINNED = {
    "Ledger": "AWS::DynamoDB::Table",
    "Payloads": "AWS::S3::Bucket",
    "PayloadAccesses": "AWS::S3::Bucket",
    "LostTicks": "AWS::SQS::Queue",
    "ReplaySummaryLiveQueue": "AWS::SQS::Queue",
    "ReplaySummaryLiveDeadLetters": "AWS::SQS::Queue",
    "ReplaySummaryRecoveryQueue": "AWS::SQS::Queue",
    "ReplaySummaryRecoveryDeadLetters": "AWS::SQS::Queue",
    "SessionSweepLiveQueue": "AWS::SQS::Queue",
    "SessionSweepLiveDeadLetters": "AWS::SQS::Queue",
    "SessionSweepRecoveryQueue": "AWS::SQS::Queue",
    "SessionSweepRecoveryDeadLetters": "AWS::SQS::Queue",
}


def stateful(shape: Shape) -> dict[str, str]:
    return {key: each["Type"] for key, each in shape.resources.items() if each["Type"] in STATEFUL}


def test_the_logical_ids_of_what_holds_state_are_the_pinned_ones(shape: Shape) -> None:
    assert stateful(shape) == PINNED


def test_what_holds_state_survives_its_stack_and_its_own_replacement(shape: Shape) -> None:
    for logical_id in stateful(shape):
        resource = shape.resources[logical_id]
        assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == ("Retain", "Retain"), logical_id
    assert shape.stack.termination_protection is True


def test_the_ledger_is_one_on_demand_table_that_cannot_be_lost_by_accident(shape: Shape) -> None:
    shape.template.has_resource_properties(
        "AWS::DynamoDB::Table",
        {
            "KeySchema": [
                {"AttributeName": "pk", "KeyType": "HASH"},
                {"AttributeName": "sk", "KeyType": "RANGE"},
            ],
            "BillingMode": "PAY_PER_REQUEST",
            "DeletionProtectionEnabled": True,
            "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
            "SSESpecification": {"SSEEnabled": True},
            "TimeToLiveSpecification": {"AttributeName": "expires_s", "Enabled": True},
        },
    )


def test_the_one_index_projects_the_match_and_the_epoch_and_nothing_else(shape: Shape) -> None:
    assert shape.properties("Ledger")["GlobalSecondaryIndexes"] == [
        {
            "IndexName": "work",
            "KeySchema": [
                {"AttributeName": "work_partition", "KeyType": "HASH"},
                {"AttributeName": "work_position", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["match_id", "epoch"]},
        }
    ]
    assert {each["AttributeType"] for each in shape.properties("Ledger")["AttributeDefinitions"]} == {"S"}


@pytest.mark.parametrize("name", ["Payloads", "PayloadAccesses"])
def test_a_bucket_is_private_and_encrypted_and_keeps_what_is_deleted_for_a_month(shape: Shape, name: str) -> None:
    bucket = shape.properties(name)
    assert bucket["PublicAccessBlockConfiguration"] == {
        "BlockPublicAcls": True,
        "BlockPublicPolicy": True,
        "IgnorePublicAcls": True,
        "RestrictPublicBuckets": True,
    }
    assert bucket["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    assert "BucketEncryption" in bucket
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    (rule,) = bucket["LifecycleConfiguration"]["Rules"]
    assert rule["Status"] == "Enabled"
    assert rule["NoncurrentVersionExpiration"] == {"NoncurrentDays": 30}
    # Payloads and outputs have no end of their own: who knows when a job may run again.
    assert rule.get("ExpirationInDays") == (365 if name == "PayloadAccesses" else None)


def test_every_access_to_an_object_is_logged(shape: Shape) -> None:
    assert shape.properties("Payloads")["LoggingConfiguration"] == {"DestinationBucketName": {"Ref": "PayloadAccesses"}}
    assert "LoggingConfiguration" not in shape.properties("PayloadAccesses")


def test_only_an_ephemeral_stack_drops_protection_and_retention(ephemeral_shape: Shape) -> None:
    assert ephemeral_shape.properties("Ledger")["DeletionProtectionEnabled"] is False
    assert {ephemeral_shape.resources[each]["DeletionPolicy"] for each in stateful(ephemeral_shape)} == {"Delete"}
    assert ephemeral_shape.stack.termination_protection is False
    assert stateful(ephemeral_shape) == PINNED
