"""cfn-lint finds nothing in the templates: what CloudFormation would refuse half-way through a deployment, and more."""

from __future__ import annotations

import json
from typing import Final

import pytest
from cfnlint.api import lint

from ops.local.emulator import REGION
from tests.infra.conftest import ShapeOf

IGNORED: Final = {
    # A dependency on a role is meant for the role's policy, without which AWS refuses what uses it. CDK writes both
    # into the template, and the role itself is referred to anyway.
    "W3005",
}


@pytest.fixture(scope="module", params=["everything, under a key of its own", "one class and no more"])
def findings(request: pytest.FixtureRequest, shape_of: ShapeOf) -> dict[str, list[str]]:
    """By rule. The other shapes have nothing that these two have not."""
    shape = shape_of(request.param)
    by_rule: dict[str, list[str]] = {}
    for found in lint(json.dumps(shape.template.to_json()), regions=[REGION]):
        by_rule.setdefault(found.rule.id, []).append(found.message)
    return by_rule


def test_nothing_is_found_but_what_is_ignored_with_a_reason(findings: dict[str, list[str]]) -> None:
    assert {rule: messages for rule, messages in findings.items() if rule not in IGNORED} == {}


def test_nothing_is_ignored_that_is_not_found(findings: dict[str, list[str]]) -> None:
    assert findings.keys() >= IGNORED


def test_the_linter_does_find_what_is_wrong() -> None:
    queue = {"Type": "AWS::SQS::Queue", "Properties": {"FifoQueue": "perhaps", "Colour": "red"}}
    found = {each.rule.id for each in lint(json.dumps({"Resources": {"Queue": queue}}), regions=[REGION])}
    assert found >= {"E3002", "E3012"}
