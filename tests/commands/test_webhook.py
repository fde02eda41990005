"""`webhook close` and `webhook open`: the switch that revokes what a token may do."""

from __future__ import annotations

import json

import pytest

from ops.simulator.sluice_world import SimSluice
from shared.domain.job import Flag
from tests.commands.world import ADA, CLASS, World, settings

BECAUSE = ("--reason", "a token was printed", "--by", "ada")


def world(**changes: bool) -> World:
    return World(sluice=SimSluice(settings(webhook=True, **changes), seed=1))


def test_close_and_open_say_what_they_did_and_leave_it_in_control() -> None:
    made = world()
    closed = made.run("webhook", "close", *BECAUSE)
    assert (closed.exit_code, closed.stdout) == (
        0,
        f"replays: webhook closed by {ADA}: a token was printed\n"
        '  undo: python -m ops webhook open replays --reason "..."\n',
    )
    control = made.sluice.ledger.read_control(CLASS)
    flag = Flag(by=ADA, why="a token was printed", at_ms=made.sluice.world.now_ms)
    assert (control.webhook_closed, control.webhook_switched, control.pause) == (True, flag, None)
    opened = made.run("webhook", "open", CLASS, "--reason", "rotated", "--by", "bob")
    assert opened.stdout.startswith("replays: webhook opened by bob (")
    assert made.sluice.ledger.read_control(CLASS).webhook_closed is False


def test_both_speak_json() -> None:
    said = json.loads(world().run("webhook", "close", *BECAUSE, "--json").stdout)
    assert (said["classes"], said["webhook_closed"], said["webhook_switched"]["by"]) == ([CLASS], True, ADA)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("webhook", "close"), "--reason"),
        (("webhook", "close", "--reason", " "), "error: reason: got an empty string"),
        (("webhook", "open", "x", *BECAUSE), "error: CLASS: got an unknown class, expected one of replays"),
    ],
)
def test_what_is_wrong_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    result = world().run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_a_class_without_the_webhook_has_no_switch() -> None:
    result = World().run("webhook", "close", *BECAUSE)
    assert result.exit_code == 2
    assert "error: CLASS: got a class without the webhook, expected webhook = true" in result.stderr
