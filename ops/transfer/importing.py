"""Put a file of an export into a ledger: judge and compare all of it, then write what is not there, and over nothing.

The order of the writes is what makes a crash between any two of them harmless: the class is paused before its first
row, a match's order stands before its rows, a payload before the row that points at it, and a row before its outputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import Final, TypeVar

from ops.long_run import Interrupts, Meter, patiently
from ops.submission.json_lines import Lines
from ops.submission.source import Source
from ops.transfer.copying import LedgerCopy
from ops.transfer.format import FileRecord, Header, LineCounts, StoredPayload
from ops.transfer.reading import MatchOrders, Reader
from ops.wording import moment
from shared.domain.control import Control, Run
from shared.domain.job import Created, Flag, Job, State, same_work
from shared.domain.lifecycle import ENDED, place_of
from shared.domain.ordering import Match
from shared.domain.records import StoredOutput, StoredRate
from shared.domain.settings import ClassSettings, Settings
from shared.domain.work_index import IndexKey
from shared.errors import InvalidInput, ObjectMissing
from shared.operate import switches
from shared.ports import Ports
from shared.steps.counting import count_inflight, count_rows
from shared.submit.submission import BATCH

Wanted = TypeVar("Wanted")

ADOPTED: Final = ("carry", "measures", "rate", "webhook_closed", "webhook_switched")
"""Of control: what was measured, owed and wanted. Not its history, which tells of another deployment's ticks; not its
slots, which are its event source mappings'; not its pause, as an import leaves one of its own."""

_WAVE_RECORDS: Final = 800
_WAVE_BYTES: Final = 16 * 1024 * 1024
"""Records, and bytes of outputs and payloads, that are held in memory and written side by side."""

KEPT_FAULTS: Final = 20
"""Faults that are printed; the rest of them is only counted."""

_LOOK_UP: Final = 100
"""Rows that are looked up in one read: as many as a batch of DynamoDB takes."""

_NEXT: Final = {
    State.BEHIND: (State.WAITING,),
    State.QUEUED: (State.WAITING, State.DEAD, *ENDED),
    State.DEAD: (State.WAITING, State.SKIPPED, State.REPLACED),
}
"""Where a row can come to within its epoch."""

_OBJECTS_REMEMBERED: Final = 50_000
"""Payload keys known to exist, some megabytes of memory; then they are asked for again."""


class Standing(StrEnum):
    """How a row of the file stands to this ledger.

    absent        no row of that id                       it will be created
    existing      the same row, or what became of it      an earlier import created it; it stays as it is
    conflicting   any other row of that id                nothing at all is imported
    """

    ABSENT = "absent"
    EXISTING = "existing"
    CONFLICTING = "conflicting"


def standing(job: Job, row: Job | None) -> Standing:
    """A row that was created at the same moment for the same work is the same row; later than the file's state it has
    moved on since, and earlier it is an older copy, which the file must not be mixed with."""
    if row is None:
        return Standing.ABSENT
    if row == job:
        return Standing.EXISTING
    same_row = same_work(row, job) and row.created_ms == job.created_ms
    moved_on = row.epoch > job.epoch or (row.epoch == job.epoch and row.state in _NEXT.get(job.state, ()))
    return Standing.EXISTING if same_row and moved_on else Standing.CONFLICTING


@dataclass(slots=True, kw_only=True)
class Compared:
    """What the first pass found. `faults`: (line, sentence), the first of them; `faulty` counts them all."""

    header: Header | None = None
    counts: LineCounts = field(default_factory=LineCounts)
    faults: list[tuple[int, str]] = field(default_factory=list)
    faulty: int = 0
    standings: Counter[Standing] = field(default_factory=Counter)
    placed: Counter[str] = field(default_factory=Counter)
    matches: MatchOrders = field(default_factory=MatchOrders)

    def add_fault(self, line: int, fault: InvalidInput) -> None:
        self.faulty += 1
        if len(self.faults) < KEPT_FAULTS:
            self.faults.append((line, str(fault)))


