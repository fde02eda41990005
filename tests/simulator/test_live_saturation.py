"""What the live allowance does for live work under a long backlog, and what it costs: the same runs without it."""

from __future__ import annotations

from typing import Final

import pytest
from msgspec.structs import replace

from ops.simulator.drive import Drive
from ops.simulator.measure import median
from ops.simulator.policies import run_policy
from ops.simulator.result import Result
from ops.simulator.scenario import load_scenario
from shared.pacer import decide

WITHIN: Final = 0.01


def without_allowance(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decide, "expected_rows", lambda *_, **__: 0)


def short_run() -> tuple[Drive, Result]:
    """live-saturation with a backlog that is done within minutes."""
    scenario = load_scenario("live-saturation")
    backlog, live = scenario.sources
    drive = Drive(scenario.with_(sources=(replace(backlog, count=800), live), expect=()), 7)
    drive.run()
    return drive, drive.finish()


def said(name: str, on: Result, off: Result) -> tuple[float, float, float, float]:
    """Printed with `-s`: the numbers of docs/simulation.md."""
    figures = on.figures.live_wait_p95_s, off.figures.live_wait_p95_s, on.figures.utilisation, off.figures.utilisation
    assert None not in figures
    wait_s, wait_off_s, used, used_off = (float(figure or 0) for figure in figures)
    print(f"{name}: live_wait_p95_s {wait_s:.1f}, off {wait_off_s:.1f}; utilisation {used:.4f}, off {used_off:.4f}")
    return wait_s, wait_off_s, used, used_off


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wait_s"),
    [
        ("live-saturation", 5),  # below half of the live share
        ("live-rush", 60),  # five sixths of it: what the allowance misses waits for a tick
    ],
)
def test_live_work_starts_at_once_and_the_limit_is_used_as_without(
    name: str, wait_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = run_policy(load_scenario(name), 7)
    without_allowance(monkeypatch)
    off = run_policy(load_scenario(name), 7)
    on_s, off_s, used, used_off = said(name, on, off)
    assert (on.passed, on.failed) == (True, [])
    assert on_s <= wait_s < off_s
    assert used >= used_off - WITHIN


@pytest.mark.slow
def test_more_live_work_than_the_share_waits_and_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    on = run_policy(load_scenario("live-flood"), 7)
    without_allowance(monkeypatch)
    off = run_policy(load_scenario("live-flood"), 7)
    _, _, used, used_off = said("live-flood", on, off)
    assert (on.passed, on.failed, on.violations) == (True, [], {})
    assert used >= used_off - WITHIN


def test_even_in_the_first_minutes_most_of_what_comes_starts_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first arrivals wait for their tick, and by then they are measured."""
    drive, on = short_run()
    without_allowance(monkeypatch)
    waits_s = [median(run.lives.live_waits_ms) for run in (drive, short_run()[0])]
    assert (on.violations, on.figures.lost, on.figures.over_budget_ticks) == ({}, 0, 0)
    assert waits_s[0] is not None
    assert waits_s[1] is not None
    assert waits_s[0] < 0.25 * waits_s[1]
