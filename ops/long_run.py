"""What a command of minutes owes its operator: a bar, patience with AWS, and an end at ctrl-C that loses nothing.

On a terminal the bar shows rate and time left; anywhere else only the notes are printed.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, Self, TextIO, TypeVar

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

from ops.wording import sentence_of
from shared.errors import Retryable
from shared.ports import Clock

Answer = TypeVar("Answer")

PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Between attempts while AWS does not answer: half a minute in all, after which the operator decides."""


class Meter:
    """`begin` starts a pass over the input, `show` says how far it is, `note` prints a line that stays.

    This one only notes: what is no terminal gets lines.
    """

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


class Bar(Meter):
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


def meter_for(stream: TextIO) -> Meter:
    return Bar(Console(file=stream)) if stream.isatty() else Meter(stream)


class Interrupts:
    """While `shielded`, the first ctrl-C only asks to stop; at any other time, and the second one, it raises.

    Reading a pipe is not shielded: it may wait for ever for a next line.
    """

    def __init__(self) -> None:
        self.asked = False
        self._shielded = False

    @contextmanager
    def caught(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may have handlers, and gets the interrupts
            return
        before = signal.signal(signal.SIGINT, self._on_signal)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def shielded(self) -> Iterator[None]:
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False
        if self.asked:
            raise KeyboardInterrupt

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked or not self._shielded:
            raise KeyboardInterrupt
        self.asked = True


def patiently(work: Callable[[], Answer], clock: Clock, meter: Meter, interrupts: Interrupts) -> Answer:
    """What `work` returns, tried again while AWS does not answer. `work` has to bear being done twice."""
    for attempt, pause_s in enumerate(PAUSES_S, start=1):
        try:
            return work()
        except Retryable as error:
            if interrupts.asked:
                raise
            tried = f"attempt {attempt} of {len(PAUSES_S)}"
            meter.note(f"{sentence_of(error)} Trying again in {pause_s:g} s ({tried}).")
            clock.sleep(pause_s)
    return work()
