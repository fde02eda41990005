"""`dead`, `retry`, `skip`, `replace`: what an operator sees of a dead job, does about it, and leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ops.simulator.sluice_world import SimSluice
from shared.domain.job import NewJob, State
from shared.domain.settings import RetrySettings
from tests.commands.world import ADA, CLASS, World, settings

CANARY = "canary-patient"
POISON = f'["{CANARY}"]'
MATCH = "Köln – Halbfinale"


def held(*, ordered: bool = True) -> World:
    """j0 is dead and, in an ordered class, holds j1 and j2; `alone` is dead in a match of its own."""
    retry = RetrySettings(max_attempts=2, base_delay_s=1.0, max_delay_s=2.0)
    world = World(sluice=SimSluice(settings(ordered=ordered, retry=retry), seed=1))
    names = {"j0": POISON, "j1": "{}", "j2": "{}"}
    new = [NewJob(job_id=name, job_class=CLASS, match_id=MATCH, payload=body) for name, body in names.items()]
    world.sluice.submit([*new, NewJob(job_id="alone\x1b[2J", job_class=CLASS, match_id="m", payload=POISON)])
    world.sluice.run(10 * 60_000)
    return world


def replacement(tmp_path: Path, **fields: Any) -> Path:
    path = tmp_path / "new.json"
    path.write_text(json.dumps({"job_id": "j0b", "payload": {}} | fields))
    return path


# -- seen


def test_the_list_names_each_dead_job_with_its_reason_and_what_it_holds() -> None:
    world = held()
    printed = world.run("dead", "list", CLASS).stdout

    assert "replays: 2 dead" in printed
    (line,) = [line for line in printed.splitlines() if line.strip().startswith("j0 ")]
    assert "AttributeError" in line
    assert "2 attempts" in line
    assert "holds 2" in line
    assert "\x1b" not in printed, "an id may hold anything, and a terminal obeys some of it"
    listed = {each["job_id"]: each for each in world.json("dead", "list", CLASS)["dead"]}
    assert listed["j0"]["reason"] == "AttributeError"
    assert (listed["j0"]["attempts"], listed["j0"]["holds"]) == (2, 2)
    assert listed["alone\x1b[2J"]["holds"] == 0


def test_the_list_is_bounded_and_says_that_there_is_more() -> None:
    printed = held().run("dead", "list", CLASS, "--limit", 1).stdout

    assert printed.count("AttributeError") == 1
    assert "1 more" in printed


def test_a_class_without_dead_jobs_says_so() -> None:
    assert World().run("dead", "list", CLASS).stdout == "replays: no dead jobs.\n"


def test_one_job_is_shown_with_all_its_bounds_and_without_its_payload() -> None:
    world = held()
    printed = world.run("dead", "show", "j0").stdout

    assert printed.startswith("j0: dead since ")
    assert "reason    AttributeError" in printed
    assert "2 of 2 attempts" in printed
    assert f"match     {MATCH}, place 1" in printed
    assert "holds     2 jobs behind it, the next is j1" in printed
    assert "python -m ops retry j0 --reason" in printed
    for output in (printed, json.dumps(world.json("dead", "show", "j0"))):
        assert CANARY not in output


@pytest.mark.parametrize("command", [("dead", "show"), ("retry",), ("skip",)])
def test_a_job_that_is_not_dead_or_not_there_is_one_sentence(command: tuple[str, ...]) -> None:
    world = held()
    reason = () if command[0] == "dead" else ("--reason", "x")

    for job, got in (("j1", "a job that is not dead but behind"), ("j", "an id that no row has")):
        result = world.run(*command, job, *reason)
        assert (result.exit_code, result.stderr) == (2, f"error: JOB: got {got}, expected the id of a dead job\n")


# -- done


def test_a_retry_starts_with_fresh_bounds_and_is_signed() -> None:
    world = held()
    result = world.run("retry", "j0", "--reason", "the bug is fixed", "--by", "ada")

    row = world.rows["j0"]
    assert (row.state, row.attempts) == (State.WAITING, 0)
    assert row.changed is not None
    assert (row.changed.by, row.changed.why) == (ADA, "the bug is fixed")
    assert f"j0: dead -> waiting, by {ADA}: the bug is fixed" in result.stdout
    assert "undo: " in result.stdout


def test_a_skip_lets_the_next_of_its_match_go_on() -> None:
    world = held()
    result = world.run("skip", "j0", "--reason", "nobody needs it")

    assert (world.rows["j0"].state, world.rows["j1"].state) == (State.SKIPPED, State.WAITING)
    assert "j1 is the next of its match" in result.stdout
    assert "submit" in result.stdout, "how to undo it"


def test_a_replacement_takes_its_place_and_its_class_and_match(tmp_path: Path) -> None:
    world = held()
    result = world.run("replace", "j0", replacement(tmp_path), "--reason", "the replay was mended")

    assert result.exit_code == 0, result.stderr
    row = world.rows["j0b"]
    assert (row.job_class, row.match_id, row.seq, row.state) == (CLASS, MATCH, 1, State.WAITING)
    assert row.changed is not None
    assert row.changed.why == "the replay was mended"
    assert world.rows["j0"].state is State.REPLACED
    world.sluice.run(10 * 60_000)
    assert [world.rows[name].state for name in ("j0b", "j1", "j2")] == [State.DONE] * 3


def test_in_a_class_without_order_a_replacement_is_a_job_like_any_other() -> None:
    world = held(ordered=False)
    document = json.dumps({"job_id": "j0b", "payload": "x" * 5000}).encode()
    assert world.run("replace", "j0", "-", "--reason", "x", stdin=document).exit_code == 0

    assert world.rows["j0b"].payload_key, "a large payload is an object before its row is"
    assert (world.rows["j0"].state, world.rows["j0b"].state) == (State.REPLACED, State.WAITING)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"job_id": "j1"}, "replacement: got an id that exists, expected a new id"),
        ({"job_id": "j0"}, "replacement: got an id that exists, expected a new id"),
        ({"match_id": "other"}, "replacement: got another class or match, expected those of the dead job"),
        ({"job_id": ""}, "job_id: got an empty string"),
        ({"jobid": 1}, '"jobid": got an unknown field, expected one of'),
    ],
)
def test_a_replacement_that_cannot_be_is_one_sentence(tmp_path: Path, fields: dict[str, Any], sentence: str) -> None:
    world = held()
    for dry in ((), ("--dry-run",)):
        result = world.run("replace", "j0", replacement(tmp_path, **fields), "--reason", "x", *dry)
        assert result.exit_code == 2
        assert result.stderr.startswith(f"error: {sentence}")
        assert world.rows["j0"].state is State.DEAD


def test_while_paused_a_retried_job_waits_and_the_command_says_so() -> None:
    world = held()
    world.run("pause", CLASS, "--reason", "odd answers", "--by", "ada")

    assert f"the class is paused by {ADA}: odd answers" in world.run("retry", "j0", "--reason", "x").stdout
