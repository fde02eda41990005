"""The command line: how it is installed, finds a deployment, and ends when something is wrong: one line, no traceback.

And docs/operations.md names no command and no option that it does not have.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from botocore.exceptions import ClientError
from click.testing import CliRunner
from moto import mock_aws

from ops.access import AwsAccess, read_outputs
from ops.cli import main
from shared.errors import ConfigError, LedgerUnavailable, ObjectMissing
from tests.architecture import ROOT
from tests.commands.world import World

SCRIPT = Path(sys.executable).with_name("sluice")
OPERATIONS = ROOT / "docs" / "operations.md"
QUEUES = "https://sqs.eu-central-1.amazonaws.com/1"
URLS = {"live": f"{QUEUES}/l.fifo", "recovery": f"{QUEUES}/r.fifo"}
OUTPUTS = {"TableName": "T", "BucketName": "B", "PacerName": "P", "QueueUrls": json.dumps({"replays": URLS})}


def test_the_outputs_of_a_deployment_name_its_resources(tmp_path: Path) -> None:
    path = tmp_path / "outputs.json"
    path.write_text(json.dumps({"Sluice": OUTPUTS, "Other": {"Url": "x"}}))
    access = AwsAccess(config=None, outputs=path, variables={})

    assert read_outputs(path)["SLUICE_TABLE"] == "T"
    assert access.deployed_classes() == {"replays"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "outputs.json: got no such file or directory, expected the outputs file of `cdk deploy --outputs-file`"),
        ("{", "outputs.json: got text that is not JSON, expected the outputs file"),
        ("[]", "outputs.json: got 0 stacks with a TableName, expected the outputs file"),
        ({"A": OUTPUTS, "B": OUTPUTS}, "outputs.json: got 2 stacks with a TableName"),
        ({"A": {"TableName": "T"}}, "outputs.json: BucketName: got nothing, expected text"),
        ({"A": OUTPUTS | {"QueueUrls": "{}x"}}, "SLUICE_QUEUES: got text that is not JSON"),
    ],
)
def test_outputs_that_are_none_are_a_sentence(tmp_path: Path, content: Any, sentence: str) -> None:
    path = tmp_path / "outputs.json"
    if content is not None:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    result = CliRunner().invoke(main, ["--outputs", str(path), "status"])

    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {sentence}")
    assert "Traceback" not in result.output


def test_without_any_deployment_it_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLUICE_TABLE", "SLUICE_BUCKET", "SLUICE_QUEUES", "SLUICE_OUTPUTS"):
        monkeypatch.delenv(name, raising=False)
    result = CliRunner().invoke(main, ["status"])

    assert result.exit_code == 2
    assert result.stderr.startswith("error: --outputs: got nothing, expected a deployment: --outputs FILE")


def test_a_fault_in_the_configuration_is_named_with_its_key(tmp_path: Path) -> None:
    config, outputs = tmp_path / "sluice.toml", tmp_path / "outputs.json"
    config.write_text('[classes.replays]\nkind = "replays"\nslotz = 1\nslots = 1\n')
    outputs.write_text(json.dumps({"Sluice": OUTPUTS}))
    result = CliRunner().invoke(main, ["--config", str(config), "--outputs", str(outputs), "status"])

    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "error: classes.replays.slotz: unknown key; did you mean slots?",
        "error: classes.replays.slots: got 1, expected a whole number from 4 to 2000",
    ]


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "GetItem")


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (
            LedgerUnavailable("throttled"),
            3,
            "The ledger did not answer in time. (throttled) Nothing is lost: try again.",
        ),
        (ObjectMissing(), 1, "An object that the job points at does not exist."),
        (ConfigError(["a: b", "c: d"]), 2, "a: b\nerror: c: d"),
        (KeyError("x"), 1, "KeyError (a fault of Sluice's own; --traceback shows where)"),
        (
            refused("AccessDeniedException"),
            1,
            "AWS: ClientError: An error occurred (AccessDeniedException) when calling the GetItem operation: no",
        ),
        (
            refused("ValidationException"),
            1,
            "AWS: ValidationException (ClientError; --traceback shows what AWS said)",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_every_failure_ends_in_a_line_and_a_code(error: BaseException, code: int, sentence: str) -> None:
    @click.command()
    def failing() -> None:
        raise error

    group = type(main)(callback=main.callback, params=main.params, commands={"failing": failing})
    result = CliRunner().invoke(group, ["failing"], obj=World())

    assert (result.exit_code, result.stderr) == (code, f"error: {sentence}\n")


@mock_aws
def test_what_aws_refuses_is_a_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    outputs = tmp_path / "outputs.json"
    outputs.write_text(json.dumps({"Sluice": OUTPUTS}))
    result = CliRunner().invoke(main, ["--outputs", str(outputs), "status"])

    assert result.exit_code == 1
    assert result.stderr.startswith("error: AWS: ResourceNotFoundException: ")
    assert result.stderr.count("\n") == 1


@mock_aws
def test_nothing_but_the_command_s_own_words_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outputs = tmp_path / "outputs.json"
    outputs.write_text(json.dumps({"Sluice": OUTPUTS}))
    AwsAccess(config=None, outputs=outputs, variables={}).ports().log.event("paused", job_class="replays")

    assert capfd.readouterr() == ("", ""), "a log line would break --json"


# -- as a program of its own


def output_of(*command: str, cwd: Path) -> str:
    return subprocess.run([*command, "--help"], cwd=cwd, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(not SCRIPT.exists(), reason="make setup installs it")
def test_the_script_answers_wherever_it_is_called(tmp_path: Path) -> None:
    usage, _, options = output_of(str(SCRIPT), cwd=tmp_path).partition("\n")
    assert usage.startswith("Usage: sluice ")
    assert options == output_of(sys.executable, "-m", "ops", cwd=ROOT).partition("\n")[2]


def test_what_builds_the_script_is_pinned_as_it_is_installed() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert set(needed) <= set((ROOT / "requirements.txt").read_text().splitlines())


# -- and its page


def spans() -> list[str]:
    """What stands between backticks, and the command lines of its blocks."""
    prose = re.sub(r"^```$.*?^```$", "", OPERATIONS.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`]+)`", " ".join(prose.split()))


def commands() -> Iterator[tuple[str, click.Command]]:
    """Each span that is a command line of ours, with the command that it runs."""
    for span in spans():
        words = span.split()
        command: click.Command | None = main.commands.get(words[0])
        if isinstance(command, click.Group) and len(words) > 1:
            command = command.commands.get(words[1])
            assert command is not None, span
        if command is not None:
            yield span, command


def test_every_option_that_the_page_types_exists() -> None:
    named = list(commands())

    assert len(named) > 40
    for span, command in named:
        known = {option for parameter in command.params for option in parameter.opts}
        typed = {word for word in span.split() if word.startswith("--")}
        assert typed <= known, span


def test_what_an_alarm_says_to_type_is_a_command() -> None:
    lines = re.findall(r"^- \*\*Command:\*\*.*?`(\w+)", OPERATIONS.read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert len(lines) > 20
    assert set(lines) <= {*main.commands, "aws"}
