"""CSV: a header, then one job a record. Options say which column is which field."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, field

from ops.submission.json_lines import MAX_LINE_BYTES, NumberedLine
from ops.submission.rows import FIELDS, Row, new_job
from shared.domain.job import NewJob
from shared.domain.keys import did_you_mean, shown
from shared.errors import InvalidInput

PART: Final = "payload."
"""`payload.size=bytes` puts the column `bytes` under the key `size` of the payload, as a string."""

_REQUIRED: Final = ("job_id", "job_class", "match_id", "payload")
_OPTIONAL: Final = ("due", "priority")
"""Fields that a column, an option or a default has to give, and those that may be left out."""


class CsvShape(Struct, frozen=True, kw_only=True):
    """`columns` maps a field, or a part of the payload, to its column. A field that it leaves out has its own name."""

    columns: Mapping[str, str] = field(default_factory=dict)
    delimiter: str = ","
    default_class: str | None = None


def csv_rows(lines: Iterable[NumberedLine], shape: CsvShape) -> Iterator[Row]:
    """A row per record, with the number of its first line. Raises `InvalidInput` for the header: nothing is read then.

    A record may span lines inside quotes, so a quote that is not closed takes the lines after it into its own fault.
    """
    csv.field_size_limit(MAX_LINE_BYTES)
    feed = _Feed(lines)
    reader = csv.reader(feed, strict=True, delimiter=shape.delimiter)
    places: dict[str, int] | None = None
    width = 0
    while True:
        feed.begin()
        cells: list[str] | InvalidInput
        try:
            cells = next(reader)
        except StopIteration:
            yield from feed.take_faults()
            return
        except csv.Error as error:
            cells = InvalidInput("row", got=_broken(str(error), feed), expected="CSV with quotes in pairs")
        faults = feed.take_faults()
        if any(fault.number > feed.first > 0 for fault in faults):  # without that line it would be another record
            cells = InvalidInput("row", got="a record with an unreadable line in it", expected="text on all its lines")
        yield from faults
        if not cells:
            continue
        if places is None:
            if isinstance(cells, InvalidInput):
                raise InvalidInput("header", got=cells.got, expected=cells.expected)
            places, width = _places(cells, shape), len(cells)
        else:
            yield Row(number=feed.first, job=_job(cells, places, width=width, shape=shape))


class _Feed:
    """The lines for the reader, which only takes text: those that are none are kept aside."""

    def __init__(self, lines: Iterable[NumberedLine]) -> None:
        self._lines = iter(lines)
        self._faults: list[Row] = []
        self.first = self.last = 0

    def begin(self) -> None:
        """A record begins with the next line."""
        self.first = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        for number, line in self._lines:
            if isinstance(line, str):
                self.first, self.last = self.first or number, number
                return line
            self._faults.append(Row(number=number, job=line))
        raise StopIteration

    def take_faults(self) -> list[Row]:
        taken, self._faults = self._faults, []
        return taken


def _broken(message: str, feed: _Feed) -> str:
    what = "a quote that is never closed" if "end of data" in message else "a quote in the wrong place"
    if "new-line character" in message:
        what = "a bare carriage return"
    if "field limit" in message:
        what = "a cell that is too long, or a quote that is never closed"
    return what if feed.first == feed.last else f"{what}, in lines {feed.first} to {feed.last}"


def _places(header: list[str], shape: CsvShape) -> dict[str, int]:
    """Field, or part of the payload, -> position of its column."""
    names = [name.strip() for name in header]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInput("header", got=f"the column {shown(twice[0])} twice", expected="each column once")
    wanted = dict(shape.columns)
    for name in FIELDS:
        if name not in wanted and name in names and not (name == "payload" and _parts(wanted)):
            wanted[name] = name
    for name in _REQUIRED:
        given = (
            name in wanted or (name == "payload" and _parts(wanted)) or (name == "job_class" and shape.default_class)
        )
        if not given:
            hint = did_you_mean(name, names) or f"; the columns are {', '.join(map(shown, names[:20]))}"
            raise InvalidInput(name, got="no such column", expected=f"one, or --map {name}=COLUMN{hint}")
    for name, column in wanted.items():
        if column not in names:
            hint = did_you_mean(column, names) or f"; the columns are {', '.join(map(shown, names[:20]))}"
            raise InvalidInput(f"--map {name}", got="a column that is not there", expected=f"a column's name{hint}")
    return {name: names.index(column) for name, column in wanted.items()}


def _parts(wanted: Iterable[str]) -> list[str]:
    return [name for name in wanted if name.startswith(PART)]


def _job(
    cells: list[str] | InvalidInput, places: Mapping[str, int], *, width: int, shape: CsvShape
) -> NewJob | InvalidInput:
    if isinstance(cells, InvalidInput):
        return cells
    if len(cells) != width:
        return InvalidInput("row", got=f"{len(cells)} columns", expected=f"{width}, as in the header")
    try:
        return new_job(_values(cells, places), default_class=shape.default_class)
    except InvalidInput as fault:
        return fault


def _values(cells: list[str], places: Mapping[str, int]) -> dict[str, Any]:
    """An empty cell is an optional field that is not there; the payload is JSON text, or built of its parts."""
    values: dict[str, Any] = {}
    for name, place in places.items():
        cell = cells[place]
        if not name.startswith(PART) and not (name in (*_OPTIONAL, "job_class") and cell == ""):
            values[name] = cell
    if "priority" in values:
        values["priority"] = _whole(values["priority"])
    parts = {name.removeprefix(PART): cells[places[name]] for name in _parts(places)}
    if parts:
        values["payload"] = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return values


def _whole(cell: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}", cell):
        raise InvalidInput("priority", got="other text", expected="a whole number")
    return int(cell)
