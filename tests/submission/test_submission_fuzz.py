"""Whatever a file holds, reading it ends in rows and declared faults, never in another exception."""

from __future__ import annotations

import io
import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from ops.submission.csv_rows import CsvShape
from ops.submission.json_lines import Lines, fields_of
from ops.submission.rows import FIELDS, Row, due_ms
from ops.submission.source import Format, rows_of
from shared.domain.job import NewJob
from shared.errors import InvalidInput

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.sampled_from(FIELDS) | st.text(), JSON, max_size=8).map(json.dumps)
PIECES = st.lists(
    st.sampled_from([*'{}[]",:\\\n\r\t 0e-', '"job_id"', '"payload"', "NaN", "\\ud800", "é"]), max_size=40
)
LINES = st.one_of(st.text(), OBJECTS, PIECES.map("".join))


def rows(content: bytes, file_format: Format, shape: CsvShape | None = None) -> list[Row]:
    return list(rows_of(Lines(io.BytesIO(content)), file_format, shape or CsvShape()))


@given(LINES)
def test_a_line_is_an_object_s_fields_or_a_declared_fault(line: str) -> None:
    try:
        fields = fields_of(line)
    except InvalidInput:
        return
    assert set(fields) <= set(FIELDS)
    assert set(json.loads(line)) == set(fields), "what we can read, json reads the same way"


@given(st.binary() | st.lists(OBJECTS).map("\n".join).map(str.encode))
def test_json_lines_of_any_bytes(content: bytes) -> None:
    try:
        read = rows(content, Format.JSONL)
    except InvalidInput:  # of the whole: UTF-16 or compressed
        return
    assert all(isinstance(row.job, NewJob | InvalidInput) for row in read)
    assert [row.number for row in read] == sorted({row.number for row in read})


@given(st.binary() | PIECES.map("".join).map(str.encode), st.sampled_from(list(",;\t|x ")))
def test_csv_of_any_bytes_after_a_header(body: bytes, delimiter: str) -> None:
    header = delimiter.join(("job_id", "match_id", "payload", "due", "priority")).encode()
    shape = CsvShape(columns={}, delimiter=delimiter, default_class="c")
    for row in rows(header + b"\n" + body, Format.CSV, shape):
        assert isinstance(row.job, NewJob | InvalidInput)
        assert row.number >= 2


@given(st.binary())
def test_csv_with_any_bytes_for_a_header(content: bytes) -> None:
    try:
        read = rows(content, Format.CSV)
    except InvalidInput:
        return
    assert all(isinstance(row.job, NewJob | InvalidInput) for row in read)


@given(st.text() | st.datetimes(timezones=st.timezones() | st.none()).map(lambda each: each.isoformat()) | JSON)
def test_a_due_time_is_a_number_or_a_declared_fault(value: object) -> None:
    with suppress(InvalidInput):
        assert isinstance(due_ms(value), int)
