"""`status`: one look, at once on any ledger size, and the same figures for a person and for a program."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from ops.wording import dollars, duration
from tests.commands.world import ADA, CLASS, World, worked


def figures(world: World, *options: str) -> dict[str, Any]:
    (only,) = world.json("status", *options)["classes"]
    return dict(only)


def test_before_the_first_tick_it_says_so_and_exact_counts() -> None:
    world = worked(3, minutes=0)

    assert "replays: no tick yet" in world.run("status").stdout
    assert figures(world)["rows"] is None
    counted = figures(world, "--exact")
    assert (counted["rows"]["pending"], counted["rows"]["exact"]) == (3, True)


def test_it_shows_what_the_last_tick_saw() -> None:
    world = worked(2_000, minutes=5)
    shown = figures(world)

    assert shown["state"] == "draining"
    assert shown["rows"]["pending"] == shown["rows"]["waiting"]["live"] + shown["rows"]["waiting"]["recovery"] + (
        shown["rows"]["later"] + shown["rows"]["behind"] + shown["rows"]["in_flight"]
    )
    assert shown["rate_per_s"] > 0
    assert shown["rate_binding"] == "slots"
    assert shown["budget_binding"] in {"edge", "level"}
    assert math.isfinite(shown["eta_s"])
    assert shown["eta_s"] == pytest.approx(
        shown["rows"]["pending"] / shown["net_rate_per_s"] - shown["tick_age_s"], abs=2
    )
    assert not shown["ticks_missing"]


def test_a_person_reads_the_same() -> None:
    printed = worked(2_000, minutes=5).run("status", CLASS).stdout

    assert printed.startswith("replays: draining, done in ")
    assert re.search(r"rate      [0-9.]+ jobs/s, bound by the workers' slots", printed)
    assert "live" in printed
    assert "recovery, the oldest for" in printed


def test_exact_counts_and_agrees_with_the_rows() -> None:
    world = worked(500, minutes=2)
    shown = figures(world, "--exact")

    assert shown["rows"]["pending"] == world.sluice.ledger.open_rows


def test_a_pause_is_seen_at_once_with_who_and_why() -> None:
    world = worked(2_000, minutes=3)
    assert world.run("pause", CLASS, "--reason", "odd answers", "--by", "ada").exit_code == 0

    assert figures(world)["state"] == "paused"
    assert f"replays: paused by {ADA} at 2026-11-30 12:0" in world.run("status").stdout
    assert "odd answers" in world.run("status").stdout
    assert figures(world)["eta_s"] is None


def test_ticks_that_stay_away_are_a_warning() -> None:
    world = worked(10, minutes=3)
    world.sluice.world.now_ms += 600_000

    assert figures(world)["ticks_missing"]
    assert "warning   ticks are missing" in world.run("status").stdout


def test_an_empty_class_is_idle_with_an_eta_of_zero() -> None:
    shown = figures(worked(0, minutes=3))

    assert (shown["state"], shown["eta_s"], shown["rows"]["pending"]) == ("idle", 0.0, 0)


def test_an_unknown_class_is_one_sentence() -> None:
    result = World().run("status", "replay")

    assert result.exit_code == 2
    assert result.stderr == "error: CLASS: got an unknown class, expected one of replays; did you mean replays?\n"


@pytest.mark.parametrize(
    ("seconds", "printed"),
    [(0, "0 s"), (59.6, "1 min"), (61, "1 min 1 s"), (3_600, "1 h"), (7_384, "2 h 3 min"), (90_000, "1 d 1 h")],
)
def test_a_duration_has_two_units_at_most(seconds: float, printed: str) -> None:
    assert duration(seconds) == printed


def test_it_says_what_a_drained_job_costs_and_what_of_it_was_wasted() -> None:
    world = worked(2_000, minutes=8)
    cost = figures(world)["cost"]

    parts = [cost[f"{name}_usd"] for name in ("lambda", "sqs", "dynamodb", "upstream")]
    assert cost["total_usd"] == pytest.approx(sum(parts))
    assert cost["jobs"] > 0
    assert cost["per_job_usd"] == pytest.approx(cost["total_usd"] / cost["jobs"])
    assert 0 <= cost["waste_usd"] <= cost["total_usd"]
    assert cost["prices_as_of"] >= "2026-11"
    printed = world.run("status", CLASS).stdout
    assert re.search(
        r"cost      0\.0000[0-9]+ USD a drained job; 0\.[0-9]+ USD over the last ticks \(Lambda [0-9]+%, SQS", printed
    )
    assert figures(worked(3, minutes=0))["cost"] is None


@pytest.mark.parametrize(
    ("usd", "printed"),
    [(0, "0.00"), (1234.5, "1,234.50"), (0.01, "0.01"), (0.0099, "0.00990"), (2.13e-05, "0.0000213")],
)
def test_dollars_are_cents_or_three_digits_of_less(usd: float, printed: str) -> None:
    assert dollars(usd) == printed
