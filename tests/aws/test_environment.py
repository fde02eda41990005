"""The environment: what a deployment tells its functions, and what it forgot to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.aws.wiring import Environment, read_environment
from shared.domain.job import Lane
from shared.errors import ConfigError

QUEUES = {"replay_summary": {"live": "https://sqs.example/1/live.fifo", "recovery": "https://sqs.example/1/rec.fifo"}}
VARIABLES = {"SLUICE_TABLE": "ledger", "SLUICE_BUCKET": "payloads", "SLUICE_QUEUES": json.dumps(QUEUES)}


def test_the_environment_is_read_from_what_is_handed_in() -> None:
    found = read_environment({**VARIABLES, "SLUICE_CONFIG": "/etc/sluice.toml"})

    assert found == Environment(
        table="ledger",
        bucket="payloads",
        queues={
            "replay_summary": {
                Lane.LIVE: "https://sqs.example/1/live.fifo",
                Lane.RECOVERY: "https://sqs.example/1/rec.fifo",
            }
        },
        config_path=Path("/etc/sluice.toml"),
    )


def test_only_the_webhook_is_told_of_the_pacer_and_the_secret() -> None:
    assert (read_environment(VARIABLES).pacer, read_environment(VARIABLES).secret) == ("", "")
    found = read_environment({**VARIABLES, "SLUICE_PACER": "the-pacer", "SLUICE_SECRET": "arn:of:it"})
    assert (found.pacer, found.secret) == ("the-pacer", "arn:of:it")


def test_without_a_path_the_configuration_lies_beside_shared() -> None:
    found = read_environment(VARIABLES).config_path

    assert found.name == "sluice.toml"
    assert (found.parent / "shared" / "ports.py").is_file()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"SLUICE_TABLE": ""}, "SLUICE_TABLE: got nothing, expected the ledger table's name"),
        ({"SLUICE_BUCKET": " "}, "SLUICE_BUCKET: got nothing, expected the bucket's name"),
        ({"SLUICE_QUEUES": ""}, "SLUICE_QUEUES: got nothing, expected JSON like {class: {lane: url}}"),
        ({"SLUICE_QUEUES": "{"}, "SLUICE_QUEUES: got text that is not JSON, expected JSON like"),
        ({"SLUICE_QUEUES": "[" * 100_000}, "SLUICE_QUEUES: got text that is not JSON, expected JSON like"),
        ({"SLUICE_QUEUES": "[]"}, "SLUICE_QUEUES: got an array, expected a table"),
        ({"SLUICE_QUEUES": '{"a": 1}'}, "SLUICE_QUEUES.a: got a whole number, expected a table"),
        (
            {"SLUICE_QUEUES": '{"a": {"live": "https://q.example"}}'},  # a lane is missing
            "SLUICE_QUEUES.a.recovery: got nothing, expected an http:// or https:// URL",
        ),
        (
            {"SLUICE_QUEUES": json.dumps({"a": {**QUEUES["replay_summary"], "recovry": "https://q.example"}})},
            "SLUICE_QUEUES.a.recovry: unknown key; did you mean recovery?",
        ),
        (
            {"SLUICE_QUEUES": json.dumps({"A": QUEUES["replay_summary"]})},
            'SLUICE_QUEUES.A: got "A", expected a name like replay_summary',
        ),
    ],
)
def test_a_fault_of_the_environment_names_its_variable(changes: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_environment({**VARIABLES, **changes})

    (fault,) = raised.value.faults
    assert fault.startswith(expected)


def test_every_fault_of_the_environment_is_reported_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        read_environment({})

    assert [fault.partition(":")[0] for fault in raised.value.faults] == [
        "SLUICE_TABLE",
        "SLUICE_BUCKET",
        "SLUICE_QUEUES",
    ]
