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

from ops.transfer.copying import LedgerCopy
from ops.transfer.format import Header, StoredPayload, Tally
from ops.transfer.match_lines import MatchLines
from ops.transfer.reading import Reader
from shared.domain.job import Job, State, same_work
from shared.domain.lifecycle import place_of
from shared.domain.ordering import Match
from shared.domain.settings import ClassSettings
from shared.domain.work_index import IndexKey
from shared.errors import InvalidInput, ObjectMissing
from shared.ports import Ports
from shared.steps.counting import count_inflight, count_rows

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
