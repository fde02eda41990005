"""A recorded day: CSV or JSON lines whose columns say when a job came, how large it was, and which match it is of.

The outcome of bad times is defined: a time that is missing or not readable is refused by line and column; rows out of
order are sorted, and a note says how many; equal times are kept, in the order of the file.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from msgspec import Struct

from ops.submission.json_lines import MAX_LINE_BYTES, Lines, NumberedLine
from shared.domain.json_text import kind_of
from shared.domain.keys import did_you_mean, dotted, shown
from shared.errors import InvalidInput
from shared.submit.validation import MAX_ID_BYTES

MAX_ROWS: Final = 1_000_000
"""Rows are kept in memory: more are refused before it is full."""

MAX_DAYS: Final = 31
"""Every minute of a recording is simulated, so one wrong year among good ones would never end."""

MAX_TOKENS: Final = 10_000_000
"""Of one job: above any context that an upstream takes."""

MATCH_PREFIX: Final = "match-"
"""Before a recorded match, in the id of its jobs' match."""

_MATCH_BYTES: Final = MAX_ID_BYTES - len(MATCH_PREFIX)

# What is expected of a column, for the messages about values that are not.
_MATCH: Final = f"text of 1 to {_MATCH_BYTES:,} bytes, or a whole number"
_TIME: Final = "ISO 8601 (UTC unless it has an offset), or seconds or milliseconds since 1970"
_TOKENS: Final = f"a whole number from 0 to {MAX_TOKENS}"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_MILLISECONDS_FROM: Final = 1e11
"""As seconds this is the year 5138, as milliseconds 1973: a number above it is taken as milliseconds."""


class Columns(Struct, frozen=True, kw_only=True):
    """Which column is what. A dot leads into an object of a JSON line: `payload.tokens`.

    `tokens` are one or two columns: what goes into the upstream, and what comes out of it.
    """

    time: str
    tokens: tuple[str, ...] = ()
    match: str | None = None


class Recorded(Struct, frozen=True, kw_only=True):
    """One row of a recording: a job. `match` is None where the recording has none: the job is a match of its own."""

    line: int
    at_us: int
    input_tokens: int = 0
    output_tokens: int = 0
    match: str | None = None

    @property
    def at_ms(self) -> int:
        return self.at_us // 1000


class Recording(Struct, frozen=True, kw_only=True):
    """In the order of time. `notes` say what was not as it should be and what was done about it."""

    name: str
    rows: tuple[Recorded, ...]
    notes: tuple[str, ...] = ()
    out_of_order: int = 0
    same_time: int = 0

    @property
    def span_s(self) -> float:
        return (self.rows[-1].at_ms - self.rows[0].at_ms) / 1000


def read_recording(path: Path, columns: Columns) -> Recording:
    """Raises `InvalidInput` at the first bad line: one line of text with the file's line and the column."""
    try:
        stream = path.open("rb")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = (getattr(error, "strerror", None) or "no file name").lower()
        raise InvalidInput("FILE", got=reason, expected="a file that can be read") from None
    with stream:
        lines, kind = Lines(stream), path.suffix.lower()
        if kind in (".csv", ".tsv"):
            return _recording(path.name, _csv(lines, columns, delimiter="\t" if kind == ".tsv" else ","), columns)
        return _recording(path.name, _json_lines(lines), columns)


def _recording(name: str, lines: Iterable[_Line], columns: Columns) -> Recording:
    rows: list[Recorded] = []
    for line in lines:
        if len(rows) == MAX_ROWS:
            raise InvalidInput("FILE", got=f"more than {MAX_ROWS:,} rows", expected="fewer")
        rows.append(_row(line, columns))
    if not rows:
        raise InvalidInput("FILE", got="no rows", expected="at least one")
    late = sum(after.at_us < before.at_us for before, after in pairwise(rows))
    rows.sort(key=lambda row: row.at_us)  # stable: equal times stay in the order of the file
    same = sum(after.at_us == before.at_us for before, after in pairwise(rows))
    _check_span(rows, columns.time)
    notes = []
    if late:
        notes.append(f"{late:,} of {len(rows):,} rows came before the row above them: sorted by {columns.time}")
    if same:
        notes.append(f"{same:,} of {len(rows):,} rows have the same {columns.time} as another: all are kept")
    return Recording(name=name, rows=tuple(rows), notes=tuple(notes), out_of_order=late, same_time=same)


