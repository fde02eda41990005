"""The file or the pipe that jobs come from, and how it is read: once, or twice for --strict."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final

from msgspec import Struct

from ops.submission.csv_rows import CsvShape, csv_rows
from ops.submission.json_lines import Lines, json_rows
from ops.submission.rows import Row
from shared.errors import InvalidInput

PIPE: Final = "-"
"""The name of standard input and standard output."""


class Format(StrEnum):
    """How jobs are written down in a file."""

    JSONL = "jsonl"
    CSV = "csv"


class Source(Struct, frozen=True, kw_only=True):
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
