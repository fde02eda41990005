"""What a copy needs of a ledger beyond the `Ledger` port: to read all of it, and to put what is not there yet.

Put a file of an export into a ledger: judge and compare all of it, then write what is not there, and over nothing.

The order of the writes is what makes a crash between any two of them harmless: the class is paused before its first
row, a match's line stands before its rows, a payload before the row that points at it, and a row before its outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ops.submission.json_lines import Lines
from ops.submission.load import Interrupts, Meter
from ops.submission.source import Source
from ops.transfer.comparing import Compared, Comparison, Standing, other_rows, standing
from ops.transfer.copying import LedgerCopy
from ops.transfer.format import FileRecord, Header, StoredPayload
from ops.transfer.reading import Reader
from ops.wording import moment, said
from shared.domain.control import Control, Run
from shared.domain.job import Created, Flag, Job, State
from shared.domain.records import StoredOutput, StoredRate
from shared.domain.settings import Settings
from shared.errors import InvalidInput, Retryable
from shared.operate import switches
from shared.ports import Ports
from shared.submit.submission import BATCH

ADOPTED: Final = ("carry", "measures", "rate", "webhook_closed", "webhook_switched")
"""Of control: what was measured, owed and wanted. Not its history, which tells of another deployment's ticks; not its
slots, which are its event source mappings'; not its pause, as an import leaves one of its own."""

PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0)

_WAVE_RECORDS: Final = 800

_WAVE_BYTES: Final = 16 * 1024 * 1024


@dataclass(slots=True, kw_only=True)
class Imported:
    """What became of the file. `created` counts rows; nothing was written where there are faults or a dry run."""

    compared: Compared
    other_rows: dict[str, int] = field(default_factory=dict)
    created: int = 0
    outputs: int = 0
    payloads: int = 0
    runs: int = 0
    stopped: dict[str, Flag] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def refused(self) -> bool:
        return bool(self.compared.faulty or self.other_rows)


