"""JSON lines: a byte stream -> numbered lines, however long or broken one is -> one object a line, which is a job.

The payload stays exactly as it is written: it is cut out, not built again. `Lines` is what every reader of lines of a
file shares: submitted jobs, exported ledgers and recordings.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Final, TypeAlias

from ops.submission.rows import FIELDS, Row, new_job, unknown_field
from shared.domain.json_text import MAX_DEPTH, kind_of
from shared.errors import InvalidInput

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""Above any payload that could be accepted; a file without line ends must not be read into memory whole."""

_SKIP_BYTES: Final = 1024 * 1024
"""What is read at once of the rest of a line that is too long."""

_OTHERS: Final = (
    (codecs.BOM_UTF32_LE, "UTF-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
    (b"\x1f\x8b", "a gzip file"),
)
"""How a file begins that is no UTF-8 text, and what it is."""

NumberedLine: TypeAlias = tuple[int, str | InvalidInput]
"""The line's number from 1, and its text with its line end, or what is wrong with it."""


class Lines:
    """`bytes_read` is how far the stream was consumed: what a progress bar shows."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.bytes_read = 0

    def __iter__(self) -> Iterator[NumberedLine]:
        """Raises `InvalidInput` where the stream is no UTF-8 text at all. A byte order mark is left out."""
        number = 0
        while line := self._read(MAX_LINE_BYTES + 1):
            number += 1
            if number == 1:
                _check_kind(line)
                line = line.removeprefix(codecs.BOM_UTF8)
            yield number, self._text(line)

    def _read(self, limit: int) -> bytes:
        line = self._stream.readline(limit)
        self.bytes_read += len(line)
        return line

    def _text(self, line: bytes) -> str | InvalidInput:
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            while (rest := self._read(_SKIP_BYTES)) and not rest.endswith(b"\n"):
                pass
            expected = f"at most {MAX_LINE_BYTES} bytes up to the line's end"
            return InvalidInput("line", got="a longer one", expected=expected)
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError:
            return InvalidInput("line", got="bytes that are not UTF-8", expected="UTF-8 text")


def _check_kind(line: bytes) -> None:
    for mark, kind in _OTHERS:
        if line.startswith(mark):
            raise InvalidInput("file", got=kind, expected="UTF-8 text")


_OBJECT: Final = "one JSON object on the line"
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()


def json_rows(lines: Iterable[NumberedLine], *, default_class: str | None) -> Iterator[Row]:
    """A row per line. Blank lines are skipped."""
    for number, line in lines:
        if isinstance(line, InvalidInput):
            yield Row(number=number, job=line)
        elif line.strip():
            try:
                yield Row(number=number, job=new_job(fields_of(line), default_class=default_class))
            except InvalidInput as fault:
                yield Row(number=number, job=fault)


def fields_of(line: str) -> dict[str, Any]:
    """The object's fields, parsed, the payload as its own text. Raises `InvalidInput` and nothing else."""
    fields: dict[str, Any] = {}
    at = _after_space(line, 0)
    if line[at : at + 1] != "{":
        raise _other_value(line)
    at = _after_space(line, at + 1)
    while line[at : at + 1] != "}":
        name, at = _name(line, at)
        if name in fields:
            raise InvalidInput(name, got="the same key twice", expected="each key once")
        begin = _after_space(line, at)
        value, at = _value(line, begin, name)
        fields[name] = line[begin:at] if name == "payload" else value
        at = _after_space(line, at)
        if line[at : at + 1] == ",":
            at = _after_space(line, at + 1)
            if line[at : at + 1] == "}":
                raise _not_json(line, at)
        elif line[at : at + 1] != "}":
            raise _not_json(line, at)
    end = _after_space(line, at + 1)
    if end != len(line):
        raise _not_json(line, end)
    return fields


def _name(line: str, at: int) -> tuple[str, int]:
    if line[at : at + 1] != '"':
        raise _not_json(line, at)
    try:
        name, at = _DECODER.raw_decode(line, at)
    except ValueError:
        raise _not_json(line, at) from None
    if name not in FIELDS:
        raise unknown_field(name)
    at = _after_space(line, at)
    if line[at : at + 1] != ":":
        raise _not_json(line, at)
    return name, at + 1


def _value(line: str, at: int, name: str) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(line, at)
    except json.JSONDecodeError as error:
        raise _not_json(line, error.pos) from None
    except ValueError:  # Python's own bound on the digits of an integer
        raise InvalidInput(name, got="a number with too many digits", expected="a smaller one") from None
    except RecursionError:
        raise InvalidInput(name, got=f"JSON nested deeper than {MAX_DEPTH} levels", expected="a JSON value") from None


def _other_value(line: str) -> InvalidInput:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        return _not_json(line, error.pos)
    except (ValueError, RecursionError):
        return InvalidInput("line", got="another JSON value", expected=_OBJECT)
    return InvalidInput("line", got=kind_of(value), expected=_OBJECT)


def _not_json(line: str, at: int) -> InvalidInput:
    cut_off = not line[at:].strip()
    got = "an object that is cut off" if cut_off else f"text that is not JSON at column {at + 1}"
    return InvalidInput("line", got=got, expected=_OBJECT)


def _after_space(line: str, at: int) -> int:
    space = _SPACE.match(line, at)
    return at if space is None else space.end()
