"""`submit` and CSV: which column is which field, and what a record that is none becomes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import Result

from tests.commands.world import CLASS, DUE_EXPECTED, ID_EXPECTED, World

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


def test_a_record_is_not_created_without_a_line_of_its_own(world: World, submit: Callable[..., Result]) -> None:
    torn = b'job_id,job_class,match_id,payload\nj1,replays,m1,"[""a"",\n\xff\n""b""]"\nj2,replays,m,1\n'
    result = submit(torn, name="torn.csv")

    assert "line 2: row: got a record with an unreadable line in it" in result.stderr
    assert set(world.rows) == {"j2"}


def test_tabs_and_payloads_in_json(world: World, submit: Callable[..., Result]) -> None:
    content = f'job_id\tjob_class\tmatch_id\tpayload\nj1\t{CLASS}\tm1\t"{{""n"": [1]}}"\n'.encode()

    assert submit(content, name="jobs.tsv").exit_code == 0
    assert world.rows["j1"].payload == '{"n": [1]}'
