"""`concurrency`: both lanes' mappings bounded and read back, a way back, and a word that a crash leaves to be seen."""

from __future__ import annotations

from typing import Any

import pytest

from ops.simulator.sluice_world import SimSluice
from shared.domain.control import SlotsOverride
from shared.domain.job import Lane
from shared.domain.settings import ClassSettings, Settings, UpstreamSettings
from shared.domain.upstream import Decision, Learned, rate_in_force
from shared.errors import LedgerUnavailable
from tests.commands.memory import MemoryMappings
from tests.commands.world import ADA, CLASS, World, settings, worked

BECAUSE = ("--reason", "fewer connections", "--by", "ada")
CONFIGURED = {"live": 6, "recovery": 14}
"""20 slots at a live share of 0.3, as the template has them."""


def override(world: World) -> SlotsOverride:
    slots = world.control.slots
    assert slots is not None
    return slots


def test_it_bounds_both_lanes_as_a_deployment_would_and_signs_for_it() -> None:
    world = World(lanes=MemoryMappings(lag=3))
    result = world.run("concurrency", CLASS, 8, *BECAUSE)

    assert result.exit_code == 0, result.stderr
    assert world.lanes.of(CLASS) == {"live": 2, "recovery": 6}
    stored = override(world)
    assert (stored.slots, stored.before, stored.flag.by, stored.flag.why) == (8, 20, ADA, "fewer connections")
    assert stored.verified_ms == stored.flag.at_ms + 3_000, "read back once a second until it was so"
    assert result.stdout.splitlines()[:3] == [
        f"replays: 20 -> 8 slots by {ADA}: fewer connections",
        "  live      6 -> 2 at once",
        "  recovery  14 -> 6 at once",
    ]
    assert result.stdout.endswith('  undo: python -m ops concurrency replays --back --reason "..."\n')


def test_the_next_tick_plans_with_it_and_explain_status_and_plan_say_so() -> None:
    world = worked(2_000, minutes=3)
    world.run("concurrency", CLASS, 8, *BECAUSE)
    world.sluice.run(90_000)
    factors = world.json("explain", CLASS)["factors"]

    (concurrency,) = [each for each in factors if each["name"] == "concurrency"]
    assert (concurrency["value"], concurrency["source"]) == (8, "set by an operator")
    assert "8 slots (set by an operator) / 10 s of worker time a job" in world.run("explain", CLASS).stdout
    planned = world.json("plan", CLASS)["numbers"]["slots"]
    assert planned == {"value": 8, "source": "set by an operator"}
    assert f"override  8 slots since 2026-11-30 12:03:00 UTC, by {ADA}: fewer" in world.run("status").stdout
    (shown,) = world.json("status")["classes"]
    assert (shown["slots_override"]["slots"], shown["rate_per_s"]) == (8, 0.8)


def test_back_goes_to_what_was_verified_last_and_back_again_undoes_that() -> None:
    world = World()
    world.run("concurrency", CLASS, 8, *BECAUSE)
    world.run("concurrency", CLASS, 12, *BECAUSE)
    assert world.json("concurrency", CLASS, "--back", *BECAUSE)["slots"] == 8
    assert sum(world.lanes.of(CLASS).values()) == 8
    assert world.json("concurrency", CLASS, "--back", *BECAUSE)["slots"] == 12


def test_back_to_what_is_configured_leaves_no_override() -> None:
    world = worked(100, minutes=2)
    world.run("concurrency", CLASS, 8, *BECAUSE)
    printed = world.run("concurrency", CLASS, "--back", "--reason", "they are done").stdout
    world.sluice.run(90_000)

    assert "replays: 8 -> 20 slots" in printed
    assert "that is what is configured: nothing is overridden any more" in printed
    assert world.lanes.of(CLASS) == CONFIGURED
    assert (override(world).slots, override(world).before) == (None, 8)
    assert "override" not in world.run("status").stdout
    assert '"concurrency"' not in world.control.history[-1].facts.partition("sources")[2]


@pytest.mark.parametrize("fail_at", [1, 2])
def test_a_crash_between_word_and_mappings_shows_and_the_same_command_heals_it(fail_at: int) -> None:
    world = World(lanes=MemoryMappings(fail_at=fail_at))
    result = world.run("concurrency", CLASS, 8, *BECAUSE)

    assert (result.exit_code, override(world).verified_ms) == (3, None)
    assert "The event source mappings could not be read or changed. (throttled) Nothing is lost: try again." in (
        result.stderr
    )
    assert "8 slots wanted" in world.run("status").stdout
    assert "not verified: say it again, until then ticks plan with 8" in world.run("status").stdout
    assert world.run("concurrency", CLASS, 8, *BECAUSE).exit_code == 0
    assert (override(world).before, world.lanes.of(CLASS)) == (20, {"live": 2, "recovery": 6})
    assert override(world).verified_ms is not None


def test_a_raise_that_is_not_verified_raises_no_plan_and_back_abandons_it() -> None:
    world = World(lanes=MemoryMappings(fail_at=1))
    world.run("concurrency", CLASS, 40, *BECAUSE)

    assert override(world).in_force(20) == 20
    assert world.json("concurrency", CLASS, "--back", *BECAUSE)["slots"] == 20
    assert world.lanes.of(CLASS) == CONFIGURED


def test_mappings_that_never_say_so_end_the_command_and_leave_the_word() -> None:
    world = World(lanes=MemoryMappings(lag=10_000))
    result = world.run("concurrency", CLASS, 8, *BECAUSE)

    assert result.exit_code == 3
    assert "have not taken the new bound in time. (replays after 120 s) Nothing is lost: try again." in result.stderr
    assert override(world).verified_ms is None


