"""`submit`, in the issue's own words: put my own jobs in, get them wrong, and never lose or double one."""

from __future__ import annotations

import json
import os
import signal
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from shared.core.model import Created, Job, State
from shared.errors import LedgerUnavailable
from tests.cli.world import CLASS, World

GOOD = {"job_id": "j1", "job_class": CLASS, "match_id": "m1", "payload": {"n": 1}}


def line(**changes: Any) -> bytes:
    return json.dumps(GOOD | changes).encode() + b"\n"


def lines(count: int, *, start: int = 0) -> bytes:
    return b"".join(line(job_id=f"j{number}", match_id=f"m{number % 7}") for number in range(start, start + count))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def submit(world: World, tmp_path: Path) -> Callable[..., Result]:
    """Submit a file with these bytes."""

    def run(content: bytes, *options: str, name: str = "jobs.jsonl") -> Result:
        path = tmp_path / name
        path.write_bytes(content)
        return world.run("submit", path, *options)

    return run


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
    for strict in ((), ("--strict",)):
        result = world.run("submit", "-", *strict, stdin=lines(3))
        assert result.exit_code == 0
    assert len(world.rows) == 3
    assert "0 created, 3 already there" in result.stdout


def test_the_same_file_twice_adds_nothing(world: World, submit: Callable[..., Result]) -> None:
    first, second = submit(lines(2_000)), submit(lines(2_000))

    assert "2,000 created, 0 already there" in first.stdout
    assert (second.exit_code, len(world.rows)) == (0, 2_000)
    assert "0 created, 2,000 already there" in second.stdout


def test_a_job_without_a_due_time_may_be_submitted_again_later(world: World, submit: Callable[..., Result]) -> None:
    submit(line())
    world.sluice.world.now_ms += 5_000

    assert submit(line()).exit_code == 0


# -- bad input: each line of the table is one line of a file, and the sentence that it gets

ID_EXPECTED = "expected a string of 1 to 1024 bytes of UTF-8"
DUE_EXPECTED = "expected ISO 8601 with an offset, like 2026-11-30T12:00:00Z or 2026-11-30T13:00:00+01:00"


def raw(text: str) -> bytes:
    """A line whose payload is this text."""
    return line(payload=0).replace(b'"payload": 0', b'"payload": ' + text.encode())


BAD_LINES = [
    (line(job_class="replay"), "job_class: got an unknown class, expected one of replays"),
    (line(job_class=None), "job_class: got null, expected one of replays"),
    (line(job_id=""), f"job_id: got an empty string, {ID_EXPECTED}"),
    (line(job_id=17), f"job_id: got a whole number, {ID_EXPECTED}"),
    (line(job_id="ä" * 513), f"job_id: got 1026 bytes, {ID_EXPECTED}"),
    (line(match_id="m" * 1025), f"match_id: got 1025 bytes, {ID_EXPECTED}"),
    (line(job_id="a\0b"), "job_id: got a string with a NUL character, expected text without one"),
    (line(match_id="\ud800"), "match_id: got a string with a lone surrogate, expected well-formed Unicode"),
    (line(due="99999-01-01T00:00:00Z"), f"due: got a year of more than four digits, {DUE_EXPECTED}"),
    (line(due="9999-01-01T00:00:00Z"), "due: got a time out of range, expected a time from 1970 to 2100"),
    (line(due="1969-12-31T23:59:59Z"), "due: got a time out of range, expected a time from 1970 to 2100"),
    (line(due="2026-11-30T12:00:00"), f"due: got a time without an offset, {DUE_EXPECTED}"),
    (line(due="2026-11-30"), f"due: got a time without an offset, {DUE_EXPECTED}"),
    (line(due="tomorrow"), f"due: got other text, {DUE_EXPECTED}"),
    (line(due=1796040000), f"due: got a whole number, {DUE_EXPECTED}"),
    (line(priority=3), "priority: got a number out of range, expected a whole number from 0 to 2"),
    (line(priority=1.5), "priority: got a number, expected a whole number from 0 to 2"),
    (line(priority=True), "priority: got a boolean, expected a whole number from 0 to 2"),
    (line(payload="x" * 4_999_998), "payload: got 5000000 bytes, expected at most 1048576"),
    (raw("NaN"), "payload: got NaN or Infinity, which JSON does not have, expected a JSON value"),
    (raw('{"n": -Infinity}'), "payload: got NaN or Infinity, which JSON does not have, expected a JSON value"),
    (raw("1e999"), "payload: got a number too large for any reader, expected a JSON value"),
    (raw("9" * 5_000), "payload: got a number with too many digits, expected a smaller one"),
    (raw('{"a": 1, "a": 2}'), "payload: got an object with the same key twice, expected a JSON value"),
    (raw("[" * 100_000 + "]" * 100_000), "payload: got JSON nested deeper than 100 levels, expected a JSON value"),
    (raw("[" * 101 + "]" * 101), "payload: got JSON nested deeper than 100 levels, expected a JSON value"),
    (raw("{'n': 1}"), "line: got text that is not JSON at column 73, expected one JSON object on the line"),
    (
        line().replace(b"{", b'{"job_id": "j2", ', 1),
        "job_id: got the same key twice, expected each key once",
    ),
    (
        line(prioritty=1),
        '"prioritty": got an unknown field, expected one of job_id, job_class, match_id, payload, due, priority;'
        " did you mean priority?",
    ),
    (b'{"job_id": "j1"}\n', "job_class: got nothing, expected a class of sluice.toml, here or with --job-class"),
    (b'["j1"]\n', "line: got an array, expected one JSON object on the line"),
    (b"null\n", "line: got null, expected one JSON object on the line"),
    (line()[:40], "line: got an object that is cut off, expected one JSON object on the line"),
    (line()[:-2], "line: got an object that is cut off, expected one JSON object on the line"),
    (line()[:-1] + b" {}\n", "line: got text that is not JSON at column 81, expected one JSON object on the line"),
    (line().replace(b"m1", b"\xff"), "line: got bytes that are not UTF-8, expected UTF-8 text"),
]


