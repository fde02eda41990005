"""A deployment resumes nothing: pause, halt and overrides are rows, and the template writes no row (I10)."""

from __future__ import annotations

import json

from tests.infra.shape import Shape


def test_the_template_holds_no_control_data_and_nothing_that_could_write_any(shape: Shape) -> None:
    for logical_id, resource in shape.resources.items():
        assert not resource["Type"].startswith("Custom::"), f"{logical_id} could write to the ledger at a deployment"
        assert resource["Type"] != "AWS::CloudFormation::CustomResource", logical_id
    assert "ImportSourceSpecification" not in shape.properties("Ledger")
    written = json.dumps(shape.template.to_json())
    for word in ("CLASS#replay_summary", "planned_at_ms", "override_rate", '"halt"', '"pause"'):
        assert word not in written


def test_no_switch_of_the_stack_stands_for_a_pause(shape: Shape) -> None:
    """A disabled schedule or mapping, or a concurrency of 0, would be put back by the next deployment (TRAPS 26)."""
    for schedule in shape.of_type("AWS::Scheduler::Schedule").values():
        assert schedule["Properties"]["State"] == "ENABLED"
    for mapping in shape.of_type("AWS::Lambda::EventSourceMapping").values():
        assert mapping["Properties"]["Enabled"] is True
    for function in shape.of_type("AWS::Lambda::Function").values():
        assert "ReservedConcurrentExecutions" not in function["Properties"]


def test_the_ledger_outlives_every_deployment(shape: Shape) -> None:
    table = shape.resources["Ledger"]

    assert (table["DeletionPolicy"], table["UpdateReplacePolicy"]) == ("Retain", "Retain")
