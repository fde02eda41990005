"""Questions to a synthesised template, so that a test can say what it means and not how CloudFormation spells it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from aws_cdk.assertions import Template

from infra.stack import SluiceStack

Json = dict[str, Any]


@dataclass(kw_only=True)
class Shape:
    """A stack and its template. Logical ids of our own (the stateful ones) may be named, hashed ones only looked up."""

    stack: SluiceStack
    template: Template
    resources: dict[str, Json] = field(init=False)

    def __post_init__(self) -> None:
        self.resources = dict(self.template.to_json()["Resources"])

    def of_type(self, resource_type: str) -> dict[str, Json]:
        resources = {key: each for key, each in self.resources.items() if each["Type"] == resource_type}
        assert resources, f"no {resource_type} in the template"
        return resources

    def properties(self, logical_id: str) -> Json:
        properties: Json = self.resources[logical_id]["Properties"]
        return properties

    def the_function(self, service: str, *, job_class: str | None = None) -> tuple[str, Json]:
        """The one function of a service (of a class, for workers): its logical id and properties."""
        functions = [
            (key, each["Properties"])
            for key, each in self.of_type("AWS::Lambda::Function").items()
            if environment(each["Properties"])["POWERTOOLS_SERVICE_NAME"] == service
            and (job_class is None or job_class in str(environment(each["Properties"])["SLUICE_QUEUES"]))
        ]
        assert len(functions) == 1, f"{len(functions)} functions of {service}"
        return functions[0]

    def mapping_of(self, queue_id: str) -> Json:
        """The one event source mapping that reads this queue."""
        mappings = [
            mapping
            for mapping in self.of_type("AWS::Lambda::EventSourceMapping").values()
            if mapping["Properties"]["EventSourceArn"] == arn(queue_id)
        ]
        assert len(mappings) == 1, f"{len(mappings)} mappings read {queue_id}"
        return mappings[0]

    def grants(self, role_id: str) -> dict[str, set[str]]:
        """What a role may do: each action with the resources it is allowed on, written as text."""
        granted: dict[str, set[str]] = {}
        for policy in self.of_type("AWS::IAM::Policy").values():
            if {"Ref": role_id} in policy["Properties"]["Roles"]:
                for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
                    assert statement["Effect"] == "Allow"
                    for action in many(statement["Action"]):
                        granted.setdefault(action, set()).update(text(each) for each in many(statement["Resource"]))
        return granted

    def statements(self) -> Iterator[Json]:
        """Every statement that grants something to a role."""
        for policy in self.of_type("AWS::IAM::Policy").values():
            yield from policy["Properties"]["PolicyDocument"]["Statement"]


def arn(logical_id: str) -> Json:
    return {"Fn::GetAtt": [logical_id, "Arn"]}


def environment(function: Json) -> Json:
    variables: Json = function["Environment"]["Variables"]
    return variables


def many(value: Any) -> list[Any]:
    """CloudFormation writes a list of one as the one."""
    return value if isinstance(value, list) else [value]


def text(value: Any) -> str:
    """A value with its references spelled out: `Ledger.Arn/index/work`."""
    if isinstance(value, str):
        return value
    ((name, argument),) = value.items()
    match name:
        case "Ref":
            return str(argument)
        case "Fn::GetAtt":
            return ".".join(argument)
        case "Fn::Join":
            return str(argument[0]).join(text(each) for each in argument[1])
    raise AssertionError(f"an unexpected function: {name}")
