"""Two classes on one upstream: each has its share while both have work, and all of it while the other has none."""

from __future__ import annotations

from functools import cache

import pytest
from click.testing import CliRunner

from ops.cli import main
from ops.simulator import shares
from ops.simulator.shares import LIMIT_PER_S, WOKEN_S, Pair, ShareFigures, both_busy, measure, one_idle
from ops.simulator.world import START_MS

SEEDS = [1, 2]
"""All 20 seeds: `python -m ops simulate --shares --seeds 20`."""


@cache
def figures(seed: int) -> ShareFigures:
    return measure(seed)


@cache
def woken(seed: int) -> Pair:
    return one_idle(seed, late_ms=0)


@pytest.mark.parametrize("seed", SEEDS)
def test_while_both_have_work_each_has_its_share_within_2_points_in_any_5_minutes(seed: int) -> None:
    assert figures(seed).points_off <= 2
    assert figures(seed).used >= 0.95


def test_so_it_is_with_ticks_that_are_ten_seconds_late() -> None:
    pair = both_busy(3, late_ms=10_000)
    for first_s in range(120, 17 * 60 - 300, 10):
        assert pair.share_of_small(first_s, 300) == pytest.approx(0.3, abs=0.02), f"from {first_s} s"


@pytest.mark.parametrize("seed", SEEDS)
def test_an_idle_class_lends_all_of_its_share(seed: int) -> None:
    assert figures(seed).lent >= 0.97


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_lent_is_given_back_within_two_ticks(seed: int) -> None:
    ticks = figures(seed).ticks_to_give_back
    assert ticks is not None
    assert ticks <= 2


def test_and_it_is_lent_again_when_the_other_is_done() -> None:
    pair = woken(1)
    done_ms = max(step.at_ms for step in pair.sluice.ledger.steps if step.after.job_class == "small")
    from_s = (done_ms - START_MS) / 1000 + 120

    assert from_s > WOKEN_S
    assert pair.calls(from_s, 120)["large"] >= 0.97 * 120 * LIMIT_PER_S


def test_a_paused_class_lends_too() -> None:
    pair = Pair(1)
    pair.submit("large", 6_000)
    pair.submit("small", 3_000)
    pair.until(144)
    pair.sluice.pause("small")
    pair.until(480)

    assert pair.calls(300, 120)["large"] >= 0.97 * 120 * LIMIT_PER_S


@pytest.mark.parametrize("seed", SEEDS)
def test_refusals_stay_few_while_shares_move(seed: int) -> None:
    assert figures(seed).refusals_per_1000 <= 2


def test_shares_that_are_not_given_back_are_a_seed_that_failed() -> None:
    kept = ShareFigures(seed=4, points_off=1.0, used=1.0, lent=1.0, ticks_to_give_back=None, refusals_per_1000=0.0)
    assert kept.missed == ["ticks_to_give_back <= 2: got None"]


def test_the_command_prints_the_worst_of_its_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "measure", figures)  # what was measured above
    ran = CliRunner().invoke(main, ["simulate", "--shares", "--seed", "1", "--seeds", "1"])

    assert ran.exit_code == 0, ran.output
    assert ran.stdout.splitlines()[0] == "shares of 0.7 and 0.3: 1 seeds, 0 failed"
    assert "points_off <= 2" in ran.stdout