def _check_span(rows: list[Recorded], column: str) -> None:
    day_ms = 86_400_000
    middle_ms = rows[len(rows) // 2].at_ms
    for row in (rows[0], rows[-1]):
        if abs(row.at_ms - middle_ms) > MAX_DAYS * day_ms:
            days = f"a time {abs(row.at_ms - middle_ms) // day_ms:,} days from the others"
            _refuse(row.line, column, days, f"a recording of at most {MAX_DAYS} days")


# -- one row


class _Line(NamedTuple):
    """A line's number, and its columns' values: text of CSV, anything of JSON."""

    number: int
    values: Mapping[str, Any]

    def get(self, column: str) -> Any:
        """None and nothing written are the same: no value."""
        value: Any = self.values
        for part in [column] if column in self.values else column.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return None if value == "" else value


def _row(line: _Line, columns: Columns) -> Recorded:
    input_tokens, output_tokens, *_ = [*(_count(line, column) for column in columns.tokens), 0, 0]
    return Recorded(
        line=line.number,
        at_us=_time_us(line, columns.time),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        match=None if columns.match is None else _match(line, columns.match),
    )


def _time_us(line: _Line, column: str) -> int:
    value = line.get(column)
    if isinstance(value, str) and not re.fullmatch(r"[0-9]{1,16}(\.[0-9]{1,12})?", value):
        return _moment_us(line.number, column, value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        _refuse(line.number, column, _kind(value), _TIME)
    number = float(value) if abs(float(value)) < math.inf else -1.0
    ms = number if number >= _MILLISECONDS_FROM else number * 1000
    if not 0 <= ms < _MILLISECONDS_FROM * 100:
        _refuse(line.number, column, "a number out of range", _TIME)
    return round(ms * 1000)


def _moment_us(line: int, column: str, text: str) -> int:
    if len(text) > 64:
        _refuse(line, column, "more than 64 characters", _TIME)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        _refuse(line, column, "other text", _TIME)
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _count(line: _Line, column: str) -> int:
    value = line.get(column)
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,12}", value):
        value = int(value)
    if type(value) is not int or not 0 <= value <= MAX_TOKENS:
        got = "nothing" if value is None else "other text" if type(value) is str else shown(value)
        _refuse(line.number, column, got, _TOKENS)
    return value


def _match(line: _Line, column: str) -> str:
    """What admission would refuse is refused here, where the line is known."""
    value = line.get(column)
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        _refuse(line.number, column, _kind(value), _MATCH)
    text = str(value)
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        _refuse(line.number, column, "a string with a lone surrogate", "well-formed Unicode")
    if size > _MATCH_BYTES:
        _refuse(line.number, column, f"{size:,} bytes", _MATCH)
    if "\0" in text:
        _refuse(line.number, column, "a string with a NUL character", "text without one")
    return text


def _kind(value: Any) -> str:
    return "nothing" if value is None else kind_of(value)


def _refuse(line: int, column: str, got: str, expected: str) -> NoReturn:
    raise InvalidInput(f"line {line}, {column}", got=got, expected=expected)


# -- formats


class _Twice(Exception):
    """A key that an object has twice: which of its values was meant, nobody can know."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise _Twice(key)
        values[key] = value
    return values


def _json_lines(lines: Iterable[NumberedLine]) -> Iterator[_Line]:
    for number, text in _texts(lines):
        if text.strip():
            try:
                value = json.loads(text, object_pairs_hook=_distinct)
            except _Twice as twice:
                _refuse(number, dotted(str(twice)), "the same key twice", "each key once")
            except (ValueError, RecursionError):
                _refuse(number, "line", "text that is not JSON", "one JSON object on the line")
            if not isinstance(value, dict):
                _refuse(number, "line", kind_of(value), "one JSON object on the line")
            yield _Line(number, value)


def _csv(lines: Iterable[NumberedLine], columns: Columns, *, delimiter: str) -> Iterator[_Line]:
    """A row may go over several lines, and is known by its first one."""
    csv.field_size_limit(MAX_LINE_BYTES)
    reader = csv.reader((text for _, text in _texts(lines)), strict=True, delimiter=delimiter)
    header: list[str] = []
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            _refuse(number, "line", "a quote that is not closed or stands in the wrong place", "CSV")
        if not cells:
            continue
        if not header:
            header = [cell.strip() for cell in cells]
            _check_header(header, columns)
        elif len(cells) != len(header):
            _refuse(number, "line", f"{len(cells)} columns", f"{len(header)}, as in the header")
        else:
            yield _Line(number, dict(zip(header, cells, strict=True)))


def _texts(lines: Iterable[NumberedLine]) -> Iterator[tuple[int, str]]:
    for number, line in lines:
        if isinstance(line, InvalidInput):
            _refuse(number, line.field, line.got, line.expected)
        yield number, line


def _check_header(header: list[str], columns: Columns) -> None:
    options = {columns.time: "--time", **dict.fromkeys(columns.tokens, "--tokens")}
    if columns.match is not None:
        options[columns.match] = "--match"
    for column, option in options.items():
        if header.count(column) > 1:
            raise InvalidInput(f"header, {column}", got="the column twice", expected="each column once")
        if column not in header:
            hint = did_you_mean(column, header) or f"; the columns are {', '.join(map(shown, header[:20]))}"
            raise InvalidInput(option, got=f"{shown(column)}, which is no column", expected=f"a column's name{hint}")
