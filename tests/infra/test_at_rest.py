"""Under whose key everything lies: AWS's own, or with one setting this account's."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec.structs import replace

from infra.bundle import Bundle
from shared.domain.configuration import parse_settings
from shared.errors import ConfigError
from tests.infra.conftest import ShapeOf, synth_shape
from tests.infra.shape import Json, Shape, many, text
from tests.infra.whole_app import EVERYTHING, LITTLE

DECRYPT: Final = {"kms:Decrypt"}
BOTH: Final = {"kms:Decrypt", "kms:GenerateDataKey"}

# Where each kind of store names its key. Whatever else CloudFormation can make must be listed as holding nothing.
KEY_OF: Final = {
    "AWS::DynamoDB::Table": ("SSESpecification", "KMSMasterKeyId"),
    "AWS::Logs::LogGroup": ("KmsKeyId",),
    "AWS::S3::Bucket": (
        "BucketEncryption",
        "ServerSideEncryptionConfiguration",
        "ServerSideEncryptionByDefault",
        "KMSMasterKeyID",
    ),
    "AWS::SNS::Topic": ("KmsMasterKeyId",),
    "AWS::SQS::Queue": ("KmsMasterKeyId",),
    "AWS::SecretsManager::Secret": ("KmsKeyId",),
}
HOLDS_NOTHING: Final = {
    "AWS::ApiGatewayV2::Api",
    "AWS::ApiGatewayV2::Integration",
    "AWS::ApiGatewayV2::Route",
    "AWS::ApiGatewayV2::Stage",
    "AWS::CloudWatch::Alarm",
    "AWS::CloudWatch::Dashboard",
    "AWS::Events::Rule",
    "AWS::IAM::Policy",
    "AWS::IAM::Role",
    "AWS::KMS::Key",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::Lambda::EventSourceMapping",
    "AWS::Lambda::Function",
    "AWS::Lambda::LayerVersion",
    "AWS::Lambda::Permission",
    "AWS::S3::BucketPolicy",
    "AWS::SNS::TopicPolicy",
    "AWS::SQS::QueuePolicy",
    "AWS::Scheduler::Schedule",
    "AWS::SecretsManager::RotationSchedule",
}


@pytest.fixture
def own_key(shape_of: ShapeOf) -> Shape:
    return shape_of("everything, under a key of its own")


@pytest.fixture
def aws_key(shape_of: ShapeOf) -> Shape:
    return shape_of("everything")


def key_of(resource: Json) -> object:
    found: object = resource.get("Properties", {})
    for step in KEY_OF[resource["Type"]]:
        (found,) = many(found)
        found = found.get(step) if isinstance(found, dict) else None
        if found is None:
            return None
    return found


def stores(shape: Shape) -> dict[str, Json]:
    return {key: each for key, each in shape.resources.items() if each["Type"] in KEY_OF}


def roles(shape: Shape) -> dict[str, str]:
    """Every role by what takes it: the service that a function is, or `schedule`."""
    named = {
        each["Properties"]["Role"]["Fn::GetAtt"][0]: each["Properties"]["Environment"]["Variables"][
            "POWERTOOLS_SERVICE_NAME"
        ]
        for each in shape.of_type("AWS::Lambda::Function").values()
    }
    return {role: named.get(role, "schedule") for role in shape.of_type("AWS::IAM::Role")}


def uses_of_the_key(shape: Shape, role_id: str) -> dict[str, set[str]]:
    """What a role may do with the key: by the service that does it in the role's name, and in no other way."""
    found = {}
    for policy in shape.of_type("AWS::IAM::Policy").values():
        if {"Ref": role_id} not in policy["Properties"]["Roles"]:
            continue
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
            if any(action.startswith("kms:") for action in many(statement["Action"])):
                assert text(statement["Resource"]) == "CustomerKey.Arn"
                via = text(statement["Condition"]["StringEquals"]["kms:ViaService"])
                assert via.endswith(".AWS::Region.amazonaws.com")
                found[via.partition(".")[0]] = set(many(statement["Action"]))
    return found


def test_every_resource_type_is_known_to_hold_something_or_nothing(own_key: Shape) -> None:
    assert {each["Type"] for each in own_key.resources.values()} <= KEY_OF.keys() | HOLDS_NOTHING
    assert {each["Type"] for each in stores(own_key).values()} == KEY_OF.keys()


