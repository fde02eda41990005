"""`submit`, in the issue's own words: put my own jobs in, and never lose or double one."""

from __future__ import annotations

import json
import os
import signal
import threading
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from shared.domain.job import Created, Job, State
from shared.errors import LedgerUnavailable
from tests.commands.world import CLASS, World, line, lines

# -- what goes in


def test_jobs_of_a_file_are_waiting_rows(world: World, submit: Callable[..., Result]) -> None:
    result = submit(line(due="2026-11-30T13:00:00+01:00", priority=2))

    assert (result.exit_code, result.stderr) == (0, "")
    assert "1 created, 0 already there, 0 refused" in result.stdout
    job = world.rows["j1"]
    assert (job.state, job.match_id, job.payload, job.priority) == (State.WAITING, "m1", '{"n": 1}', 2)
    assert job.due_ms == 1_796_040_000_000, "the offset is converted: 12:00 UTC"


def test_a_payload_stays_as_it_was_written(world: World, submit: Callable[..., Result]) -> None:
    text = '{"x": 0.10000000000000000001, "big": 123456789012345678901234567890, "e": 1E2,  "s": "\\u00e9"}'
    assert submit(f'{{"job_id":"j","job_class":"{CLASS}","match_id":"m","payload":{text}}}'.encode()).exit_code == 0

    assert world.rows["j"].payload == text


def test_standard_input_is_a_file_too(world: World) -> None:
    first = world.run("submit", "-", stdin=lines(3))
    strict = world.run("submit", "-", "--strict", stdin=lines(4))

    assert "standard input: 3 created, 0 already there" in first.stdout
    assert "standard input: 1 created, 3 already there" in strict.stdout


@pytest.mark.parametrize("options", [(), ("--strict",)])
def test_a_named_pipe_is_a_file_too(world: World, tmp_path: Path, options: tuple[str, ...]) -> None:
    pipe = tmp_path / "jobs"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(lines(3),), daemon=True)
    writer.start()
    result = world.run("submit", pipe, *options)
    writer.join(10)

    assert result.exit_code == 0
    assert f"{pipe}: 3 created, 0 already there" in result.stdout


def test_the_same_file_twice_adds_nothing(world: World, submit: Callable[..., Result]) -> None:
    first, second = submit(lines(2_000)), submit(lines(2_000))

    assert "2,000 created, 0 already there" in first.stdout
    assert (second.exit_code, len(world.rows)) == (0, 2_000)
    assert "0 created, 2,000 already there" in second.stdout


def test_a_job_without_a_due_time_may_be_submitted_again_later(world: World, submit: Callable[..., Result]) -> None:
    submit(line())
    world.sluice.world.now_ms += 5_000

    assert submit(line()).exit_code == 0


# -- identifiers

TWINS = [
    "match",
    "Match",
    "match ",
    " match",
    "mätch",
    unicodedata.normalize("NFD", "mätch"),
    "матч",
    "🎮 match",
    "Köln vs. 1. FC – Halbfinale 2026/27 (Rückspiel)",
    "x" * 1024,
    "x" * 1023,
    "\u202ematch",
    "ma\ttch",
    "#match#0",
]


def test_any_unicode_id_works_end_to_end_and_stays_distinct_from_its_near_twins(
    world: World, submit: Callable[..., Result]
) -> None:
    content = b"".join(line(job_id=twin, match_id=twin, payload={}) for twin in TWINS)

    assert submit(content).exit_code == 0
    assert set(world.rows) == set(TWINS)
    assert world.sluice.drain(max_ms=600_000)
    assert {job.job_id: job.match_id for job in world.rows.values()} == {twin: twin for twin in TWINS}
    assert all(job.state is State.DONE for job in world.rows.values())


# -- payloads