@pytest.mark.parametrize(("bad", "sentence"), BAD_LINES, ids=[sentence[:60] for _, sentence in BAD_LINES])
def test_a_bad_line_is_reported_and_the_good_ones_are_kept(
    world: World, submit: Callable[..., Result], bad: bytes, sentence: str
) -> None:
    result = submit(line(job_id="before") + bad.rstrip(b"\n") + b"\n" + line(job_id="after"))

    assert result.stderr == f"line 2: {sentence}\n"
    assert result.exit_code == 1
    assert "2 created, 0 already there, 1 refused" in result.stdout
    assert set(world.rows) == {"before", "after"}


@pytest.mark.parametrize(("bad", "sentence"), BAD_LINES, ids=[sentence[:60] for _, sentence in BAD_LINES])
def test_strict_keeps_none_at_all(world: World, submit: Callable[..., Result], bad: bytes, sentence: str) -> None:
    result = submit(line(job_id="before") + bad, "--strict")

    assert (result.exit_code, world.rows) == (1, {})
    assert result.stderr == f"line 2: {sentence}\n"
    assert "nothing was submitted (--strict), because of 1 bad line." in result.stdout


def test_the_same_id_with_another_payload_is_refused_and_the_first_one_stands(
    world: World, submit: Callable[..., Result]
) -> None:
    result = submit(line() + line() + line(payload={"n": 2}))

    assert result.exit_code == 1
    assert result.stderr == "line 3: job_id: got an id that exists with other contents, expected a new id\n"
    assert "1 created, 1 already there, 1 refused" in result.stdout
    assert world.rows["j1"].payload == '{"n": 1}'


@pytest.mark.parametrize("empty", [b"", b"\n\n  \r\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_no_failure(world: World, submit: Callable[..., Result], empty: bytes) -> None:
    result = submit(empty)

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith("jobs.jsonl: no jobs in it, nothing was submitted.\n")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\xef\xbb\xbf" + line(), id="a byte order mark"),
        pytest.param(line().replace(b"\n", b"\r\n") + b"\r\n", id="CRLF"),
        pytest.param(line().rstrip(b"\n"), id="no line end at the end"),
    ],
)
def test_what_editors_do_to_a_file_changes_nothing(world: World, submit: Callable[..., Result], content: bytes) -> None:
    assert submit(content).exit_code == 0
    assert world.rows["j1"].match_id == "m1"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (line().decode().encode("utf-16"), "file: got UTF-16, expected UTF-8 text"),
        (b"\x1f\x8b\x08\x00", "file: got a gzip file, expected UTF-8 text"),
    ],
)
def test_a_file_of_another_kind_is_refused_whole(submit: Callable[..., Result], content: bytes, sentence: str) -> None:
    result = submit(content)

    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"error: {sentence}\n")


