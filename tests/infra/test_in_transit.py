"""TLS or nothing, for whatever has a policy of its own; and no secret where it could be read."""

from __future__ import annotations

import pytest

from tests.infra.conftest import ShapeOf
from tests.infra.shape import Json, Shape, arn, environment, many
from tests.infra.whole_app import SHAPES

# What takes a resource policy, the policy's type, and how that names what it is about.
POLICIES = {
    "AWS::S3::Bucket": ("AWS::S3::BucketPolicy", "Bucket"),
    "AWS::SQS::Queue": ("AWS::SQS::QueuePolicy", "Queues"),
    "AWS::SNS::Topic": ("AWS::SNS::TopicPolicy", "Topics"),
}


@pytest.fixture(scope="module", params=SHAPES)
def any_shape(request: pytest.FixtureRequest, shape_of: ShapeOf) -> Shape:
    return shape_of(request.param)


def denies_plain_http(statement: Json, logical_id: str) -> bool:
    everyone = statement["Principal"] in ("*", {"AWS": "*"})
    plain = statement.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
    all_of_it = arn(logical_id) in many(statement["Resource"]) or statement["Resource"] == {"Ref": logical_id}
    return bool(statement["Effect"] == "Deny" and everyone and plain and all_of_it)


@pytest.mark.parametrize("resource_type", POLICIES)
def test_whatever_takes_a_policy_has_one_that_refuses_plain_http(any_shape: Shape, resource_type: str) -> None:
    policy_type, names = POLICIES[resource_type]
    for logical_id in any_shape.of_type(resource_type):
        statements = [
            statement
            for policy in any_shape.of_type(policy_type).values()
            if {"Ref": logical_id} in many(policy["Properties"][names])
            for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        ]
        denials = [each for each in statements if denies_plain_http(each, logical_id)]
        assert len(denials) == 1, f"{logical_id}: {statements}"


def test_the_denial_is_of_every_action_that_the_policy_can_speak_of(any_shape: Shape) -> None:
    for policy_type, _ in POLICIES.values():
        for policy in any_shape.of_type(policy_type).values():
            (denial,) = (
                each for each in policy["Properties"]["PolicyDocument"]["Statement"] if each["Effect"] == "Deny"
            )
            if policy_type == "AWS::SNS::TopicPolicy":  # a topic's policy takes no wildcard action
                assert "sns:Publish" in denial["Action"]
            else:
                assert denial["Action"] in ("s3:*", "sqs:*")


def test_no_environment_holds_a_secret(any_shape: Shape) -> None:
    """Only where to ask for one: a value in an environment is shown to whoever may describe the function."""
    secrets = {key for key, each in any_shape.resources.items() if each["Type"] == "AWS::SecretsManager::Secret"}
    for function in any_shape.of_type("AWS::Lambda::Function").values():
        for name, value in environment(function["Properties"]).items():
            assert "resolve:" not in str(value), name
            if any(f"'{each}'" in str(value) for each in secrets):
                assert name == "SLUICE_SECRET"
                assert value in [{"Ref": each} for each in secrets]  # its ARN
