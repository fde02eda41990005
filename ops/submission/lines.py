"""A byte stream -> numbered lines of text, one at a time, however long or broken a line is."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import BinaryIO, Final, TypeAlias

from shared.errors import InvalidInput

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""Above any payload that could be accepted; a file without line ends must not be read into memory whole."""

_SKIP_BYTES: Final = 1024 * 1024

_OTHERS: Final = (
    (codecs.BOM_UTF32_LE, "UTF-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
    (b"\x1f\x8b", "a gzip file"),
)

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
