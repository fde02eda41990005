"""Every command that changes something: signed with the caller's identity, rehearsed on request, and with its undo."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click
import pytest

from ops.cli import main
from ops.simulator.sluice_world import SimSluice
from shared.domain.job import Flag, NewJob
from shared.domain.settings import ClassSettings, RetrySettings, Settings
from tests.commands.world import ARN, CLASS, World

NEW = b'{"job_id": "new", "payload": {"n": 2}}'
WHY = "odd answers \u2013 until noon"


def world() -> World:
    """An ordered class that is open to the webhook, and whose first job is dead."""
    retry = RetrySettings(max_attempts=1)
    job_class = ClassSettings(name=CLASS, kind="sim", slots=20, ordered=True, webhook=True, retry=retry)
    made = World(sluice=SimSluice(Settings(classes={CLASS: job_class}), seed=1), arn=ARN)
    poison = "[]"
    made.sluice.submit([NewJob(job_id=f"j{n}", job_class=CLASS, match_id="m", payload=poison) for n in range(2)])
    made.sluice.run(120_000)
    assert made.rows["j0"].state == "dead"
    return made


Signature = Callable[[World], Flag | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`command` and its options; where its signature is kept; what must have been done before, so that it does
    something; the argument in which a class may be mistyped, if it takes a class."""

    command: tuple[object, ...]
    signature: Signature
    first: Sequence[tuple[object, ...]] = ()
    stdin: bytes | None = None
    takes_class: bool = True

    @property
    def name(self) -> str:
        return " ".join(str(part) for part in self.command[: 2 if self.command[0] == "webhook" else 1])


def of_job(made: World) -> Flag | None:
    return made.rows["j0"].changed


def control(read: Callable[[Any], Flag | None]) -> Signature:
    return lambda made: read(made.control)


REASON = ("--reason", "before", "--by", "bob")
CHANGES = (
    Change(command=("pause", CLASS), signature=control(lambda now: now.pause)),
    Change(command=("halt", CLASS), signature=control(lambda now: now.halt)),
    Change(
        command=("resume", CLASS),
        signature=control(lambda now: now.resumed),
        first=[("pause", CLASS, *REASON)],
    ),
    Change(command=("rate", CLASS, 2.5), signature=control(lambda now: now.rate and now.rate.flag)),
    Change(
        command=("rate", CLASS, "--clear"),
        signature=control(lambda now: now.rate and now.rate.flag),
        first=[("rate", CLASS, 2.5, *REASON)],
    ),
    Change(command=("concurrency", CLASS, 8), signature=control(lambda now: now.slots and now.slots.flag)),
    Change(
        command=("concurrency", CLASS, "--back"),
        signature=control(lambda now: now.slots and now.slots.flag),
        first=[("concurrency", CLASS, 8, *REASON)],
    ),
    Change(command=("webhook", "close", CLASS), signature=control(lambda now: now.webhook_switched)),
    Change(
        command=("webhook", "open", CLASS),
        signature=control(lambda now: now.webhook_switched),
        first=[("webhook", "close", CLASS, *REASON)],
    ),
    Change(command=("retry", "j0"), signature=of_job, takes_class=False),
    Change(command=("skip", "j0"), signature=of_job, takes_class=False),
    Change(command=("replace", "j0", "-"), signature=of_job, stdin=NEW, takes_class=False),
)
OF_A_DEPLOYMENT = {"drill", "import"}
"""Signed too, but about no class or job: they have suites of their own."""
EACH = pytest.mark.parametrize("change", CHANGES, ids=lambda change: " ".join(map(str, change.command)))


def before(change: Change) -> World:
    made = world()
    for command in change.first:
        assert made.run(*command).exit_code == 0
    return made


@EACH
def test_it_is_recorded_with_who_and_why_and_says_what_it_changed_and_how_to_undo_it(change: Change) -> None:
    made = before(change)
    result = made.run(*change.command, "--reason", WHY, "--by", "ada", stdin=change.stdin)
    flag = change.signature(made)

    assert result.exit_code == 0, result.stderr
    assert flag is not None
    assert (flag.by, flag.why) == (f"ada ({ARN})", WHY)
    assert f"by ada ({ARN}): {WHY}" in result.stdout
    assert "undo: " in result.stdout


