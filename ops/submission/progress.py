"""How far a submission is: a bar with rate and time left on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Meter(Protocol):
    """`begin` starts a pass over the input, `show` says how far it is, `note` prints a line that stays."""

    def begin(self, what: str, *, size_bytes: int | None) -> None: ...

    def show(self, *, bytes_read: int, lines: int) -> None: ...

    def note(self, text: str) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def meter_for(stream: TextIO) -> Meter:
    return Bar(Console(file=stream)) if stream.isatty() else Plain(stream)


class Plain:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def begin(self, what: str, *, size_bytes: int | None) -> None:
        return None

    def show(self, *, bytes_read: int, lines: int) -> None:
        return None

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class Bar:
    """Bytes say how much is left, since nobody has counted the lines; lines per second are what a person thinks in."""

    def __init__(self, console: Console, *, get_time: Callable[[], float] | None = None) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[lines]:,} lines, {task.fields[rate]:,.0f}/s"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TimeRemainingColumn(),
            console=console,
            get_time=get_time,
            transient=True,
        )
        self._task: TaskID | None = None

    def begin(self, what: str, *, size_bytes: int | None) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        left = "" if size_bytes is None else "left:"
        self._task = self._progress.add_task(what, total=size_bytes, lines=0, rate=0.0, left=left)

    def show(self, *, bytes_read: int, lines: int) -> None:
        if self._task is None:
            return
        elapsed_s = self._progress.tasks[-1].elapsed or 0.0
        rate = lines / elapsed_s if elapsed_s > 0 else 0.0
        self._progress.update(self._task, completed=bytes_read, lines=lines, rate=rate)

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
