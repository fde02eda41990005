"""`explain`: the admitted number follows from the printed factors, and one sentence says what bound it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shared.domain.control import Carry, TickClose
from shared.domain.job import LaneCounts
from shared.pacer.decide import Snapshot, plan_tick
from tests.commands.world import ADA, CLASS, World, worked


def explained(world: World, *options: object) -> dict[str, Any]:
    return world.json("explain", CLASS, *options)


def recomputed(printed: dict[str, Any]) -> int:
    """What `plan_tick` makes of the printed factors, and of nothing else."""
    value = {factor["name"]: factor["value"] for factor in printed["factors"]}
    inputs: dict[str, Any] = {name: value[name] for name in Snapshot.__struct_fields__ if name in value}
    snapshot = Snapshot(
        **inputs,
        planned_at_ms=printed["at_ms"] - round(value["elapsed_s"] * 1000),
        carry=Carry(live=value["carry_live_nrows"], recovery=value["carry_recovery_nrows"]),
        waiting=LaneCounts(live=value["waiting_live"], recovery=value["waiting_recovery"]),
        paused=printed["paused"],
        planned=printed["binding"] == "resumed",
    )
    plan = plan_tick(snapshot, printed["at_ms"])
    assert plan.budget == printed["budget"]
    assert (plan.live, plan.recovery) == (printed["planned"]["live"], printed["planned"]["recovery"])
    return plan.live + plan.recovery


@pytest.mark.parametrize("tick", range(6))
def test_the_admitted_number_follows_from_the_printed_factors_alone(tick: int) -> None:
    # The live window ends between two ticks, not in the instant of one: a row that changes lanes there is not claimed.
    printed = explained(worked(2_000, minutes=7, live_window_s=290), "--tick", tick)

    assert recomputed(printed) == printed["admitted"]
    assert all(factor["source"] for factor in printed["factors"])


def test_a_person_reads_why_in_sentences_and_what_bound_it() -> None:
    printed = worked(2_000, minutes=5).run("explain", CLASS, "--tick", 3).stdout

    assert printed.startswith("replays: the tick of 2026-11-30 12:01:00 UTC (3 ticks back)")
    assert "admitted 120 of " in printed
    assert "It was bound by what was earned since the tick before" in printed
    assert "20 slots / 10 s of worker time a job (" in printed
    assert "2 jobs/s x 60 s of one interval, as this was the first tick" in printed
    for name in ("interval_s", "service_s", "max_inflight", "carry_live_nrows", "edge_rows", "budget"):
        assert name in printed, "every factor is in the table"


def test_a_paused_tick_says_who_paused_and_that_time_earns_nothing() -> None:
    world = worked(2_000, minutes=3)
    world.run("pause", CLASS, "--reason", "odd answers", "--by", "ada")
    world.sluice.run(120_000)
    printed = world.run("explain", CLASS).stdout

    assert "admitted 0 of " in printed
    assert "It was bound by the pause" in printed
    assert f"paused by {ADA} at 2026-11-30 12:0" in printed
    assert recomputed(explained(world)) == 0


def test_with_nothing_waiting_that_is_the_reason() -> None:
    assert "It was bound by what waits" in worked(0, minutes=3).run("explain", CLASS).stdout


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--tick", 4), "--tick: got 4, expected at most 1: control remembers 2 ticks of this class"),
        (("--tick", -1), "Invalid value for '--tick'"),
    ],
)
def test_a_tick_that_is_not_remembered_is_a_sentence(options: tuple[object, ...], sentence: str) -> None:
    result = worked(5, minutes=3).run("explain", CLASS, *options)

    assert result.exit_code == 2
    assert sentence in result.stderr


def test_before_the_first_tick_there_is_nothing_to_explain() -> None:
    result = World().run("explain", CLASS)

    assert (result.exit_code, result.stderr) == (
        2,
        "error: CLASS: got a class that has not ticked, expected one with a tick to explain\n",
    )


def test_a_tick_of_a_version_that_kept_no_facts_shows_its_line_and_says_so() -> None:
    world = worked(2_000, minutes=4)
    (key,) = [run.key for run in world.sluice.ledger.runs][-1:]
    control = world.control
    bare = tuple(replace(line, facts="") for line in control.history)
    close = TickClose(recent=(), history=bare, measures=control.measures)
    world.sluice.ledger._runs.put(replace(control, lock_owner="x", lock_run_id=key.run_id, history=close.history))
    printed = world.run("explain", CLASS).stdout

    assert "of 1,800 waiting rows" in printed
    assert "kept no facts" in printed
