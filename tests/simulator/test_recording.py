"""A recorded day is read exactly, and whatever is wrong with it has a defined outcome."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.simulator.recording import Columns, Recording, read_recording
from ops.simulator.replay import Options, Replay
from shared.errors import InvalidInput

HOUR = Path(__file__).resolve().parents[3] / "shared" / "data" / "llm-inference-hour.csv"
COLUMNS = Columns(time="at", tokens=("in", "out"), match="game")


def read(tmp_path: Path, text: str, name: str = "day.csv", columns: Columns = COLUMNS) -> Recording:
    path = tmp_path / name
    path.write_bytes(text.encode())
    return read_recording(path, columns)


def fault(tmp_path: Path, text: str, name: str = "day.csv", columns: Columns = COLUMNS) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, text, name, columns)
    said = str(caught.value)
    assert "\n" not in said
    return said


def test_a_row_of_csv_is_a_job_at_its_moment(tmp_path: Path) -> None:
    recording = read(
        tmp_path, "at,in,out,game\r\n2023-11-16 18:17:03.9799600,4808,10,m1\r\n2023-11-16T18:17:04Z,1,2,m2"
    )

    first, second = recording.rows
    assert (first.line, first.input_tokens, first.output_tokens, first.match) == (2, 4808, 10, "m1")
    assert second.at_us - first.at_us == 20_040
    assert recording.notes == ()


def test_json_lines_reach_into_objects_and_may_lack_tokens_and_match(tmp_path: Path) -> None:
    first, second = (
        '{"due": "2026-11-30T12:00:00Z", "payload": {"n": 7}}',
        '{"due": "2026-11-30T13:00:00+01:00", "payload": {"n": 8}}',
    )
    recording = read(tmp_path, f"{first}\n\n{second}\n", "jobs.jsonl", Columns(time="due", tokens=("payload.n",)))

    assert [(row.line, row.input_tokens, row.match) for row in recording.rows] == [(1, 7, None), (3, 8, None)]
    assert recording.same_time == 1


@pytest.mark.parametrize(
    ("written", "at_us"),
    [
        ("1700000000", 1_700_000_000_000_000),  # seconds
        ("1700000000.25", 1_700_000_000_250_000),
        ("1700000000250", 1_700_000_000_250_000),  # milliseconds
        ("2023-11-14T22:13:20", 1_700_000_000_000_000),  # without an offset: UTC
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000_000),
    ],
)
def test_times_are_iso_8601_or_seconds_or_milliseconds(tmp_path: Path, written: str, at_us: int) -> None:
    assert read(tmp_path, f"at,in,out,game\n{written},1,1,m").rows[0].at_us == at_us


def test_rows_out_of_order_are_sorted_with_a_note(tmp_path: Path) -> None:
    recording = read(tmp_path, "at,in,out,game\n30,3,0,m\n10,1,0,m\n20,2,0,m\n")

    assert [row.input_tokens for row in recording.rows] == [1, 2, 3]
    assert recording.out_of_order == 1
    assert recording.notes == ("1 of 3 rows came before the row above them: sorted by at",)


def test_equal_times_are_all_kept_in_the_order_of_the_file_with_a_note(tmp_path: Path) -> None:
    recording = read(tmp_path, "at,in,out,game\n10,1,0,m\n10,2,0,m\n10,1,0,m\n")

    assert [row.input_tokens for row in recording.rows] == [1, 2, 1]
    assert recording.same_time == 2
    assert recording.notes == ("2 of 3 rows have the same at as another: all are kept",)


@pytest.mark.parametrize(
    ("body", "line", "column"),
    [
        (",1,1,m", 2, "at"),  # missing
        ("10,1,1,m\nyesterday,1,1,m", 3, "at"),
        ("10,1,1,m\n2023-13-01,1,1,m", 3, "at"),
        ("99999999999999999,1,1,m", 2, "at"),
        ("-5,1,1,m", 2, "at"),
        ("10,,1,m", 2, "in"),
        ("10,1,-1,m", 2, "out"),
        ("10,1,1.5,m", 2, "out"),
        ("10,1,99999999999,m", 2, "out"),
        ("10,1,1,", 2, "game"),
        ("10,1,1", 2, "line"),  # a column too few
        ('10,1,1,"m', 2, "line"),
        ("10,1,1,m\n20,1,1,m\n253370764800,1,1,m", 4, "at"),  # the year 9999 among the seventies
    ],
)
def test_a_bad_row_is_named_by_line_and_column(tmp_path: Path, body: str, line: int, column: str) -> None:
    assert fault(tmp_path, f"at,in,out,game\n{body}\n").startswith(f"line {line}, {column}: got ")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"in": 1}', "line 1, at: got nothing"),
        ('{"at": null}', "line 1, at: got nothing"),
        ('{"at": true}', "line 1, at: got a "),
        ('{"at": 1e400}', "line 1, at: got a number out of range"),
        ("[1]", "line 1, line: got an array"),
        ('{"at": 1}\n{"at"', "line 2, line: got text that is not JSON"),
        ('{"at": 1}\n{"at": 2, "at": 3}', "line 2, at: got the same key twice, expected each key once"),
        ('{"at": 1, "payload": {"a b": 2, "a b": 2}}', 'line 1, "a b": got the same key twice'),
    ],
)
def test_a_bad_json_line_is_named_by_line_and_column(tmp_path: Path, body: str, said: str) -> None:
    assert fault(tmp_path, body, "jobs.jsonl", Columns(time="at")).startswith(said)


@pytest.mark.parametrize(
    ("match", "said"),
    [
        ('"\\ud800"', "line 2, game: got a string with a lone surrogate, expected well-formed Unicode"),
        ('"a\\u0000b"', "line 2, game: got a string with a NUL character, expected text without one"),
        (f'"{"ä" * 510}"', "line 2, game: got 1,020 bytes, expected text of 1 to 1,018 bytes, or a whole number"),
        ('""', "line 2, game: got nothing"),
        ("1.5", "line 2, game: got a number"),
    ],
)
def test_a_match_that_admission_would_refuse_is_named_by_line_and_column(tmp_path: Path, match: str, said: str) -> None:
    body = '{"at": 1, "game": 7}\n{"at": 2, "game": ' + match + "}\n"
    assert fault(tmp_path, body, "jobs.jsonl", Columns(time="at", match="game")).startswith(said)


def test_the_longest_match_that_is_read_is_admitted(tmp_path: Path) -> None:
    recording = read(tmp_path, f"at,in,out,game\n1,1,1,{'x' * 1018}\n")
    run = Replay(recording, Options(limit_per_s=5.0), 1)
    run.run()
    assert run.finish().figures.done == 1


def test_a_time_is_not_cut_until_it_can_be_read(tmp_path: Path) -> None:
    text = "2023-11-14T22:13:20." + "0" * 44
    assert fault(tmp_path, f"at,in,out,game\n{text}junk,1,1,m\n").startswith("line 2, at: got more than 64 characters")


def test_a_column_that_is_not_there_is_named_with_its_option_before_any_row(tmp_path: Path) -> None:
    said = fault(tmp_path, "TIMESTAMP,ContextTokens\nbad,bad\n", columns=Columns(time="TIMESTAMPS"))

    assert said == ('--time: got "TIMESTAMPS", which is no column, expected a column\'s name; did you mean TIMESTAMP?')
    assert "twice" in fault(tmp_path, "at,at\n1,1\n", columns=Columns(time="at"))


@pytest.mark.parametrize("text", ["", "at,in,out,game\n", "\n\n"])
def test_a_recording_without_rows_is_refused(tmp_path: Path, text: str) -> None:
    assert fault(tmp_path, text).startswith("FILE: got no rows")


def test_a_value_is_never_quoted_in_a_fault(tmp_path: Path) -> None:
    assert "canary" not in fault(tmp_path, "at,in,out,game\ncanary,1,1,m\n")
    assert "canary" not in fault(tmp_path, "at,in,out,game\n10,canary,1,m\n")


@pytest.mark.skipif(not HOUR.exists(), reason="the recorded hour is not part of the project")
def test_the_recorded_hour_is_read_as_it_is() -> None:
    recording = read_recording(HOUR, Columns(time="TIMESTAMP", tokens=("ContextTokens", "GeneratedTokens")))

    assert len(recording.rows) == 8_819
    assert recording.notes == ()
    assert round(recording.span_s) == 3_436
    assert sum(row.input_tokens for row in recording.rows) == 18_059_974