def test_a_large_payload_goes_to_the_object_store_and_its_kind_sees_it(
    world: World, submit: Callable[..., Result]
) -> None:
    large = {"text": "ä" * 150_000, "chunks": 2}
    content = line(job_id="large", payload=large) + line(job_id="twin", payload=large) + line(job_id="small")
    assert submit(content).exit_code == 0
    assert "3 already there" in submit(content).stdout

    row = world.rows["large"]
    assert (row.payload, row.payload_key) == ("", world.rows["twin"].payload_key)
    assert json.loads(world.sluice.blobs.objects[row.payload_key]) == large
    assert world.sluice.drain(max_ms=600_000)
    assert len(world.sluice.ledger.outputs("large")) == 2, "the kind read its number of chunks from the payload"


def test_another_large_payload_under_one_id_is_refused(world: World, submit: Callable[..., Result]) -> None:
    submit(line(payload="x" * 5_000))

    assert "exists with other contents" in submit(line(payload="y" * 5_000)).stderr


# -- the summary, and going on


def test_the_summary_as_json_adds_up(submit: Callable[..., Result]) -> None:
    result = submit(lines(10) + lines(2) + b"nonsense\n", "--json")

    summary = json.loads(result.stdout)
    assert (summary["jobs"], summary["created"], summary["existing"], summary["refused"]) == (13, 10, 2, 1)
    assert (summary["outcome"], summary["next_line"], result.exit_code) == ("complete", None, 1)
    assert summary["refusals"] == [
        {
            "line": 13,
            "field": "line",
            "reason": "line: got text that is not JSON at column 1, expected one JSON object on the line",
        }
    ]


class Interrupting:
    """A ledger beside which someone presses ctrl-C, while the third wave is on its way."""

    def __init__(self, world: World, *, at: int) -> None:
        self._ledger = world.sluice.ledger
        self._left = at

    def create(self, jobs: list[Job]) -> list[Created]:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return self._ledger.create(jobs)


def test_ctrl_c_finishes_what_is_on_its_way_and_says_how_to_go_on(world: World, submit: Callable[..., Result]) -> None:
    world.broken["ledger"] = Interrupting(world, at=2 * 32 + 5)
    result = submit(lines(5_000))

    assert result.exit_code == 130
    assert len(world.rows) == 2_400, "three whole waves"
    assert "2,400 created, 0 already there, 0 refused" in result.stdout
    assert "Interrupted." in result.stdout
    assert "To skip what is done, add --from-line 2401 to the same command.\n" in result.stdout
    assert "python -m ops" not in result.stdout, "a command without the options that were given would be another one"
    world.broken.clear()
    assert "2,600 created, 0 already there" in submit(lines(5_000), "--from-line", "2401").stdout
    assert "0 created, 5,000 already there" in submit(lines(5_000)).stdout


class Failing:
    """A ledger that does not answer a number of times; it has done half of its work by then."""

    def __init__(self, world: World, *, times: int) -> None:
        self._ledger = world.sluice.ledger
        self._left = times

    def create(self, jobs: list[Job]) -> list[Created]:
        if self._left:
            self._left -= 1
            self._ledger.create(jobs[: len(jobs) // 2])
            raise LedgerUnavailable("throttled")
        return self._ledger.create(jobs)


def test_a_ledger_that_does_not_answer_for_a_while_costs_time_and_no_count(
    world: World, submit: Callable[..., Result]
) -> None:
    world.broken["ledger"] = Failing(world, times=3)
    result = submit(lines(100))

    assert result.exit_code == 0
    assert "100 created, 0 already there, 0 refused" in result.stdout
    assert "The ledger did not answer in time. (throttled) Trying again in 1 s (attempt 1 of 5)." in result.stderr


def test_a_ledger_that_never_answers_ends_the_command(world: World, submit: Callable[..., Result]) -> None:
    world.broken["ledger"] = Failing(world, times=1_000)
    result = submit(lines(100))

    assert result.exit_code == 3
    assert "Gave up: The ledger did not answer in time." in result.stdout
    assert "--from-line 1" in result.stdout


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (
            "no-such-file.jsonl",
            "error: FILE: got no such file or directory, expected a file that can be read, or - for",
        ),
        ("/", "error: FILE: got is a directory, expected a file that can be read, or - for standard input"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(world: World, file: str, sentence: str) -> None:
    result = world.run("submit", file)

    assert result.exit_code == 2
    assert result.stderr.startswith(sentence)
