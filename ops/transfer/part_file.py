"""Where an export goes: FILE.part until it is whole, with the way back into it beside it, or a pipe.

Files are 0600: payloads and ids are in them and nowhere else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from ops.transfer.format import Header, Tally
from ops.transfer.plain import from_plain, to_plain
from shared.core.values import frozen
from shared.errors import InvalidInput

_EXPECTED: Final = "a new file in a directory that can be written to"


@frozen
class Reached:
    """How far an export is: what has been written, and where the ledger is to be read from. Saved after each page.

    `whole`: the last page is written. `resume` is None then, too, as it is before the first one. `left_out`: jobs that
    have joined ordered matches since the beginning.
    """

    header: Header
    bytes_written: int
    digest: str
    resume: str | None = None
    whole: bool = False
    left_out: int = 0
    counts: Tally = field(default_factory=Tally)


class Sink(Protocol):
    def earlier(self) -> Reached | None:
        """Where an interrupted export of this file stopped."""
        ...

    def write(self, lines: bytes, reached: Reached) -> None: ...

    def finish(self, lines: bytes) -> None: ...


class Pipe:
    """Standard output: nothing to go on from."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def earlier(self) -> Reached | None:
        return None

    def write(self, lines: bytes, reached: Reached) -> None:
        self._stream.write(lines)

    def finish(self, lines: bytes) -> None:
        self._stream.write(lines)
        self._stream.flush()


class PartFile:
    """Lines first, then the state that counts them: what a crash leaves behind the state is cut off.

    `check` reads the whole file before it gets its name. Where it raises, FILE.part stays and is not gone on from.
    """

    def __init__(self, path: Path, *, check: Callable[[Path], None] | None = None) -> None:
        if path.exists():
            raise InvalidInput("--out", got="a file that exists", expected=_EXPECTED)
        self.path = path
        self._check = check
        self.part = path.with_name(f"{path.name}.part")
        self.state = path.with_name(f"{path.name}.part.state")

    def earlier(self) -> Reached | None:
        if not (self.part.is_file() and self.state.is_file()):
            return None
        try:
            reached = from_plain(Reached, json.loads(self.state.read_bytes()), at="state")
        except (ValueError, InvalidInput):
            expected = f"what an interrupted export left: remove {self.state.name}"
            raise InvalidInput("--out", got="a state file that is broken", expected=expected) from None
        os.truncate(self.part, reached.bytes_written)
        return reached

    def write(self, lines: bytes, reached: Reached) -> None:
        self._put(self.part, lines, fresh=reached.bytes_written == len(lines))
        new = self.state.with_name(f"{self.state.name}.new")
        self._put(new, json.dumps(to_plain(reached)).encode(), fresh=True)
        new.replace(self.state)

    def finish(self, lines: bytes) -> None:
        self._put(self.part, lines, fresh=False)
        if self._check is not None:
            self._checked(self._check)
        self.part.replace(self.path)
        self.state.unlink(missing_ok=True)

    def _checked(self, check: Callable[[Path], None]) -> None:
        try:
            check(self.part)
        except InvalidInput:
            self.state.unlink()
            raise

    @staticmethod
    def _put(path: Path, content: bytes, *, fresh: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if fresh else os.O_APPEND)
        try:
            with open(os.open(path, flags, 0o600), "wb") as stream:  # noqa: PTH123 - the mode is given at creation
                stream.write(content)
        except OSError as error:
            got = (error.strerror or "no answer").lower()
            raise InvalidInput("--out", got=got, expected=_EXPECTED) from None
