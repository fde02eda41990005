"""Read, admit, create, wave by wave: the loop behind `submit`, with memory flat however long the input is."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from typing import Final

from msgspec import Struct, field

from ops.long_run import Interrupts, Meter, patiently
from ops.submission.csv_rows import CsvShape
from ops.submission.json_lines import Lines
from ops.submission.source import Format, Source, rows_of
from ops.wording import counted, sentence_of
from shared.domain.job import NewJob
from shared.domain.settings import Settings
from shared.errors import InvalidInput, Retryable
from shared.ports import Ports
from shared.submit.submission import Refusal, create_wave, valid_rows, wave_nonce, waves

KEPT_REFUSALS: Final = 100
"""Refusals in the summary. All are printed as they are met; a file of a million bad lines must not fill the memory."""

_SHOW_EVERY: Final = 500
"""Lines between two looks of the bar: more often would cost more than reading them."""


class Outcome(StrEnum):
    """How a submission ended."""

    COMPLETE = "complete"
    REFUSED = "refused"
    """--strict: a line is bad, so that nothing was submitted."""
    INTERRUPTED = "interrupted"
    UNAVAILABLE = "unavailable"


class Summary(Struct, kw_only=True):
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
    """One input on its way into the ledger. `summary` counts what became of its jobs so far."""

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
            summary.outcome, summary.detail = Outcome.UNAVAILABLE, sentence_of(error)
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
                # The same wave under the same nonce: a row that an earlier attempt created still counts as created.
                nonce = wave_nonce(self._plan.nonce, number)
                create = partial(create_wave, self._ports, self._settings, wave, nonce=nonce)
                report = patiently(create, self._ports.clock, self._meter, self._interrupts)
                self.summary.created += report.created
                self.summary.existing += report.existing
                for refusal in report.refused:
                    self._keep(refusal)
                self.summary.next_line = wave[-1][0] + 1

    def _jobs(self, source: Source) -> Iterator[tuple[int, NewJob]]:
        lines = Lines(source.stream)
        read = 0
        for row in rows_of(lines, self._plan.file_format, self._plan.shape):
            if row.number < self._plan.from_line:
                continue
            read += 1
            if read % _SHOW_EVERY == 0:
                self._meter.show(bytes_read=lines.bytes_read, lines=read)
            if isinstance(row.job, InvalidInput):
                self._refuse(row.number, row.job)
            else:
                yield row.number, row.job
        self._meter.show(bytes_read=lines.bytes_read, lines=read)

    def _refuse(self, number: int, fault: InvalidInput) -> None:
        self._keep(Refusal.of(number, fault))

    def _keep(self, refusal: Refusal) -> None:
        self.summary.refused += 1
        if len(self.summary.refusals) < KEPT_REFUSALS:
            self.summary.refusals.append(refusal)
        self._meter.note(f"line {refusal.position}: {refusal.reason}")


def in_words(summary: Summary, *, name: str) -> list[str]:
    """The summary for a person, and how to go on with an input that was not finished."""
    lines = [_counts(summary, name)]
    if summary.outcome is Outcome.INTERRUPTED:
        lines.append("Interrupted.")
    if summary.outcome is Outcome.UNAVAILABLE:
        lines.append(f"Gave up: {summary.detail}")
    if summary.next_line is not None:
        lines.append("Run the same command again to go on, nothing is added twice.")
        lines.append(f"To skip what is done, add --from-line {summary.next_line} to the same command.")
    return lines


def _counts(summary: Summary, name: str) -> str:
    if summary.outcome is Outcome.REFUSED:
        return f"{name}: nothing was submitted (--strict), because of {counted(summary.refused, 'bad line')}."
    if summary.outcome is Outcome.COMPLETE and summary.jobs == 0:
        return f"{name}: no jobs in it, nothing was submitted."
    rate = f", {summary.jobs / summary.seconds:,.0f} jobs/s" if summary.seconds > 0 else ""
    return (
        f"{name}: {summary.created:,} created, {summary.existing:,} already there, {summary.refused:,} refused"
        f" ({summary.seconds:,.1f} s{rate})."
    )
