"""Grants against calls: every function may do what its code asks of AWS, and nothing else.

The calls are recorded while each function goes through its paths on moto (`scenarios`); the grants are the template's.
The table: `pytest tests/infra/test_grants.py -k table -s`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from typing import Final

import pytest

from infra.bundle import Bundle
from infra.job_class import class_id
from shared.domain.configuration import parse_settings
from tests.infra.calls import Permission
from tests.infra.conftest import synth_shape
from tests.infra.driving import CONFIG
from tests.infra.scenarios import drive
from tests.infra.shape import Shape, environment

SETTINGS: Final = parse_settings(CONFIG)

NOT_CALLED: Final[Mapping[tuple[str, str, str], str]] = {
    ("*", "logs:*", "own log group"): "Lambda writes what the function prints",
    ("worker *", "sqs:ReceiveMessage", "own queues"): "the event source mapping asks in the function's name",
    ("worker *", "sqs:GetQueueAttributes", "own queues"): "the event source mapping asks in the function's name",
    ("dead_letter", "sqs:*", "dead letters"): "the event source mapping asks in the function's name",
    ("pacer", "sqs:SendMessage", "LostTicks"): "Lambda sends what the function failed at",
    ("intake", "sqs:SendMessage", "LostEvents"): "Lambda sends what the function failed at",
    ("producer", "sqs:SendMessage", "LostEvents"): "Lambda sends what the function failed at",
    ("worker *", "s3:ListBucket", "bucket"): "without it S3 says 403 for an object that does not exist",
}
"""What a role needs although its code never asks for it: function, action, resource, and who asks instead."""

ALL_CLASSES: Final = "all queues"


@pytest.fixture(scope="module")
def granted(bundle: Bundle) -> dict[str, set[Permission]]:
    shape = synth_shape(SETTINGS, bundle, ephemeral=False)
    roles = dict(_roles(shape))
    return {
        name: {
            (action, _granted_on(name, resource))
            for action, resources in shape.grants(role).items()
            for resource in resources
        }
        for name, role in roles.items()
    }


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[Permission]]:
    """Workers run the same code but for their kind: what they ask of Sluice's own stores, each may have to ask."""
    with pytest.MonkeyPatch.context() as patch:
        asked = drive(tmp_path_factory.mktemp("grants"), patch)
    found = {name: {(action, _called_on(name, on)) for action, on in each} for name, each in asked.items()}
    workers = [name for name in found if name.startswith("worker ")]
    shared = {each for name in workers for each in found[name] if not re.match(r"table game|model", each[1])}
    return {name: each | shared if name in workers else each for name, each in found.items()}


def _roles(shape: Shape) -> Iterator[tuple[str, str]]:
    for function in shape.of_type("AWS::Lambda::Function").values():
        variables = environment(function["Properties"])
        name = variables["POWERTOOLS_SERVICE_NAME"].removeprefix("sluice-").replace("-", "_")
        if name == "worker":
            (job_class,) = (each for each in SETTINGS.classes if f"{class_id(each)}LiveQueue" in str(variables))
            name = f"worker {job_class}"
        yield name, function["Properties"]["Role"]["Fn::GetAtt"][0]


def _granted_on(function: str, resource: str) -> str:
    """The template's name of a resource, in the words of the table."""
    name = resource.removesuffix(".Arn")
    lane_queue = re.fullmatch(r"(\w+?)(Live|Recovery)(Queue|DeadLetters)", name)
    if lane_queue and lane_queue[3] == "DeadLetters":
        return "dead letters"
    if lane_queue:
        own = function.startswith("worker ") and class_id(function.removeprefix("worker ")) == lane_queue[1]
        return "own queues" if own else ALL_CLASSES if function == "pacer" else f"{lane_queue[1]} {lane_queue[2]}"
    if name.startswith("PacerFunction"):
        return "pacer"
    if "Logs" in name and function != "webhook access":
        return "own log group"
    known = {
        "Ledger": "rows",
        "Ledger.Arn/index/work": "index",
        "Payloads": "bucket",
        "Payloads.Arn/*": "objects",
        "Payloads.Arn/payloads/*": "payloads",
        "WebhookSecret": "secret",
    }
    return known.get(name, re.sub(r"^arn:.*[:/](table|foundation-model)/", r"\1 ", name).replace("foundation-", ""))


def _called_on(function: str, resource: str) -> str:
    kind, _, name = resource.partition(" ")
    if kind == "queue":
        job_class, _, lane = name.removesuffix(".fifo").rpartition("-")
        own = function == f"worker {job_class}"
        return "own queues" if own else ALL_CLASSES if function == "pacer" else f"{class_id(job_class)} {lane.title()}"
    if kind == "objects":
        return "objects" if function.startswith("worker ") else name.removesuffix("/*")
    known = {"table own": "rows", "table own index work": "index"}
    return known.get(resource, {"secret": "secret", "function": "pacer"}.get(kind, resource))


def _excuses(name: str, permission: Permission) -> list[tuple[str, str, str]]:
    action, resource = permission
    return [key for key in NOT_CALLED if fnmatch(name, key[0]) and fnmatch(action, key[1]) and resource == key[2]]


def test_every_function_is_driven_and_every_role_is_compared(
    granted: dict[str, set[Permission]], called: dict[str, set[Permission]]
) -> None:
    assert granted.keys() == called.keys()
    assert len(granted) == 6 + len(SETTINGS.classes)


def test_nothing_is_called_that_is_not_granted(
    granted: dict[str, set[Permission]], called: dict[str, set[Permission]]
) -> None:
    assert {name: called[name] - granted[name] for name in granted if called[name] - granted[name]} == {}


def test_nothing_is_granted_that_is_not_called(
    granted: dict[str, set[Permission]], called: dict[str, set[Permission]]
) -> None:
    unused = {
        name: {each for each in granted[name] - called[name] if not _excuses(name, each)} for name in sorted(granted)
    }
    assert {name: each for name, each in unused.items() if each} == {}


def test_every_exception_is_of_a_grant_that_no_code_uses(
    granted: dict[str, set[Permission]], called: dict[str, set[Permission]]
) -> None:
    used = {key for name in granted for each in granted[name] - called[name] for key in _excuses(name, each)}
    assert used == NOT_CALLED.keys()


def test_the_table(granted: dict[str, set[Permission]], called: dict[str, set[Permission]]) -> None:
    lines, reasons = [], []
    for name in sorted(granted):
        for action, resource in sorted(granted[name]):
            excuses = [NOT_CALLED[key] for key in _excuses(name, (action, resource))]
            by = "its code calls it" if (action, resource) in called[name] else "; ".join(excuses)
            reasons.append(by)
            lines.append(f"{name:28} {action:38} {resource:28} {by}")
    print("\n" + "\n".join(lines))
    assert all(reasons)
