"""Many seeds of all faults at once: CI's share of them, what is remembered, and how a failing one is replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ops.cli import main
from ops.simulator import seeds
from ops.simulator.drive import Drive
from ops.simulator.scenario import Scenario, load_scenario
from ops.simulator.seeds import SeedResult, run_seed, run_seeds
from shared.domain import messages

CI_SEEDS = range(1, 241)


def mixed() -> Scenario:
    return load_scenario("mixed-faults")


@pytest.mark.slow
def test_every_seed_converges_and_breaks_nothing() -> None:
    report = run_seeds(mixed(), CI_SEEDS, processes=2)
    assert report.failed == {}
    assert set(report.results) == set(CI_SEEDS)


def test_the_seeds_differ_and_each_repeats_itself() -> None:
    first, again = (Drive(mixed(), 11) for _ in range(2))
    for drive in (first, again):
        drive.run()
    assert first.sluice.ledger.steps == again.sluice.ledger.steps
    assert first.mix is not None
    assert len({repr(Drive(mixed(), seed).mix.chances) for seed in range(5)}) == 5  # type: ignore[union-attr]


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state.json"
    run_seeds(mixed(), range(1, 4), state=state, processes=1)
    ran: list[int] = []

    def noted(scenario: Scenario, seed: int) -> SeedResult:
        ran.append(seed)
        return run_seed(scenario, seed)

    monkeypatch.setattr(seeds, "run_seed", noted)
    report = run_seeds(mixed(), range(1, 6), state=state, processes=1)
    assert ran == [4, 5]
    assert sorted(report.results) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"fingerprint": "another version", "results": {}}'])
def test_a_broken_or_foreign_state_is_begun_anew(text: str, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text(text, encoding="utf-8")
    assert set(run_seeds(mixed(), range(1, 3), state=state, processes=1).results) == {1, 2}
    assert json.loads(state.read_text(encoding="utf-8"))["results"].keys() == {"1", "2"}


def test_a_fault_in_the_code_is_found_and_its_seed_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "is_current", lambda job, _: job is not None)  # no epoch check (rule 1)
    ran = CliRunner().invoke(main, ["simulate", "--scenario", "mixed-faults", "--seed", "1", "--seeds", "1"])
    failing = 1
    while ran.exit_code == 0 and failing < 30:
        failing += 1
        ran = CliRunner().invoke(main, seeds_of(failing))
    assert ran.exit_code == 1
    assert f"replay: python -m ops simulate --scenario mixed-faults --seed {failing}\n" in ran.stderr
    replayed = CliRunner().invoke(main, ["simulate", "--scenario", "mixed-faults", "--seed", str(failing)])
    assert replayed.exit_code == 1
    assert " broke at " in replayed.stderr


def seeds_of(first: int) -> list[Any]:
    return ["simulate", "--scenario", "mixed-faults", "--seed", str(first), "--seeds", "1"]
