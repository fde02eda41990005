"""`ops concurrency` against the emulator's event source mappings, as CloudFormation made them, over a redeployment."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from ops.access import AwsAccess
from ops.cli import main
from ops.local.emulator import Emulator
from shared.domain.job import Lane
from shared.domain.settings import ClassSettings
from tests.contract.worlds import AwsWorld, aws_client

pytestmark = pytest.mark.e2e

CLASS = "replays"
SETTINGS = ClassSettings(name=CLASS, kind="sim", slots=10)
CONFIG = f'[classes.{CLASS}]\nkind = "replay_summary"\nslots = {SETTINGS.slots}\n'
STACK = "concurrency"
CODE = "def handler(event, context):\n    return {'batchItemFailures': []}\n"


def template(*, retention_s: int = 86_400, slots: int = SETTINGS.slots) -> str:
    """A worker, and a queue and a mapping per lane with the properties of infra/job_class.py."""
    parts = ClassSettings(name=CLASS, kind="sim", slots=slots)
    trust = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    resources: dict[str, Any] = {
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {"AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]}},
        },
        "Worker": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "Runtime": "python3.11",
                "Handler": "index.handler",
                "Role": {"Fn::GetAtt": ["Role", "Arn"]},
                "Code": {"ZipFile": CODE},
            },
        },
    }
    for lane in Lane:
        resources[f"Queue{lane}"] = {
            "Type": "AWS::SQS::Queue",
            "Properties": {"FifoQueue": True, "MessageRetentionPeriod": retention_s},
        }
        resources[f"Mapping{lane}"] = {
            "Type": "AWS::Lambda::EventSourceMapping",
            "Properties": {
                "EventSourceArn": {"Fn::GetAtt": [f"Queue{lane}", "Arn"]},
                "FunctionName": {"Ref": "Worker"},
                "ScalingConfig": {"MaximumConcurrency": parts.lane_slots(lane)},
            },
        }
    outputs = {lane.value: {"Value": {"Ref": f"Queue{lane}"}} for lane in Lane}
    return json.dumps({"Resources": resources, "Outputs": outputs})


def bounds(emulator: Emulator) -> list[int]:
    found = emulator.client("lambda").list_event_source_mappings()["EventSourceMappings"]
    return sorted(each["ScalingConfig"]["MaximumConcurrency"] for each in found)


def redeploy(emulator: Emulator, body: str) -> None:
    formation = emulator.client("cloudformation")
    formation.update_stack(StackName=STACK, TemplateBody=body, Capabilities=["CAPABILITY_IAM"])
    formation.get_waiter("stack_update_complete").wait(StackName=STACK, WaiterConfig={"Delay": 1})


def test_six_is_seen_in_both_mappings_outlives_a_redeployment_and_goes_back(
    emulator: Emulator, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    formation = emulator.client("cloudformation")
    formation.create_stack(StackName=STACK, TemplateBody=template(), Capabilities=["CAPABILITY_IAM"])
    formation.get_waiter("stack_create_complete").wait(StackName=STACK, WaiterConfig={"Delay": 1})
    (stack,) = formation.describe_stacks(StackName=STACK)["Stacks"]
    urls = {each["OutputKey"]: each["OutputValue"] for each in stack["Outputs"]}
    ledger = AwsWorld(aws_client(emulator.endpoint))
    config = tmp_path / "sluice.toml"
    config.write_text(CONFIG)
    for name, value in emulator.environment().items():
        monkeypatch.setenv(name, value)
    names = {"SLUICE_TABLE": ledger.name, "SLUICE_BUCKET": ledger.name, "SLUICE_QUEUES": json.dumps({CLASS: urls})}
    access = AwsAccess(config=config, outputs=None, variables=names)

    def said(*arguments: object) -> str:
        result = CliRunner().invoke(main, ["concurrency", CLASS, *map(str, arguments)], obj=access)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert bounds(emulator) == [3, 7]
    assert "replays: 10 -> 6 slots by " in said(6, "--reason", "fewer connections")
    assert bounds(emulator) == [2, 4]
    redeploy(emulator, template(retention_s=3_600))
    assert bounds(emulator) == [2, 4], "a template that does not change the mapping leaves it alone"
    assert "warning" not in said()

    redeploy(emulator, template(retention_s=3_600, slots=20))
    assert bounds(emulator) == [6, 14], "one that does writes what it says"
    assert 'put them right: python -m ops concurrency replays 6 --reason "..."' in said()
    said(6, "--reason", "still fewer")
    assert bounds(emulator) == [2, 4]

    assert "replays: 6 -> 10 slots by " in said("--back", "--reason", "they are done")
    assert bounds(emulator) == [3, 7]
    control = ledger.ledger.read_control(CLASS)
    assert control.slots is not None
    assert control.slots.flag.by.endswith(", no AWS identity")
