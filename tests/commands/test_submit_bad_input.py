"""`submit` and bad input: each row of the table is one line of a file, and the sentence that an engineer gets."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from click.testing import Result

from tests.architecture import ROOT
from tests.commands.world import DUE_EXPECTED, ID_EXPECTED, World, line

# -- bad input: each line of the table is one line of a file, and the sentence that it gets


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
    (line(due="2026-11-30T12:00:00Z" + " " * 60), f"due: got more than 64 characters, {DUE_EXPECTED}"),
    (line(due="2026-11-30T12:00:00." + "0" * 38 + "+00:00:01"), f"due: got more than 64 characters, {DUE_EXPECTED}"),
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
    (raw("{'n': 1}"), "line: got text that is not JSON at column 72, expected one JSON object on the line"),
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


each_bad_line = pytest.mark.parametrize(
    ("bad", "sentence"), BAD_LINES, ids=[sentence[:60] for _, sentence in BAD_LINES]
)


@each_bad_line
def test_a_bad_line_is_reported_and_the_good_ones_are_kept(
    world: World, submit: Callable[..., Result], bad: bytes, sentence: str
) -> None:
    result = submit(line(job_id="before") + bad.rstrip(b"\n") + b"\n" + line(job_id="after"))

    assert result.stderr == f"line 2: {sentence}\n"
    assert result.exit_code == 1
    assert "2 created, 0 already there, 1 refused" in result.stdout
    assert set(world.rows) == {"before", "after"}


@each_bad_line
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


def test_the_messages_in_the_documentation_are_the_real_ones() -> None:
    text = (ROOT / "docs" / "submit.md").read_text(encoding="utf-8")
    documented = [found.rstrip("…").rstrip() for found in re.findall(r"`line 2: ([^`]+)`", text)]
    real = {sentence for _, sentence in BAD_LINES}

    assert len(documented) > 10
    assert [each for each in documented if not any(sentence.startswith(each) for sentence in real)] == []