def test_with_the_setting_everything_at_rest_is_under_the_one_key(own_key: Shape) -> None:
    other = {name for name, each in stores(own_key).items() if key_of(each) != {"Fn::GetAtt": ["CustomerKey", "Arn"]}}
    assert other == {"PayloadAccesses"}  # S3 delivers its logs under a key of its own only


def test_by_default_there_is_no_such_key_and_everything_is_encrypted_all_the_same(aws_key: Shape) -> None:
    assert not EVERYTHING.customer_managed_key
    assert {key_of(each) for each in stores(aws_key).values()} == {None}
    assert "kms:" not in str(aws_key.resources)
    assert aws_key.properties("Ledger")["SSESpecification"] == {"SSEEnabled": True}
    for queue in aws_key.of_type("AWS::SQS::Queue").values():
        assert queue["Properties"]["SqsManagedSseEnabled"] is True


def test_the_setting_is_true_or_false_and_nothing_else() -> None:
    line = "[sluice]\ncustomer_managed_key = {}\n[classes.replays]\nkind = 'replays'\n"
    assert parse_settings(line.format("true")).customer_managed_key is True
    with pytest.raises(ConfigError) as raised:
        parse_settings(line.format("'arn:aws:kms:eu-central-1:111122223333:key/1'"))
    assert list(raised.value.faults) == ["sluice.customer_managed_key: got a string, expected true or false"]


def test_the_key_is_rotated_and_outlives_its_stack(own_key: Shape, bundle: Bundle) -> None:
    assert own_key.properties("CustomerKey")["EnableKeyRotation"] is True
    assert own_key.resources["CustomerKey"]["DeletionPolicy"] == "Retain"
    thrown_away = synth_shape(replace(LITTLE, customer_managed_key=True), bundle, ephemeral=True)
    assert thrown_away.resources["CustomerKey"]["DeletionPolicy"] == "Delete"


def test_the_services_that_use_the_key_in_their_own_name_are_of_this_account(own_key: Shape) -> None:
    statements = own_key.properties("CustomerKey")["KeyPolicy"]["Statement"]
    services = [each for each in statements if "Service" in each["Principal"]]
    logs, tellers = sorted(services, key=lambda each: str(each["Sid"]), reverse=True)
    assert text(logs["Principal"]["Service"]) == "logs.AWS::Region.amazonaws.com"
    assert text(logs["Condition"]["ArnLike"]["kms:EncryptionContext:aws:logs:arn"]) == (
        "arn:AWS::Partition:logs:AWS::Region:AWS::AccountId:log-group:*"
    )
    assert tellers["Principal"]["Service"] == ["cloudwatch.amazonaws.com", "events.amazonaws.com"]
    assert set(tellers["Action"]) == BOTH
    assert tellers["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    others = {text(each["Principal"]["AWS"]) for each in statements if each not in services}
    assert others == {"arn:AWS::Partition:iam::AWS::AccountId:root"}  # which lets IAM decide, and nobody in by itself


def test_each_role_uses_the_key_for_what_it_does_and_by_no_other_way(own_key: Shape) -> None:
    expected = {
        "sluice-pacer": {"dynamodb": DECRYPT, "sqs": BOTH},
        "sluice-worker": {"dynamodb": DECRYPT, "sqs": BOTH, "s3": BOTH},
        "sluice-dead-letter": {"dynamodb": DECRYPT, "sqs": DECRYPT},
        "sluice-intake": {"dynamodb": DECRYPT, "sqs": BOTH, "s3": {"kms:GenerateDataKey"}},
        "sluice-producer": {"dynamodb": DECRYPT, "sqs": BOTH, "s3": {"kms:GenerateDataKey"}},
        "sluice-webhook": {"dynamodb": DECRYPT, "secretsmanager": DECRYPT},
        "sluice-rotation": {"secretsmanager": BOTH},
        "schedule": {"sqs": BOTH},  # what it cannot deliver it lays with the lost
    }
    found = {(name, role) for role, name in roles(own_key).items()}
    assert {name for name, _ in found} == expected.keys()
    for name, role in found:
        assert uses_of_the_key(own_key, role) == expected[name], name
