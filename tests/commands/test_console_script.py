"""`sluice`, the command that `make setup` installs, is the command line that `python -m ops` starts."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(sys.executable).with_name("sluice")

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="make setup installs it")


def output_of(*command: str, cwd: Path) -> str:
    return subprocess.run([*command, "--help"], cwd=cwd, capture_output=True, text=True, check=True).stdout


def test_the_script_answers_wherever_it_is_called(tmp_path: Path) -> None:
    usage, _, options = output_of(str(SCRIPT), cwd=tmp_path).partition("\n")
    assert usage.startswith("Usage: sluice ")
    assert options == output_of(sys.executable, "-m", "ops", cwd=ROOT).partition("\n")[2]


def test_what_builds_it_is_pinned_as_it_is_installed() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert set(needed) <= set((ROOT / "requirements.txt").read_text().splitlines())