def test_of_two_operators_the_second_is_told() -> None:
    world = World()
    ledger = world.sluice.ledger

    class Slow(MemoryMappings):
        def bound(self, job_class: str, lane: Lane, *, slots: int) -> None:
            MemoryMappings.bound(self, job_class, lane, slots=slots)
            stored = ledger.read_control(CLASS).slots
            if stored is not None and stored.slots == 8:
                ledger.set_slots(CLASS, SlotsOverride(slots=9, flag=stored.flag, before=20), before=stored)

    world.lanes = Slow()
    result = world.run("concurrency", CLASS, 8, *BECAUSE)

    assert result.exit_code == 2
    assert "error: CLASS: got slots that somebody else has just set, expected one operator at a time" in result.stderr
    assert override(world).slots == 9


def test_without_a_number_it_shows_and_writes_nothing() -> None:
    world = World()
    before = world.sluice.ledger.writes.copy()
    printed = world.run("concurrency", CLASS)

    assert (
        printed.stdout
        == "replays: 20 slots, 20 configured\n  live      at most 6 at once\n  recovery  at most 14 at once\n"
    )
    assert world.json("concurrency", CLASS) == {
        "job_class": CLASS,
        "slots": 20,
        "configured": 20,
        "override": None,
        "lanes": CONFIGURED,
        "agrees": True,
    }
    assert world.sluice.ledger.writes == before


def test_a_deployment_that_wrote_the_mappings_anew_is_seen_and_the_same_command_puts_it_right() -> None:
    world = World()
    world.run("concurrency", CLASS, 8, *BECAUSE)
    world.lanes.slots.clear()  # slots, live_share or batch_size changed: CloudFormation wrote what is configured
    printed = world.run("concurrency", CLASS).stdout

    assert "warning   the mappings are not what ticks plan with" in printed
    assert 'put them right: python -m ops concurrency replays 8 --reason "..."' in printed
    assert world.json("concurrency", CLASS)["agrees"] is False
    assert world.json("concurrency", CLASS, 8, *BECAUSE)["override"]["before"] == 20, "the way back stays what it was"
    assert world.lanes.of(CLASS) == {"live": 2, "recovery": 6}


def test_neither_raises_the_other() -> None:
    upstream = UpstreamSettings(name="api", endpoint="http://api", limit_per_s=2.0)
    made = Settings(
        upstreams={"api": upstream},
        classes={CLASS: ClassSettings(name=CLASS, kind="sim", upstream="api", slots=20, declared_service_s=0.5)},
    )
    world = World(sluice=SimSluice(made, seed=1))
    learned = Learned(rate_per_s=1.0, good_per_s=1.0, refused_per_s=1.5, window_ms=0, decision=Decision.DECREASED)
    world.sluice.ledger.store_learned("api", learned, before=None)
    world.submit(900, "{}")
    world.sluice.run(61_000)
    before = world.json("status")["classes"][0]
    world.run("concurrency", CLASS, 400, *BECAUSE)
    kept = world.sluice.ledger.read_learned("api")
    world.run("rate", CLASS, 500, "--reason", "hope")

    assert kept is not None
    assert rate_in_force(kept, upstream) <= rate_in_force(learned, upstream)
    assert world.sluice.ledger.read_learned("api") == kept
    assert override(world).slots == 400
    world.sluice.run(90_000)
    after = world.json("status")["classes"][0]
    assert (before["rate_binding"], after["rate_binding"]) == ("upstream", "upstream")
    assert after["rate_per_s"] <= 2.0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((3, *BECAUSE), "error: slots: got 3, expected at least 4: 2 for each lane\n"),
        ((0, *BECAUSE), "error: slots: got 0, expected at least 4"),
        ((-5, *BECAUSE), "error: slots: got -5, expected at least 4"),
        ((1_500, *BECAUSE), "error: slots: got 1500, which are 1050 for the recovery lane, expected at most 1000"),
        (("x", *BECAUSE), "'x' is not a valid integer"),
        ((8,), "error: --reason: got nothing, expected why the slots are set\n"),
        ((8, "--reason", " "), "error: reason: got an empty string, expected why the slots are set\n"),
        (BECAUSE, "error: SLOTS: got nothing, expected a number, or --back\n"),
        ((8, "--back", *BECAUSE), "error: SLOTS: got both, expected a number, or --back instead of it\n"),
        (("--back", *BECAUSE), "error: --back: got a class whose slots nobody has set, expected one with a way back\n"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_changes_nothing(arguments: tuple[object, ...], sentence: str) -> None:
    world = World()
    result = world.run("concurrency", CLASS, *arguments)

    assert result.exit_code == 2
    assert sentence in result.stderr
    assert world.control.slots is None
    assert world.lanes.bounds == 0


def test_what_a_lane_may_have_follows_the_live_share() -> None:
    world = World(sluice=SimSluice(settings(live_share=0.5), seed=1))

    assert world.json("concurrency", CLASS, 2_000, *BECAUSE)["lanes"] == {"live": 1_000, "recovery": 1_000}


def test_a_ledger_that_is_away_is_asked_before_any_mapping_is_touched() -> None:
    world = World()

    class Away:
        def __getattr__(self, name: str) -> Any:
            def refuse(*args: Any, **kwargs: Any) -> Any:
                if name == "set_slots":
                    raise LedgerUnavailable("throttled")
                return getattr(world.sluice.ledger, name)(*args, **kwargs)

            return refuse

    world.broken["ledger"] = Away()
    assert world.run("concurrency", CLASS, 8, *BECAUSE).exit_code == 3
    assert world.lanes.bounds == 0
