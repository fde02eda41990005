"""`rate`: an upper bound with a reason, until it expires or is cleared, and seen in `status`."""

from __future__ import annotations

import pytest

from tests.commands.world import ADA, CLASS, NOBODY, World


def test_a_bound_is_signed_stored_and_shown() -> None:
    world = World()
    result = world.run("rate", CLASS, "2.5", "--reason", "maintenance until noon", "--for", "120")
    control = world.control

    assert result.exit_code == 0
    assert control.rate is not None
    assert (control.rate.rate_per_s, control.rate.flag.by) == (2.5, NOBODY)
    assert control.rate.until_ms == control.rate.flag.at_ms + 120 * 60_000
    assert result.stdout.startswith("replays: at most 2.5 jobs/s until 2026-11-30 14:00:00 UTC, by ")
    assert "undo: python -m ops rate replays --clear" in result.stdout
    assert "  override  at most 2.5 jobs/s until 2026-11-30 14:00:00 UTC" in world.run("status", CLASS).stdout
    (shown,) = world.json("status")["classes"]
    assert (shown["rate_override"]["rate_per_s"], shown["rate_override"]["flag"]["why"]) == (
        2.5,
        "maintenance until noon",
    )


def test_it_is_not_shown_any_more_once_it_has_expired() -> None:
    world = World()
    world.run("rate", CLASS, "2.5", "--reason", "why", "--for", "1")
    world.sluice.run(61_000)

    assert "override" not in world.run("status", CLASS).stdout
    assert world.json("status")["classes"][0]["rate_override"] is None


def test_clear_takes_it_away_and_says_what_it_was() -> None:
    world = World()
    world.run("rate", CLASS, "2.5", "--reason", "why", "--by", "ada")
    result = world.run("rate", CLASS, "--clear", "--reason", "it is over", "--by", "ada")

    assert result.stdout == (
        f"replays: no bound any more, by {ADA}: it is over\n"
        f"  it was at most 2.5 jobs/s until it is cleared, by {ADA}: why\n"
        '  undo: python -m ops rate replays 2.5 --reason "..."\n'
    )
    assert "override" not in world.run("status", CLASS).stdout
    assert world.run("rate", CLASS, "--clear", "--reason", "x").stdout == "replays: its rate was not bound.\n"


def test_who_cleared_a_bound_and_why_stays_on_control() -> None:
    world = World()
    world.run("rate", CLASS, "2.5", "--reason", "why")
    world.run("rate", CLASS, "--clear", "--reason", "it is over", "--by", "ada")
    stored = world.control.rate

    assert stored is not None
    assert (stored.rate_per_s, stored.flag.by, stored.flag.why) == (None, ADA, "it is over")


def test_the_undo_of_a_bound_that_expires_expires_too() -> None:
    world = World()
    world.run("rate", CLASS, "2.5", "--for", "120", "--reason", "why")
    world.sluice.world.now_ms += 30 * 60_000
    printed = world.run("rate", CLASS, "1", "--reason", "less").stdout

    assert "undo: python -m ops rate replays 2.5 --for 90.0 --reason" in printed


def test_both_speak_json() -> None:
    world = World()
    made = world.json("rate", CLASS, "2.5", "--reason", "why", "--by", "ada")
    cleared = world.json("rate", CLASS, "--clear", "--reason", "x")

    assert (made["rate_override"]["rate_per_s"], made["rate_override"]["flag"]["by"]) == (2.5, ADA)
    assert (cleared["rate_override"], cleared["was"]) == (None, made["rate_override"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((CLASS, "0", "--reason", "x"), "error: rate: got 0, expected jobs per second above 0; `pause` stops a class"),
        ((CLASS, "nan", "--reason", "x"), "error: rate: got nan, expected jobs per second above 0"),
        ((CLASS, "inf", "--reason", "x"), "error: rate: got inf, expected jobs per second above 0"),
        ((CLASS, "--reason", "x", "--", "-1"), "error: rate: got -1, expected jobs per second above 0"),
        ((CLASS, "-1", "--reason", "x"), "error: rate: got -1, expected jobs per second above 0"),
        ((CLASS, "2", "--reason", "x", "--for", "0"), "error: --for: got 0, expected minutes above 0"),
        ((CLASS, "--reason", "x"), "error: PER_S: got nothing, expected a rate, or --clear instead of it"),
        ((CLASS, "2", "--clear", "--reason", "x"), "error: PER_S: got both, expected a rate, or --clear instead of it"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_changes_nothing(arguments: tuple[str, ...], sentence: str) -> None:
    world = World()
    result = world.run("rate", *arguments)

    assert result.exit_code == 2
    assert sentence in result.stderr
    assert world.control.rate is None