class Comparison:
    """The first pass over a file: judge every line, and look up what of it the ledger holds. Nothing is written."""

    def __init__(self, ports: Ports, copy: LedgerCopy, show: Callable[[int], None]) -> None:
        self._ports = ports
        self._copy = copy
        self._show = show
        self._wave: list[tuple[int, Job]] = []
        self._objects: set[str] = set()
        self.compared = Compared()

    def run(self, reader: Reader) -> Compared:
        compared = self.compared
        for number, record in reader:
            if isinstance(record, InvalidInput):
                compared.add_fault(number, record)
            elif isinstance(record, StoredPayload):
                self._objects.add(record.key)
            elif isinstance(record, Job) and not compared.faulty:
                self._add(number, record)
        self._look_up()
        compared.header, compared.counts, compared.matches = reader.header, reader.counts, reader.matches
        if not compared.faulty:
            self._compare_orders(compared.matches)
        return compared

    def _add(self, number: int, job: Job) -> None:
        if job.payload_key and job.state not in ENDED:
            self._check_object(number, job.payload_key)
        self._wave.append((number, job))
        if len(self._wave) == _LOOK_UP:
            self._look_up()

    def _check_object(self, number: int, key: str) -> None:
        """A row whose payload stayed behind would fail at its first chunk."""
        if key in self._objects:
            return
        if len(self._objects) == _OBJECTS_REMEMBERED:
            self._objects.clear()
        try:
            self._ports.blobs.read(key, start=0, length=1)
            self._objects.add(key)
        except ObjectMissing:
            expected = "its object in this bucket: copy payloads/ over, or export it --with-payloads"
            self.compared.add_fault(number, InvalidInput("job.payload_key", got="nothing", expected=expected))

    def _look_up(self) -> None:
        wave, self._wave = self._wave, []
        rows = self._copy.read_jobs([job.job_id for _, job in wave]) if wave else {}
        for number, job in wave:
            row = rows.get(job.job_id)
            job_standing = standing(job, row)
            self.compared.standings[job_standing] += 1
            if job_standing is Standing.CONFLICTING:
                expected = "a free id, or the same row: another job, or an older copy, has it"
                self.compared.add_fault(number, InvalidInput("job.job_id", got="an id that exists", expected=expected))
            elif row is not None and isinstance(place_of(row), IndexKey):
                self.compared.placed[row.job_class] += 1
        if wave:
            self._show(wave[-1][0])

    def _compare_orders(self, matches: MatchOrders) -> None:
        for match in matches.all():
            there = self._ports.ledger.read_match(match.job_class, match.match_id)
            if there.tail_seq and not _goes_on(there, match):
                expected = "none of its own in this ledger, or one that goes on from the file's"
                self.compared.add_fault(0, InvalidInput("match", got="jobs in another order", expected=expected))


def _goes_on(there: Match, match: Match) -> bool:
    """An earlier import put it, and it has moved on since."""
    return there.tail_seq >= match.tail_seq and there.head_seq >= match.head_seq


def other_rows(ports: Ports, settings: ClassSettings, placed: int) -> int:
    """Rows of the class in the index, beyond the `placed` ones that the file speaks of. Ended rows are not in it."""
    counts = count_rows(ports, settings, ports.clock.now_ms())
    return counts.waiting + counts.behind + counts.dead + count_inflight(ports, settings) - placed


# -- the import


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
    """One import: it compares the whole file with the ledger, and then writes what is absent."""

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
        others = {}
        for name in header.names:
            flag = self._ports.ledger.read_control(name).pause
            if flag is not None and flag.why.startswith(mark):
                continue
            rows = other_rows(self._ports, self._settings.classes[name], compared.placed[name])
            if rows > 0:
                others[name] = rows
        return others

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
                # Every put is conditional, so that a wave may be put again from its beginning.
                patiently(partial(self._put_wave, wave, result), self._ports.clock, self._meter, self._interrupts)
            self._show(lines, number)

    def _put_wave(self, wave: Sequence[FileRecord], result: Imported) -> None:
        """Outputs also for rows that have moved on since: their chunks were committed before the file's state."""
        copy, fan_out = self._copy, self._ports.parallel.map
        result.payloads += sum(fan_out(self._put_payload, _of(StoredPayload, wave)))
        self._put_jobs(_of(Job, wave), result)
        result.outputs += sum(fan_out(copy.put_output, _of(StoredOutput, wave)))
        result.runs += sum(fan_out(copy.put_run, _of(Run, wave)))
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
        answers = list(chain.from_iterable(self._ports.parallel.map(self._ports.ledger.create, batches)))
        there = [(job, rows[job.job_id]) for job in jobs if job.job_id in rows]
        if Created.DIFFERENT in answers or any(standing(job, row) is Standing.CONFLICTING for job, row in there):
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


def _of(cls: type[Wanted], wave: Sequence[FileRecord]) -> list[Wanted]:
    return [record for record in wave if isinstance(record, cls)]


def _size(record: FileRecord) -> int:
    if isinstance(record, StoredPayload):
        return len(record.text)
    return len(record.output.body) if isinstance(record, StoredOutput) else 0
