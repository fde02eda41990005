"""The app as `cdk` runs it: the same bytes twice, and faults as lines instead of a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

from app import build
from tests.infra.conftest import ROOT, cdk_context
from tests.infra.tree import CONFIG, digest, plant


def synth(root: Path, outdir: Path, **context: Any) -> int:
    app = cdk.App(analytics_reporting=False, outdir=str(outdir), context={**cdk_context(), **context})
    return build(app, root=root)


def test_two_synths_of_one_tree_in_two_places_are_byte_identical(tmp_path: Path) -> None:
    for place in ("here", "there"):
        assert synth(plant(tmp_path / place / "tree"), tmp_path / place / "out") == 0
    assert digest(tmp_path / "here/out") == digest(tmp_path / "there/out")


def test_the_cloud_assembly_names_no_path_of_this_machine(tmp_path: Path) -> None:
    assert synth(plant(tmp_path / "tree"), tmp_path / "out") == 0
    for path in (tmp_path / "out").glob("*.json"):
        assert str(tmp_path) not in path.read_text()
        assert "sluice-bundle-" not in path.read_text()


@pytest.mark.parametrize(
    ("context", "stack"),
    [
        ({}, "Sluice"),
        ({"stage": "dev"}, "Sluice-dev"),
        ({"name": "Drain", "stage": "dev", "ephemeral": "true"}, "Drain-dev"),
        ({"ephemeral": True}, "Sluice"),  # as cdk.json would say it
    ],
)
def test_context_names_the_stack(tmp_path: Path, context: dict[str, Any], stack: str) -> None:
    assert synth(plant(tmp_path / "tree"), tmp_path / "out", **context) == 0
    template = json.loads((tmp_path / f"out/{stack}.template.json").read_text())
    protected = template["Resources"]["Ledger"]["Properties"]["DeletionProtectionEnabled"]
    assert protected is ("ephemeral" not in context)


@pytest.mark.parametrize(
    ("context", "fault"),
    [
        ({"ephemeral": "yes"}, "context ephemeral: got 'yes', expected true|false"),
        ({"name": "1st"}, "context name: got '1st', expected"),
        ({"config": ""}, "context config: got '', expected"),
        ({"config": "absent.toml"}, "absent.toml: got "),
    ],
)
def test_a_wrong_context_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], context: dict[str, Any], fault: str
) -> None:
    assert synth(plant(tmp_path / "tree"), tmp_path / "out", **context) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(fault)


def test_missing_dependencies_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = plant(tmp_path / "tree")
    (root / "build").rename(root / "elsewhere")
    assert synth(root, tmp_path / "out") == 1
    assert capsys.readouterr().err.splitlines() == [
        "build/dependencies/lambda: the dependencies are not staged: run make setup"
    ]
    assert not list((tmp_path / "out").glob("*.template.json"))


def test_faults_of_the_configuration_stop_the_process_with_exit_1_and_one_line_each(tmp_path: Path) -> None:
    faulty = tmp_path / "faulty.toml"
    faulty.write_text(CONFIG + "slots = 1\nbatch_size = 11\n")
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "CDK_CONTEXT_JSON": json.dumps({"config": str(faulty)}),
            "CDK_OUTDIR": str(tmp_path / "out"),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    # jsii may have said something of its own about the version of Node before.
    *_, first, second = done.stderr.splitlines()
    assert first.startswith("classes.session_sweep.")
    assert second.startswith("classes.session_sweep.")
    assert not list(tmp_path.glob("out/*.template.json"))