@EACH
def test_nobody_signs_for_another(change: Change) -> None:
    """Without --by the AWS identity alone; without one the system's user, and the record says that."""
    made = before(change)
    made.run(*change.command, "--reason", WHY, stdin=change.stdin)
    flag = change.signature(made)
    assert flag is not None
    assert flag.by == ARN

    other = before(change)
    other.arn = None
    other.run(*change.command, "--reason", WHY, "--by", ARN, stdin=change.stdin)
    flag = change.signature(other)
    assert flag is not None
    assert flag.by.endswith(", no AWS identity)")


@EACH
def test_a_rehearsal_writes_nothing_says_the_same_and_needs_its_reason_too(change: Change) -> None:
    made = before(change)
    writes, bounds, was = made.sluice.ledger.writes.copy(), made.lanes.bounds, change.signature(made)
    result = made.run(*change.command, "--reason", WHY, "--dry-run", stdin=change.stdin)

    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("Dry run, nothing was changed.\n")
    assert (made.sluice.ledger.writes, made.lanes.bounds, change.signature(made)) == (writes, bounds, was)
    assert result.stdout.partition("\n")[2] == made.run(*change.command, "--reason", WHY, stdin=change.stdin).stdout
    without = made.run(*change.command, "--dry-run", stdin=change.stdin)
    assert without.exit_code == 2
    assert "--reason" in without.stderr


@EACH
def test_it_speaks_json(change: Change) -> None:
    made = before(change)
    options = ("--reason", WHY, "--json")
    rehearsed = json.loads(made.run(*change.command, *options, "--dry-run", stdin=change.stdin).stdout)
    done = json.loads(made.run(*change.command, *options, stdin=change.stdin).stdout)

    assert (rehearsed["dry_run"], done["dry_run"]) == (True, False)
    assert ARN in json.dumps(done)
    assert rehearsed.keys() == done.keys()


@EACH
def test_an_empty_reason_is_one_line_and_changes_nothing(change: Change) -> None:
    made = before(change)
    was = change.signature(made)
    result = made.run(*change.command, "--reason", " ", stdin=change.stdin)

    assert result.exit_code == 2
    assert result.stderr.startswith("error: reason: got an empty string, expected why ")
    assert result.stderr.count("\n") == 1
    assert change.signature(made) == was


@EACH
def test_a_wrong_class_suggests_the_right_one(change: Change) -> None:
    wrong = tuple("replay" if part == CLASS else part for part in change.command)
    result = world().run(*wrong, "--reason", WHY) if change.takes_class else None
    expected = "error: CLASS: got an unknown class, expected one of replays; did you mean replays?\n"

    assert result is None or (result.exit_code, result.stderr) == (2, expected)


# -- every command, changing or not


def leaves(group: click.Group, *path: str) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        inner = leaves(command, *path, name) if isinstance(command, click.Group) else [(*path, name)]
        paths += inner
    return paths


LEAVES = leaves(main)


@pytest.mark.parametrize("path", [*LEAVES, ("dead",), ("webhook",), ()], ids=" ".join)
def test_every_help_shows_an_example_of_its_command(path: tuple[str, ...]) -> None:
    result = World().run(*path, "--help")

    assert result.exit_code == 0
    printed = re.sub(r"python -m ops( --\w+ \S+)*", "python -m ops", result.output)
    assert "Example" in printed
    assert f"python -m ops {' '.join(path)}".rstrip() in printed


def test_every_command_that_is_signed_is_in_the_table() -> None:
    signed = set()
    for path in LEAVES:
        command: click.Command = main
        for name in path:
            assert isinstance(command, click.Group)
            command = command.commands[name]
        if any(option.name == "reason" for option in command.params):
            signed.add(" ".join(path))

    assert signed - OF_A_DEPLOYMENT == {change.name for change in CHANGES}
