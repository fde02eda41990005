"""Whether a record of a file may enter a ledger: what the deployment's own code would have refused, an import does too.

Raises `InvalidInput` that names the field and the kind of its value, never the value (I12).

The first pass over a file: judge every line, and look up what of it the ledger holds. Nothing is written.

absent        no row of that id                       it will be created
existing      the same row, or what became of it      an earlier import created it; it stays as it is
conflicting   any other row of that id                nothing at all is imported
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ops.transfer.format import FileRecord, Header, Reader, StoredPayload, Tally
from ops.transfer.importing import LedgerCopy, MatchLines
from shared.domain.control import Control, Run
from shared.domain.job import MAX_PAYLOAD_BYTES, MINUTE_MS, Job, NewJob, State, payload_key, same_work
from shared.domain.json_text import json_fault
from shared.domain.lifecycle import place_of
from shared.domain.ordering import Match
from shared.domain.records import StoredOutput, StoredRate
from shared.domain.settings import ClassSettings, Settings
from shared.domain.work_index import IndexKey
from shared.errors import InvalidInput, ObjectMissing
from shared.ports import Ports
from shared.steps.counting import count_inflight, count_rows
from shared.submit.validation import MAX_DUE_MS, admit
from shared.worker.message import MAX_CURSOR_BYTES, MAX_OUTPUT_BYTES

_MOST: Final = {"epoch": 10**8, "copy": 10**6}
"""As many digits as a place in the index has for them."""

_COUNTS: Final = ("epoch", "copy", "hop", "attempts", "crashes", "transport_deaths", "seq")

_TIMES: Final = ("due_ms", "eligible_ms", "sent_at_ms", "hand_until_ms", "created_ms")


def judge(record: FileRecord, settings: Settings) -> None:
    match record:
        case Job():
            _judge_job(record, settings)
        case StoredOutput(output=output):
            _judge_cursor("output.cursor", output.cursor)
            _judge_json("output.body", output.body, MAX_OUTPUT_BYTES)
        case StoredPayload(key=key, text=text):
            _judge_json("payload.text", text, MAX_PAYLOAD_BYTES)
            if payload_key(text.encode()) != key:
                raise InvalidInput("payload.key", got="another text's key", expected="the key that names the text")
        case Run(key=key):
            _known("run.key.job_class", key.job_class, settings)
            if key.minute_ms % MINUTE_MS or not 0 <= key.minute_ms <= MAX_DUE_MS:
                raise InvalidInput("run.key.minute_ms", got="a time that is no minute", expected="a whole minute")
        case Control(job_class=job_class):
            _known("control.job_class", job_class, settings)
        case StoredRate(upstream=upstream):
            if upstream not in settings.upstreams:
                expected = f"one of {', '.join(sorted(settings.upstreams)) or 'none: nothing calls one'}"
                raise InvalidInput("rate.upstream", got="an unknown upstream", expected=expected)


def _judge_job(job: Job, settings: Settings) -> None:
    """What a submission may say, judged as one; then what only rows have."""
    _known("job.job_class", job.job_class, settings)
    said = {"job_id": job.job_id, "job_class": job.job_class, "match_id": job.match_id, "priority": job.priority}
    payload = "null" if job.payload_key else job.payload
    try:
        admit(NewJob(payload=payload, due_ms=job.due_ms, **said), settings, now_ms=0)  # type: ignore[arg-type]
    except InvalidInput as fault:
        raise InvalidInput(f"job.{fault.field}", got=fault.got, expected=fault.expected) from None
    _judge_cursor("job.cursor", job.cursor)
    for name in _COUNTS:
        if not 0 <= getattr(job, name) < _MOST.get(name, 10**12):
            raise InvalidInput(f"job.{name}", got="a number out of range", expected="a count")
    for name in _TIMES:
        if not 0 <= getattr(job, name) <= MAX_DUE_MS:
            raise InvalidInput(f"job.{name}", got="a time out of range", expected="a time from 1970 to 2100")
    if job.state is State.QUEUED and (job.lane is None or not job.sent_at_ms):
        raise InvalidInput("job.lane", got="nothing", expected="the lane and the time of a job in flight")
    ordered = settings.classes[job.job_class].ordered
    if ordered is not (job.seq > 0) or (job.state is State.BEHIND and not ordered):
        expected = "a number in its match's line, as its class is ordered" if ordered else "0: its class is not ordered"
        raise InvalidInput("job.seq", got="0" if ordered else "a number", expected=expected)


def _judge_cursor(name: str, cursor: str) -> None:
    if len(cursor.encode()) > MAX_CURSOR_BYTES:
        raise InvalidInput(name, got="a longer one", expected=f"at most {MAX_CURSOR_BYTES} bytes")


def _judge_json(name: str, text: str, most: int) -> None:
    if len(text.encode()) > most:
        raise InvalidInput(name, got="a longer one", expected=f"at most {most} bytes")
    fault = json_fault(text)
    if fault is not None:
        raise InvalidInput(name, got=fault, expected="a JSON value")


def _known(name: str, job_class: str, settings: Settings) -> None:
    if job_class not in settings.classes:
        expected = f"one of {', '.join(sorted(settings.classes))}"
        raise InvalidInput(name, got="an unknown class", expected=expected)


KEPT_FAULTS: Final = 20

_LOOK_UP: Final = 100

_END_STATES: Final = frozenset({State.DONE, State.SKIPPED, State.REPLACED})

_NEXT: Final = {
    State.BEHIND: (State.WAITING,),
    State.QUEUED: (State.DONE, State.WAITING, State.DEAD, State.SKIPPED, State.REPLACED),
    State.DEAD: (State.WAITING, State.SKIPPED, State.REPLACED),
}
"""Where a row can come to within its epoch."""

_OBJECTS_REMEMBERED: Final = 50_000


class Standing(StrEnum):
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
    counts: Tally = field(default_factory=Tally)
    faults: list[tuple[int, str]] = field(default_factory=list)
    faulty: int = 0
    standings: Counter[Standing] = field(default_factory=Counter)
    placed: Counter[str] = field(default_factory=Counter)
    matches: MatchLines = field(default_factory=MatchLines)

    def add_fault(self, line: int, fault: InvalidInput) -> None:
        self.faulty += 1
        if len(self.faults) < KEPT_FAULTS:
            self.faults.append((line, str(fault)))


class Comparison:
    def __init__(self, ports: Ports, copy: LedgerCopy, show: Callable[[int], None]) -> None:
        self._ports = ports
        self._copy = copy
        self._show = show
        self._wave: list[tuple[int, Job]] = []
        self._objects: set[str] = set()
        self.found = Compared()

    def run(self, reader: Reader) -> Compared:
        found = self.found
        for number, record in reader:
            if isinstance(record, InvalidInput):
                found.add_fault(number, record)
            elif isinstance(record, StoredPayload):
                self._objects.add(record.key)
            elif isinstance(record, Job) and not found.faulty:
                self._add(number, record)
        self._look_up()
        found.header, found.counts, found.matches = reader.header, reader.counts, reader.matches
        if not found.faulty:
            self._compare_lines(found.matches)
        return found

    def _add(self, number: int, job: Job) -> None:
        if job.payload_key and job.state not in _END_STATES:
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
            self.found.add_fault(number, InvalidInput("job.payload_key", got="nothing", expected=expected))

    def _look_up(self) -> None:
        wave, self._wave = self._wave, []
        rows = self._copy.read_jobs([job.job_id for _, job in wave]) if wave else {}
        for number, job in wave:
            row = rows.get(job.job_id)
            found = standing(job, row)
            self.found.standings[found] += 1
            if found is Standing.CONFLICTING:
                expected = "a free id, or the same row: another job, or an older copy, has it"
                self.found.add_fault(number, InvalidInput("job.job_id", got="an id that exists", expected=expected))
            elif row is not None and isinstance(place_of(row), IndexKey):
                self.found.placed[row.job_class] += 1
        if wave:
            self._show(wave[-1][0])

    def _compare_lines(self, matches: MatchLines) -> None:
        for match in matches.all():
            there = self._ports.ledger.read_match(match.job_class, match.match_id)
            if there.tail_seq and not _goes_on(there, match):
                expected = "none of its own in this ledger, or one that goes on from the file's"
                self.found.add_fault(0, InvalidInput("match", got="jobs in another order", expected=expected))


def _goes_on(there: Match, match: Match) -> bool:
    """An earlier import put it, and it has moved on since."""
    return there.tail_seq >= match.tail_seq and there.head_seq >= match.head_seq


def other_rows(ports: Ports, settings: ClassSettings, placed: int) -> int:
    """Rows of the class in the index, beyond the `placed` ones that the file speaks of. Ended rows are not in it."""
    counts = count_rows(ports, settings, ports.clock.now_ms())
    return counts.waiting + counts.behind + counts.dead + count_inflight(ports, settings) - placed
