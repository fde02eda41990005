"""`pause`, `halt`, `resume`, `webhook` and `guard`: what an operator does to a class, and what no deployment may do."""

from __future__ import annotations

import json

from ops.simulator.sluice_world import SimSluice
from shared.domain.job import Flag, NewJob
from tests.commands.world import ADA, BOB, CLASS, NOBODY, World, settings


def test_a_pause_admits_nothing_more_and_names_the_caller() -> None:
    world = World()
    result = world.run("pause", CLASS, "--reason", "the upstream answers nonsense")
    world.submit(5)
    world.sluice.run(300_000)

    assert result.exit_code == 0
    flag = world.control.pause
    assert flag is not None
    assert (flag.by, flag.why) == (NOBODY, "the upstream answers nonsense")
    assert result.stdout.startswith(f"replays: paused by {NOBODY}: the upstream answers nonsense\n")
    assert world.sluice.ledger.open_rows == 5


def test_a_resume_lets_the_next_tick_admit_and_says_what_it_ended() -> None:
    world = World()
    world.submit(5)
    world.run("pause", CLASS, "--reason", "why", "--by", "ada")
    result = world.run("resume", CLASS, "--reason", "it answers again", "--by", "bob")

    assert result.stdout.startswith(f"replays: resumed by {BOB}: it answers again\n  it was paused by {ADA}: why\n")
    assert 'undo: python -m ops pause replays --reason "..."' in result.stdout
    resumed = world.control.resumed
    assert resumed is not None
    assert (resumed.by, resumed.why) == (BOB, "it answers again")
    assert world.run("resume", CLASS, "--reason", "x").stdout == "replays: was not paused.\n"
    assert world.sluice.drain(max_ms=600_000)


def test_both_speak_json() -> None:
    world = World()
    paused = world.json("pause", CLASS, "--reason", "why", "--by", "ada")
    resumed = world.json("resume", CLASS, "--reason", "x")

    assert (paused["pause"]["by"], paused["pause"]["why"]) == (ADA, "why")
    assert (resumed["pause"], resumed["was"]) == (None, paused["pause"])


def test_an_empty_name_is_one_sentence_and_changes_nothing() -> None:
    world = World()
    result = world.run("pause", CLASS, "--reason", "x", "--by", "")

    assert (result.exit_code, result.stderr) == (2, "error: --by: got nothing, expected your name, or no --by\n")
    assert world.control.admits


def test_a_halt_also_makes_workers_give_their_jobs_back_and_a_resume_ends_it() -> None:
    world = World()
    world.sluice.submit(
        [NewJob(job_id="long", job_class=CLASS, match_id="m", payload='{"chunks": 40, "chunk_ms": 5000}')]
    )
    world.sluice.run(61_000)
    result = world.run("halt", CLASS, "--reason", "empty summaries", "--by", "ada")
    world.sluice.run(120_000)

    assert f"replays: halted by {ADA}: empty summaries" in result.stdout
    row = world.rows["long"]
    assert (row.state, row.attempts, row.last_error) == ("waiting", 0, "halted")
    assert row.cursor, "what was done is kept"
    printed = world.run("resume", CLASS, "--reason", "mended").stdout
    assert f"it was halted by {ADA}: empty summaries" in printed
    assert "python -m ops halt replays" in printed, "what undoes it is what was ended"
    assert world.sluice.drain(max_ms=900_000)


# -- the webhook

BECAUSE = ("--reason", "a token was printed", "--by", "ada")


def open_to_the_webhook(**changes: bool) -> World:
    return World(sluice=SimSluice(settings(webhook=True, **changes), seed=1))


def test_close_and_open_say_what_they_did_and_leave_it_in_control() -> None:
    made = open_to_the_webhook()
    closed = made.run("webhook", "close", *BECAUSE)
    assert (closed.exit_code, closed.stdout) == (
        0,
        f"replays: webhook closed by {ADA}: a token was printed\n"
        '  undo: python -m ops webhook open replays --reason "..."\n',
    )
    control = made.control
    flag = Flag(by=ADA, why="a token was printed", at_ms=made.sluice.world.now_ms)
    assert (control.webhook_closed, control.webhook_switched, control.pause) == (True, flag, None)
    opened = made.run("webhook", "open", CLASS, "--reason", "rotated", "--by", "bob")
    assert opened.stdout.startswith("replays: webhook opened by bob (")
    assert made.control.webhook_closed is False


def test_the_switch_speaks_json() -> None:
    switched = open_to_the_webhook().json("webhook", "close", *BECAUSE)
    assert (switched["classes"], switched["webhook_closed"], switched["webhook_switched"]["by"]) == ([CLASS], True, ADA)


def test_a_class_without_the_webhook_has_no_switch() -> None:
    result = World().run("webhook", "close", *BECAUSE)
    assert result.exit_code == 2
    assert "error: CLASS: got a class without the webhook, expected webhook = true" in result.stderr


# -- a class that goes


def without_replays(world: World) -> World:
    """The configuration that the next deployment would bring: the class is gone, or has another name."""
    other = World(deployed=frozenset({CLASS}))
    settings = other.sluice.settings
    renamed = type(settings)(classes={"summaries": settings.classes[CLASS]})
    world.sluice.settings = renamed
    return world


def test_a_removed_or_renamed_class_with_rows_is_refused_with_a_sentence() -> None:
    world = World()
    world.submit(12)
    result = without_replays(world).run("guard")

    assert result.exit_code == 1
    assert result.stderr == (
        "error: classes.replays: got no such table in the configuration and 12 unfinished and 0 dead rows in the"
        " ledger, expected the class to stay until it has none: put it back, let it drain, and remove it then."
        " A renamed class is a removed one.\n"
    )


def test_a_removed_class_that_is_empty_may_go() -> None:
    world = World()
    world.submit(12)
    assert world.sluice.drain(max_ms=600_000)
    result = without_replays(world).run("guard")

    assert (result.exit_code, result.stdout) == (0, "Removed and empty: replays.\n")


def test_rows_in_flight_and_in_every_list_count() -> None:
    world = World()
    payload = '{"chunk_ms": 50000}'
    world.sluice.submit(
        [NewJob(job_id=f"j{n}", job_class=CLASS, match_id=f"m{n}", payload=payload, priority=n % 3) for n in range(9)]
    )
    world.sluice.run(61_000)
    assert any(job.state == "queued" for job in world.rows.values())

    answer = json.loads(without_replays(world).run("guard", "--json").stdout)
    assert answer == {"removed": [{"name": CLASS, "open_rows": 9, "dead_rows": 0}], "refused": True}


def test_an_unchanged_configuration_passes() -> None:
    world = World()
    world.submit(3)

    assert world.run("guard").stdout == "No class is removed.\n"