def test_a_line_without_an_end_is_not_read_into_memory(world: World, submit: Callable[..., Result]) -> None:
    result = submit(b"x" * (17 * 1024 * 1024) + b"\n" + line())

    assert result.stderr == "line 1: line: got a longer one, expected at most 16777216 bytes up to the line's end\n"
    assert set(world.rows) == {"j1"}


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


# -- CSV

CSV = b'id,match,object,when\r\nj1,m1,replays/1,2026-11-30T12:00:00Z\r\nj2,"m, ""2""",replays/2,\r\n'
MAPPED = (
    *("--job-class", CLASS, "--map", "job_id=id", "--map", "match_id=match"),
    *("--map", "payload.replay_key=object", "--map", "due=when"),
)


def test_csv_columns_are_mapped_by_options(world: World, submit: Callable[..., Result]) -> None:
    result = submit(b"\xef\xbb\xbf" + CSV, *MAPPED, name="matches.csv")

    assert (result.exit_code, result.stderr) == (0, "")
    assert world.rows["j1"].payload == '{"replay_key":"replays/1"}'
    assert world.rows["j1"].due_ms == 1_796_040_000_000
    assert world.rows["j2"].match_id == 'm, "2"'


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (b"j3,m3\n", "line 4: row: got 2 columns, expected 4, as in the header"),
        (b'j3,m3,"k"x,\n', "line 4: row: got a quote in the wrong place, expected CSV with quotes in pairs"),
        (b'j3,"m3,k,\n', "line 4: row: got a quote that is never closed, expected CSV with quotes in pairs"),
        (
            b'j3,"m3,k,\nj4,m4,k,\n',
            "line 4: row: got a quote that is never closed, in lines 4 to 5, expected CSV with quotes in pairs",
        ),
        (b"j3,m3,k,soon\n", f"line 4: due: got other text, {DUE_EXPECTED}"),
        (b"j3,\xff,k,\n", "line 4: line: got bytes that are not UTF-8, expected UTF-8 text"),
        (b",m3,k,\n", f"line 4: job_id: got an empty string, {ID_EXPECTED}"),
    ],
)
def test_a_bad_csv_record_is_reported(world: World, submit: Callable[..., Result], bad: bytes, sentence: str) -> None:
    result = submit(CSV + bad, *MAPPED, name="matches.csv")

    assert (result.exit_code, result.stderr) == (1, sentence + "\n")
    assert set(world.rows) == {"j1", "j2"}


@pytest.mark.parametrize(
    ("header", "options", "sentence"),
    [
        (b"id,match_id,payload", (), "job_id: got no such column, expected one, or --map job_id=COLUMN; the columns"),
        (b"job_id,match_id,payload", (), "job_class: got no such column, expected one, or --map job_class=COLUMN"),
        (b"job_id,job_id,payload", (), 'header: got the column "job_id" twice, expected each column once'),
        (
            b"job_id,match_id,payload,job_class",
            ("--map", "due=wen"),
            "--map due: got a column that is not there, expected a column's name",
        ),
        (b"job_id", ("--map", "due"), "--map: got other text, expected FIELD=COLUMN, FIELD one of"),
        (
            b"job_id",
            ("--map", "payload=a", "--map", "payload.b=c"),
            "--map: got payload and parts of it, expected one or the other",
        ),
        (b"job_id", ("--delimiter", ";;"), "--delimiter: got a string of 2 characters, expected one character, or \\t"),
        (
            b'"job_id',
            (),
            "header: got a quote that is never closed, in lines 1 to 2, expected CSV with quotes in pairs",
        ),
    ],
)
def test_a_header_that_does_not_fit_is_refused_before_anything_is_read(
    world: World, submit: Callable[..., Result], header: bytes, options: tuple[str, ...], sentence: str
) -> None:
    result = submit(header + b"\nj1,m1,1\n", *options, name="jobs.csv")

    assert (result.exit_code, world.rows) == (2, {})
    assert result.stderr.startswith(f"error: {sentence}")
    assert result.stderr.count("\n") == 1


def test_tabs_and_payloads_in_json(world: World, submit: Callable[..., Result]) -> None:
    content = f'job_id\tjob_class\tmatch_id\tpayload\nj1\t{CLASS}\tm1\t"{{""n"": [1]}}"\n'.encode()

    assert submit(content, name="jobs.tsv").exit_code == 0
    assert world.rows["j1"].payload == '{"n": [1]}'


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
    assert "--from-line 2401" in result.stdout
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
    assert "The ledger did not answer in time. throttled Trying again in 1 s (attempt 1 of 5)." in result.stderr


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