class Import:
    def __init__(self, ports: Ports, settings: Settings, copy: LedgerCopy, meter: Meter) -> None:
        self._ports = ports
        self._settings = settings
        self._copy = copy
        self._meter = meter
        self._interrupts = Interrupts()

    def run(self, source: Source, *, by: str, why: str, merge: bool, dry_run: bool) -> Imported:
        begun_ms = self._ports.clock.now_ms()
        with self._interrupts.caught(), self._meter:
            self._meter.begin("checking", size_bytes=source.size_bytes)
            lines = Lines(source.stream)
            comparison = Comparison(self._ports, self._copy, lambda line: self._show(lines, line))
            result = Imported(compared=comparison.run(Reader(lines, self._settings)))
            header = result.compared.header
            if header is None or result.refused:
                return result
            mark = f"import of {header.source} as of {moment(header.at_ms)}"
            result.other_rows = {} if merge else self._others(header, result.compared, mark)
            if not (result.other_rows or dry_run):
                self._write(source, header, result, mark=mark, by=by, why=why)
        result.seconds = (self._ports.clock.now_ms() - begun_ms) / 1000
        return result

    def _others(self, header: Header, compared: Compared, mark: str) -> dict[str, int]:
        """Classes with rows that the file does not speak of; but not those where this import has begun before, which
        producers may have submitted to since."""
        found = {}
        for name in header.names:
            flag = self._ports.ledger.read_control(name).pause
            if flag is not None and flag.why.startswith(mark):
                continue
            rows = other_rows(self._ports, self._settings.classes[name], compared.placed[name])
            if rows > 0:
                found[name] = rows
        return found

    # -- the writes

    def _write(self, source: Source, header: Header, result: Imported, *, mark: str, by: str, why: str) -> None:
        """Rows are new: the class is stopped first. Otherwise it may have been resumed long since, and stays so."""
        if result.compared.standings[Standing.ABSENT]:
            for name in header.names:
                self._pause(name, by=by, why=f"{mark}, not complete: {why}")
        self._ports.parallel.map(self._copy.put_order, list(result.compared.matches.all()))
        self._put_all(source, result)
        for name in header.names:
            self._say_complete(name, mark, result, by=by, why=f"{mark}: {why}")

    def _pause(self, name: str, *, by: str, why: str) -> None:
        """Whoever has stopped the class already has the word."""
        if self._ports.ledger.read_control(name).admits:
            switches.pause(self._ports, name, by=by, why=why)

    def _say_complete(self, name: str, mark: str, result: Imported, *, by: str, why: str) -> None:
        control = self._ports.ledger.read_control(name)
        flag = control.halt or control.pause
        if control.pause is not None and control.pause.why.startswith(f"{mark}, not complete"):
            flag = Flag(by=by, why=why, at_ms=self._ports.clock.now_ms())
            self._ports.ledger.set_pause(name, flag)
        if flag is not None:
            result.stopped[name] = flag

    def _put_all(self, source: Source, result: Imported) -> None:
        source.rewind()
        self._meter.begin("importing", size_bytes=source.size_bytes)
        lines = Lines(source.stream)
        for number, wave in _waves(Reader(lines, self._settings)):
            with self._interrupts.shielded():
                self._patiently(wave, result)
            self._show(lines, number)

    def _patiently(self, wave: Sequence[FileRecord], result: Imported) -> None:
        """Every put is conditional, so that a wave may be put again from its beginning."""
        for pause_s in PAUSES_S:
            try:
                return self._put_wave(wave, result)
            except Retryable as error:
                if self._interrupts.asked:
                    raise
                self._meter.note(f"{said(error)} Trying again in {pause_s:g} s.")
                self._ports.clock.sleep(pause_s)
        return self._put_wave(wave, result)

    def _put_wave(self, wave: Sequence[FileRecord], result: Imported) -> None:
        """Outputs also for rows that have moved on since: their chunks were committed before the file's state."""
        copy, fan_out = self._copy, self._ports.parallel.map
        result.payloads += sum(fan_out(self._put_payload, [each for each in wave if isinstance(each, StoredPayload)]))
        self._put_jobs([each for each in wave if isinstance(each, Job)], result)
        result.outputs += sum(fan_out(copy.put_output, [each for each in wave if isinstance(each, StoredOutput)]))
        result.runs += sum(fan_out(copy.put_run, [each for each in wave if isinstance(each, Run)]))
        for record in wave:
            if isinstance(record, Control):
                copy.adopt(record.job_class, {name: getattr(record, name) for name in ADOPTED})
            elif isinstance(record, StoredRate):
                self._ports.ledger.store_learned(record.upstream, record.learned, before=None)

    def _put_payload(self, payload: StoredPayload) -> bool:
        return self._ports.blobs.put_once(payload.key, payload.text.encode(), content_type="application/json")

    def _put_jobs(self, jobs: Sequence[Job], result: Imported) -> None:
        """The rows that are absent, and the places of ordered ones."""
        rows = self._copy.read_jobs([job.job_id for job in jobs]) if jobs else {}
        absent = [job for job in jobs if job.job_id not in rows]
        batches = [absent[start : start + BATCH] for start in range(0, len(absent), BATCH)]
        answers = [each for batch in self._ports.parallel.map(self._ports.ledger.create, batches) for each in batch]
        there = [(job, rows[job.job_id]) for job in jobs if job.job_id in rows]
        if Created.DIFFERENT in answers or any(standing(*each) is Standing.CONFLICTING for each in there):
            expected = "a ledger to which nobody else submits them: run it again to see which"
            raise InvalidInput("job.job_id", got="an id that was taken meanwhile", expected=expected)
        result.created += answers.count(Created.CREATED)
        places = [job for job in jobs if job.seq and job.state is not State.REPLACED]
        self._ports.parallel.map(self._copy.put_place, places)

    def _show(self, lines: Lines, number: int) -> None:
        self._meter.show(bytes_read=lines.bytes_read, lines=number)


def _waves(reader: Reader) -> Iterator[tuple[int, list[FileRecord]]]:
    """Records in the order of the file, cut where a wave is full. A job's outputs may come in the next one."""
    wave: list[FileRecord] = []
    room, last = _WAVE_BYTES, 0
    for number, record in reader:
        if isinstance(record, InvalidInput):  # judged before: the file has changed under us
            raise InvalidInput(f"line {number}", got="another file than at its check", expected="the same file")
        wave.append(record)
        last = number
        room -= _size(record)
        if len(wave) == _WAVE_RECORDS or room <= 0:
            yield number, wave
            wave, room = [], _WAVE_BYTES
    if wave:
        yield last, wave


def _size(record: FileRecord) -> int:
    if isinstance(record, StoredPayload):
        return len(record.text)
    return len(record.output.body) if isinstance(record, StoredOutput) else 0
