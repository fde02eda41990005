"""Ctrl-C during a submission: what is on its way is finished and counted, then it stops.

How far a submission is: a bar with rate and time left on a terminal, nothing elsewhere.

Read, admit, create, wave by wave: the loop behind `submit`, with memory flat however long the input is.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from types import FrameType, TracebackType
from typing import Final, Protocol, Self, TextIO

from msgspec import Struct
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

from ops.submission.csv_rows import CsvShape
from ops.submission.json_lines import Lines
from ops.submission.source import Format, Source, rows_of
from ops.wording import said
from shared.domain.job import NewJob
from shared.domain.settings import Settings
from shared.errors import InvalidInput, Retryable
from shared.ports import Ports
from shared.submit.submission import Refusal, SubmitReport, Wave, create_wave, valid_rows, wave_nonce, waves


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


KEPT_REFUSALS: Final = 100
"""Refusals in the summary. All are printed as they are met; a file of a million bad lines must not fill the memory."""

PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Between attempts at a wave while AWS does not answer."""

_SHOW_EVERY: Final = 500


class Outcome(StrEnum):
    COMPLETE = "complete"
    REFUSED = "refused"
    """--strict: a line is bad, so that nothing was submitted."""
    INTERRUPTED = "interrupted"
    UNAVAILABLE = "unavailable"


@dataclass(slots=True, kw_only=True)
class Summary:
    """What became of the jobs so far. `next_line` is where to go on after an interruption."""

    created: int = 0
    existing: int = 0
    refused: int = 0
    refusals: list[Refusal] = field(default_factory=list)
    outcome: Outcome = Outcome.COMPLETE
    next_line: int | None = None
    seconds: float = 0.0
    detail: str = ""

    @property
    def jobs(self) -> int:
        return self.created + self.existing + self.refused


class Plan(Struct, frozen=True, kw_only=True):
    """How the input is to be read and submitted."""

    file_format: Format
    shape: CsvShape
    strict: bool
    from_line: int
    nonce: str


class Submission:
    def __init__(self, ports: Ports, settings: Settings, plan: Plan, meter: Meter) -> None:
        self._ports = ports
        self._settings = settings
        self._plan = plan
        self._meter = meter
        self._interrupts = Interrupts()
        self.summary = Summary()

    def run(self, source: Source) -> Summary:
        """Submit everything. Ctrl-C and an AWS that does not answer are outcomes; a file that cannot be read as what
        it should be raises `InvalidInput`."""
        begun_ms = self._ports.clock.now_ms()
        summary = self.summary
        summary.next_line = self._plan.from_line
        try:
            with self._interrupts.caught(), self._meter:
                if self._plan.strict and not self._all_good(source):
                    summary.outcome = Outcome.REFUSED
                else:
                    self._create(source)
                summary.next_line = None
        except KeyboardInterrupt:
            summary.outcome = Outcome.INTERRUPTED
        except Retryable as error:
            summary.outcome, summary.detail = Outcome.UNAVAILABLE, said(error)
        summary.seconds = (self._ports.clock.now_ms() - begun_ms) / 1000
        return summary

    def _all_good(self, source: Source) -> bool:
        """Read everything once without writing. What only the ledger knows, an id with other contents, comes later."""
        self._meter.begin("checking", size_bytes=source.size_bytes)
        for _ in valid_rows(self._ports, self._settings, self._jobs(source), refuse=self._refuse):
            pass
        source.rewind()
        return not self.summary.refused

    def _create(self, source: Source) -> None:
        self._meter.begin("submitting", size_bytes=source.size_bytes)
        rows = valid_rows(self._ports, self._settings, self._jobs(source), refuse=self._refuse)
        for number, wave in enumerate(waves(rows)):
            with self._interrupts.shielded():
                report = self._create_wave(wave, nonce=wave_nonce(self._plan.nonce, number))
                self.summary.created += report.created
                self.summary.existing += report.existing
                for refusal in report.refused:
                    self._keep(refusal)
                self.summary.next_line = wave[-1][0] + 1

    def _create_wave(self, wave: Wave, *, nonce: str) -> SubmitReport:
        """The same wave under the same nonce: a row that an earlier attempt created still counts as created."""
        pauses: Iterator[float] = iter(PAUSES_S)
        for attempt in count(1):
            try:
                return create_wave(self._ports, self._settings, wave, nonce=nonce)
            except Retryable as error:
                pause_s = next(pauses, None)
                if pause_s is None or self._interrupts.asked:
                    raise
                self._meter.note(f"{said(error)} Trying again in {pause_s:g} s (attempt {attempt} of {len(PAUSES_S)}).")
                self._ports.clock.sleep(pause_s)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _jobs(self, source: Source) -> Iterator[tuple[int, NewJob]]:
        lines = Lines(source.stream)
        seen = 0
        for row in rows_of(lines, self._plan.file_format, self._plan.shape):
            if row.number < self._plan.from_line:
                continue
            seen += 1
            if seen % _SHOW_EVERY == 0:
                self._meter.show(bytes_read=lines.bytes_read, lines=seen)
            if isinstance(row.job, InvalidInput):
                self._refuse(row.number, row.job)
            else:
                yield row.number, row.job
        self._meter.show(bytes_read=lines.bytes_read, lines=seen)

    def _refuse(self, number: int, fault: InvalidInput) -> None:
        self._keep(Refusal.of(number, fault))

    def _keep(self, refusal: Refusal) -> None:
        self.summary.refused += 1
        if len(self.summary.refusals) < KEPT_REFUSALS:
            self.summary.refusals.append(refusal)
        self._meter.note(f"line {refusal.position}: {refusal.reason}")


def in_words(summary: Summary, *, name: str) -> list[str]:
    """The summary for a person, and how to go on with an input that was not finished."""
    said = [_counts(summary, name)]
    if summary.outcome is Outcome.INTERRUPTED:
        said.append("Interrupted.")
    if summary.outcome is Outcome.UNAVAILABLE:
        said.append(f"Gave up: {summary.detail}")
    if summary.next_line is not None:
        said.append("Run the same command again to go on, nothing is added twice.")
        said.append(f"To skip what is done, add --from-line {summary.next_line} to the same command.")
    return said


def _counts(summary: Summary, name: str) -> str:
    if summary.outcome is Outcome.REFUSED:
        lines = "1 bad line" if summary.refused == 1 else f"{summary.refused:,} bad lines"
        return f"{name}: nothing was submitted (--strict), because of {lines}."
    if summary.outcome is Outcome.COMPLETE and summary.jobs == 0:
        return f"{name}: no jobs in it, nothing was submitted."
    rate = f", {summary.jobs / summary.seconds:,.0f} jobs/s" if summary.seconds > 0 else ""
    return (
        f"{name}: {summary.created:,} created, {summary.existing:,} already there, {summary.refused:,} refused"
        f" ({summary.seconds:,.1f} s{rate})."
    )
