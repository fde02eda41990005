"""What a line says of a job, whatever its format: the field names, and the values that need more than a type.

The file or the pipe that jobs come from, and how it is read: once, or twice for --strict.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Final

from ops.submission.csv_rows import CsvShape, csv_rows
from ops.submission.json_lines import Lines, json_rows
from shared.domain.config_rules import did_you_mean, shown
from shared.domain.job import NewJob
from shared.domain.json_text import kind_of
from shared.errors import InvalidInput

FIELDS: Final = ("job_id", "job_class", "match_id", "payload", "due", "priority")

_EXPECTED: Final[Mapping[str, str]] = {
    "job_id": "an id of the job's own",
    "job_class": "a class of sluice.toml, here or with --job-class",
    "match_id": "the id whose jobs run in series",
    "payload": "a JSON value",
}

_DUE: Final = "ISO 8601 with an offset, like 2026-11-30T12:00:00Z or 2026-11-30T13:00:00+01:00"

_LONGEST_DUE: Final = 64

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job as the line with this number says it, or what is wrong with that line."""

    number: int
    job: NewJob | InvalidInput


def new_job(values: Mapping[str, Any], *, default_class: str | None) -> NewJob:
    """The job that the fields describe; `payload` is JSON text. Raises `InvalidInput` for a field that is not there,
    not known or, like a due time, not readable. Everything else is judged at admission, as for every producer."""
    known = {"job_class": default_class} | dict(values) if default_class else values
    for name in _EXPECTED:
        if name not in known:
            raise InvalidInput(name, got="nothing", expected=_EXPECTED[name])
    due = known.get("due")
    return NewJob(
        job_id=known["job_id"],
        job_class=known["job_class"],
        match_id=known["match_id"],
        payload=known["payload"],
        due_ms=None if due is None else due_ms(due),
        priority=known.get("priority", 0),
    )


def unknown_field(name: str) -> InvalidInput:
    expected = f"one of {', '.join(FIELDS)}{did_you_mean(name, FIELDS)}"
    return InvalidInput(shown(name), got="an unknown field", expected=expected)


def due_ms(value: object) -> int:
    """Milliseconds since 1970, UTC. A time without an offset means another moment on another machine: refused."""
    if not isinstance(value, str):
        raise InvalidInput("due", got=kind_of(value), expected=_DUE)
    if re.match(r"[+-]?[0-9]{5,}-", value):
        raise InvalidInput("due", got="a year of more than four digits", expected=_DUE)
    if len(value) > _LONGEST_DUE:
        raise InvalidInput("due", got=f"more than {_LONGEST_DUE} characters", expected=_DUE)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise InvalidInput("due", got="other text" if value else "an empty string", expected=_DUE) from None
    if moment.tzinfo is None:
        raise InvalidInput("due", got="a time without an offset", expected=_DUE)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


PIPE: Final = "-"


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An open stream. `size_bytes` is None where nobody knows: a pipe."""

    name: str
    stream: BinaryIO
    size_bytes: int | None

    def rewind(self) -> None:
        self.stream.seek(0)


@contextmanager
def opened(name: str, *, rewindable: bool) -> Iterator[Source]:
    """`-` is standard input. What cannot be read twice, but must be, is written to a temporary file first."""
    if name == PIPE:
        with _streamed("standard input", sys.stdin.buffer, rewindable=rewindable) as source:
            yield source
        return
    with _open(Path(name)) as stream:
        if stream.seekable():
            yield Source(name=name, stream=stream, size_bytes=Path(name).stat().st_size)
        else:  # a named pipe, or a shell's <(...)
            with _streamed(name, stream, rewindable=rewindable) as source:
                yield source


@contextmanager
def _streamed(name: str, stream: BinaryIO, *, rewindable: bool) -> Iterator[Source]:
    if not rewindable:
        yield Source(name=name, stream=stream, size_bytes=None)
        return
    with tempfile.TemporaryFile(prefix="sluice-submit-") as spool:
        shutil.copyfileobj(stream, spool)
        size = spool.tell()
        spool.seek(0)
        yield Source(name=name, stream=spool, size_bytes=size)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = (getattr(error, "strerror", None) or "no file name").lower()
        raise InvalidInput("FILE", got=reason, expected="a file that can be read, or - for standard input") from None


def format_of(name: str, asked: Format | None) -> Format:
    """By the option, else by the name's end."""
    return asked or (Format.CSV if Path(name).suffix.lower() in (".csv", ".tsv") else Format.JSONL)


def rows_of(lines: Lines, file_format: Format, shape: CsvShape) -> Iterator[Row]:
    if file_format is Format.CSV:
        return csv_rows(lines, shape)
    return json_rows(lines, default_class=shape.default_class)
