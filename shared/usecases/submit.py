"""Put jobs into the ledger: idempotent by job id, in conditional batches, many batches at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from shared.core.model import Created, Job, NewJob
from shared.core.settings import Settings
from shared.errors import InvalidInput
from shared.ports import Ports
from shared.usecases.admission import Admitted, admit

BATCH: Final = 25
"""Rows of one conditional request to the ledger."""

WAVE_ROWS: Final = 800
WAVE_BYTES: Final = 16 * 1024 * 1024
"""Rows, and bytes of large payloads, that are in memory and on their way at one time: what keeps memory flat."""

CONFLICT: Final = InvalidInput("job_id", got="an id that exists with other contents", expected="a new id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A job that was not accepted: its position in what was submitted, the field at fault, and the sentence on it."""

    position: int
    field: str
    reason: str

    @classmethod
    def of(cls, position: int, fault: InvalidInput) -> Refusal:
        return cls(position=position, field=fault.field, reason=str(fault))


@dataclass(slots=True, kw_only=True)
class SubmitReport:
    """created + existing + len(refused) is the number of jobs submitted."""

    created: int = 0
    existing: int = 0
    refused: list[Refusal] = field(default_factory=list)

    def add(self, other: SubmitReport) -> None:
        self.created += other.created
        self.existing += other.existing
        self.refused += other.refused


Wave: TypeAlias = list[tuple[int, Admitted]]
"""Rows with their positions in what was submitted, no id twice."""


def submit_jobs(ports: Ports, settings: Settings, jobs: Iterable[NewJob], *, nonce: str = "") -> SubmitReport:
    """Create each job's row as waiting, unless its id is there already. For producers; `jobs` may be a generator.

    The same id with other contents is refused and the first one stands; class, match, payload and priority are its
    contents, the due time is not. A job that is not valid is refused by name and the others go on. Payloads above
    4 KB go to the object store first, transparently.

    Raises `LedgerUnavailable` or `StorageUnavailable`; what was created by then stays, and submitting again adds
    nothing. `nonce`, new in every call, makes a row whose answer was lost count as created instead of existing.
    """
    report = SubmitReport()

    def refuse(position: int, fault: InvalidInput) -> None:
        report.refused.append(Refusal.of(position, fault))

    rows = admitted(ports, settings, enumerate(jobs), refuse=refuse)
    for number, wave in enumerate(waves(rows)):
        report.add(create_wave(ports, wave, nonce=wave_nonce(nonce, number)))
    report.refused.sort(key=lambda refusal: refusal.position)
    return report


def wave_nonce(nonce: str, number: int) -> str:
    """Of its own for each wave: an id that comes twice in one submission must find the first one, not itself."""
    return f"{nonce}-{number}" if nonce else ""


def admitted(
    ports: Ports,
    settings: Settings,
    jobs: Iterable[tuple[int, NewJob]],
    *,
    refuse: Callable[[int, InvalidInput], None],
) -> Iterator[tuple[int, Admitted]]:
    """The rows of the jobs that are valid; the others go to `refuse`."""
    for position, new in jobs:
        try:
            row = admit(new, settings, now_ms=ports.clock.now_ms())
        except InvalidInput as fault:
            refuse(position, fault)
        else:
            yield position, row


def waves(rows: Iterable[tuple[int, Admitted]]) -> Iterator[Wave]:
    """Cut where a wave is full, by rows or bytes, and before an id that it holds: batches run in parallel, and of two
    jobs with one id the first must stand."""
    wave: Wave = []
    ids: set[str] = set()
    room = WAVE_BYTES
    for position, row in rows:
        size = 0 if row.body is None else len(row.body)
        if wave and (len(wave) == WAVE_ROWS or size > room or row.job.job_id in ids):
            yield wave
            wave, ids, room = [], set(), WAVE_BYTES
        wave.append((position, row))
        ids.add(row.job.job_id)
        room -= size
    if wave:
        yield wave


def create_wave(ports: Ports, wave: Wave, *, nonce: str) -> SubmitReport:
    """Objects first, then rows: a row never points at nothing. Doing it again changes nothing and says the same."""
    bodies = {row.job.payload_key: row.body for _, row in wave if row.body is not None}
    ports.parallel.map(lambda each: _put(ports, *each), list(bodies.items()))
    jobs = [replace(row.job, nonce=nonce) for _, row in wave]
    batches: list[Sequence[Job]] = [jobs[start : start + BATCH] for start in range(0, len(jobs), BATCH)]
    answers = ports.parallel.map(ports.ledger.create, batches)
    report = SubmitReport()
    created = (answer for batch in answers for answer in batch)
    for (position, _), answer in zip(wave, created, strict=True):
        if answer is Created.CREATED:
            report.created += 1
        elif answer is Created.EXISTING:
            report.existing += 1
        else:
            report.refused.append(Refusal.of(position, CONFLICT))
    return report


def _put(ports: Ports, key: str, body: bytes) -> None:
    ports.blobs.put_once(key, body, content_type="application/json")
