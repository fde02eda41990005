"""`simulate` refuses what it would not do, before it runs; and a seed that misses an expectation has failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ops.cli import main
from ops.simulator.policies import POLICIES, run_policy
from ops.simulator.scenario import Expectation, load_scenario
from ops.simulator.seeds import run_seed, spreads

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

    assert run_seed(load_scenario(str(path)), 1).said == ("expected done >= 6: got 5",)
    ran = command("--scenario", path, "--seeds", 1)
    assert ran.exit_code == 1
    assert "error: seed 1: expected done >= 6: got 5\n" in ran.stderr


def test_the_worst_of_the_seeds_stands_beside_each_expectation_policy_by_policy(tmp_path: Path) -> None:
    path = small(tmp_path, "drain_s <= 999")
    scenario = load_scenario(str(path))
    worst = max((run_policy(scenario, seed, "paced").figures.drain_s or 0.0, seed) for seed in (1, 2))
    ran = command("--scenario", path, "--seeds", 2, "--policy", "all")

    assert ran.exit_code == 0
    first, headings, row = ran.stdout.splitlines()
    assert first.startswith("small: 2 seeds, 0 failed; ")
    assert headings.split() == ["expected", *(part for policy in POLICIES for part in (policy, "seed", "median"))]
    assert row.split()[:5] == ["drain_s", "<=", "999", f"{worst[0]:.4g}", str(worst[1])]
    summary = json.loads(command("--scenario", path, "--seeds", 2, "--json").stdout)
    assert (summary["seeds"], summary["failed"]) == (2, [])
    assert summary["policies"]["paced"]["drain_s"].keys() == {"worst", "seed", "median"}


def test_another_policy_may_miss_what_is_expected_of_ours(tmp_path: Path) -> None:
    path = small(tmp_path, "ticks >= 1")  # the others have none

    assert command("--scenario", path, "--seeds", 1, "--policy", "enqueue-all").exit_code == 0


EXPECTED = Expectation(figure="ticks_to_90_percent", compare="<=", number=7)


@pytest.mark.parametrize(
    ("values", "worst", "seed", "middle"),
    [
        ({1: 5, 2: 9, 3: 7}, 9, 2, 7),
        ({1: 5, 2: None, 3: 7}, None, 2, 6),  # what never came is worse than what came late
        ({1: None}, None, 1, None),
    ],
)
def test_the_worst_is_what_is_farthest_on_the_wrong_side(
    values: dict[int, float | None], worst: float | None, seed: int, middle: float | None
) -> None:
    (spread,) = spreads((EXPECTED,), {seed: {EXPECTED.figure: value} for seed, value in values.items()})
    assert (spread.worst, spread.seed, spread.median) == (worst, seed, middle)


def test_of_at_least_the_least_is_the_worst() -> None:
    expected = Expectation(figure="utilisation", compare=">=", number=0.9)
    (spread,) = spreads((expected,), {1: {"utilisation": 0.99}, 2: {"utilisation": 0.91}})
    assert (spread.worst, spread.seed) == (0.91, 2)


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
        (
            ("--scenario", "tiny-rate", "--seeds", 2, "--policy", "all", "--state", "x.json"),
            "--state: got the option beside --policy",
        ),
        (("--scenario", "tiny-rate", "--seeds", 2, "--out", "x.json"), "--out: got the option beside --seeds"),
        (("--scenario", "tiny-rate", "--state", "x.json"), "--state: got the option beside --scenario"),
        (("--sweep", "once", "--list"), "--sweep: got the option beside --list"),
        (("--sweep", "once", "--scenario", "tiny-rate"), "--scenario: got the option beside --sweep"),
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
