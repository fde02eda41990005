"""`simulate` refuses what it would not do, before it runs; and a seed that misses an expectation has failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ops.cli import main
from ops.sim import scenario_file
from ops.sim.seeds import run_seed

SMALL = """
about = "a test"
expect = ["{expected}"]
[upstream]
limit_per_s = 10.0
[[jobs]]
count = 5
"""


def command(*args: object) -> Any:
    return CliRunner().invoke(main, ["simulate", *map(str, args)], catch_exceptions=False)


def small(tmp_path: Path, expected: str) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL.format(expected=expected), encoding="utf-8")
    return path


def test_a_seed_that_misses_an_expectation_has_failed(tmp_path: Path) -> None:
    path = small(tmp_path, "done >= 6")

    assert run_seed(scenario_file.load(str(path)), 1).said == ("expected done >= 6: got 5",)
    ran = command("--scenario", path, "--seeds", 1)
    assert ran.exit_code == 1
    assert "error: seed 1: expected done >= 6: got 5\n" in ran.stderr


@pytest.mark.parametrize(("figure", "hint"), [("utilization", "did you mean utilisation?"), ("policy", "one of seed,")])
def test_an_expectation_of_a_figure_that_there_is_not_is_a_bad_file(tmp_path: Path, figure: str, hint: str) -> None:
    ran = command("--scenario", small(tmp_path, f"{figure} >= 1"))

    assert ran.exit_code == 2
    assert f'small.toml: expect[1]: got "{figure}", expected one of ' in ran.stderr
    assert hint in ran.stderr
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--scenario", "tiny-rate", "--seeds", 2, "--policy", "all"), "--policy: got the option beside --seeds"),
        (("--scenario", "tiny-rate", "--seeds", 2, "--out", "x.json"), "--out: got the option beside --seeds"),
        (("--scenario", "tiny-rate", "--state", "x.json"), "--state: got the option beside --scenario"),
        (("--matrix", "--list"), "--matrix: got the option beside --list"),
        (("--matrix", "--scenario", "tiny-rate"), "--scenario: got the option beside --matrix"),
        (("--sweep", "once", "--seeds", 2), "--seeds: got the option beside --sweep"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options: tuple[object, ...], said: str) -> None:
    ran = command(*options)

    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr == f"error: {said}, expected one or the other\n"


def test_the_policy_that_every_seed_runs_may_be_named(tmp_path: Path) -> None:
    path = small(tmp_path, "done == 5")
    assert command("--scenario", path, "--seeds", 1, "--policy", "paced").exit_code == 0


def test_an_out_that_cannot_be_written_is_found_before_the_run(tmp_path: Path) -> None:
    ran = command("--scenario", small(tmp_path, "done == 5"), "--out", tmp_path / "none" / "x.json")

    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr == "error: --out: got No such file or directory, expected a file that can be written\n"


def test_the_check_leaves_no_file_behind_when_the_run_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "x.json"
    assert command("--scenario", "no-such-scenario", "--out", out).exit_code == 2
    assert not out.exists()
