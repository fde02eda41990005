"""Put jobs into the ledger: idempotent by job id, in conditional batches, many batches at a time.

A small submission spends the live allowance: a live job is created as claimed, in one transaction with the decrement,
and sent at once. Who finds none left, or meets another submitter at it, creates the row as waiting, as ever. Who dies
before the message is sent leaves a row in flight, which the sweep heals (rule 3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from shared.domain.control import Allowance
from shared.domain.job import Created, Job, Lane, NewJob, State
from shared.domain.settings import Settings
from shared.errors import InvalidInput, LedgerUnavailable
from shared.ports import Ports
from shared.steps.sending import send_jobs
from shared.steps.turns import Claim, Entered, enter_match
from shared.submit.validation import NewRow, new_row

AT_ONCE: Final = 25
"""Rows that a submission may have and still spend: what a match leaves behind. More are a backlog: they wait, so that
no file takes the next match's rows, and none of its rows costs what a transaction does."""

BATCH: Final = 25
"""Rows of one conditional request to the ledger."""

WAVE_ROWS: Final = 800
"""Rows that are in memory and on their way at one time: what keeps memory flat, however long a submission is."""

WAVE_BYTES: Final = 16 * 1024 * 1024
"""The same for the bytes of large payloads."""

CONFLICT: Final = InvalidInput("job_id", got="an id that exists with other contents", expected="a new id")


class Refusal(Struct, frozen=True, kw_only=True):
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


Wave: TypeAlias = list[tuple[int, NewRow]]
"""Rows with their positions in what was submitted, no id twice."""


def submit_jobs(
    ports: Ports, config: Settings, jobs: Iterable[NewJob], *, nonce: str = "", spends: bool = True
) -> SubmitReport:
    """Create each job's row, unless its id is there already. For producers; `jobs` may be a generator.

    Rows wait for their tick, but for live ones of a submission of at most `AT_ONCE` rows: as many of them as the class
    has live allowance for are admitted and sent at once. Not if `spends` is False.

    The same id with other contents is refused and the first one stands; class, match, payload and priority are its
    contents, the due time is not. A job that is not valid is refused by name and the others go on. Payloads above
    4 KB go to the object store first, transparently.

    Raises `LedgerUnavailable` or `StorageUnavailable`; what was created by then stays, and submitting again adds
    nothing. `nonce`, new in every call, makes a row whose answer was lost count as created instead of existing.
    """
    report = SubmitReport()

    def refuse(position: int, fault: InvalidInput) -> None:
        report.refused.append(Refusal.of(position, fault))

    left = iter(jobs)
    first = list(islice(left, AT_ONCE + 1))
    at_once = spends and len(first) <= AT_ONCE
    rows = valid_rows(ports, config, enumerate(chain(first, left)), refuse=refuse)
    for number, wave in enumerate(waves(rows)):
        report.add(create_wave(ports, config, wave, nonce=wave_nonce(nonce, number), spends=at_once))
    report.refused.sort(key=lambda refusal: refusal.position)
    return report


# -- waves


def valid_rows(
    ports: Ports, config: Settings, jobs: Iterable[tuple[int, NewJob]], *, refuse: Callable[[int, InvalidInput], None]
) -> Iterator[tuple[int, NewRow]]:
    """The rows of the jobs that are valid, with their positions; the others go to `refuse`."""
    for position, new in jobs:
        try:
            row = new_row(new, config, now_ms=ports.clock.now_ms())
        except InvalidInput as fault:
            refuse(position, fault)
        else:
            yield position, row


def waves(rows: Iterable[tuple[int, NewRow]]) -> Iterator[Wave]:
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


def wave_nonce(nonce: str, number: int) -> str:
    """Of its own for each wave: an id that comes twice in one submission must find the first one, not itself."""
    return f"{nonce}-{number}" if nonce else ""


def create_wave(ports: Ports, config: Settings, wave: Wave, *, nonce: str, spends: bool = False) -> SubmitReport:
    """Objects first, then rows: a row never points at nothing. Doing it again changes nothing and says the same.

    `spends`: live rows may take what there is of the live allowance.
    """
    bodies = {row.job.payload_key: row.body for _, row in wave if row.body is not None}
    ports.parallel.map(
        lambda key: ports.blobs.put_once(key, bodies[key], content_type="application/json"), list(bodies)
    )
    answers = _create(ports, config, [replace(row.job, nonce=nonce) for _, row in wave], spends=spends)
    different = [position for (position, _), answer in zip(wave, answers, strict=True) if answer is Created.DIFFERENT]
    return SubmitReport(
        created=answers.count(Created.CREATED),
        existing=answers.count(Created.EXISTING),
        refused=[Refusal.of(position, CONFLICT) for position in different],
    )


def _create(ports: Ports, config: Settings, jobs: Sequence[Job], *, spends: bool) -> list[Created]:
    """Unordered rows in batches; those of an ordered match one after the other, in the order of their submission."""
    sent = _spend(ports, config, jobs) if spends else set()

    def create(positions: list[int]) -> list[Entered]:
        rows = [jobs[position] for position in positions]
        if config.classes[rows[0].job_class].ordered:
            return [_enter(ports, config, row, spends=spends) for row in rows]
        return [Entered(created=created, job=row) for created, row in zip(ports.ledger.create(rows), rows, strict=True)]

    parts = _parts(config, jobs, but=sent)
    answers = dict.fromkeys(sent, Created.CREATED)
    waiting: list[Job] = []
    for positions, entered in zip(parts, ports.parallel.map(create, parts), strict=True):
        answers |= {position: row.created for position, row in zip(positions, entered, strict=True)}
        waiting += [row.job for row in entered if row.created is Created.CREATED]
    if spends:
        _count_missed(ports, config, waiting)
    return [answers[position] for position in range(len(jobs))]


def _parts(config: Settings, jobs: Sequence[Job], *, but: set[int]) -> list[list[int]]:
    """The jobs' positions, but for those that are created already: unordered ones by batches, ordered ones by match."""
    batches: list[list[int]] = []
    matches: dict[tuple[str, str], list[int]] = {}
    for position, job in enumerate(jobs):
        if position in but:
            continue
        if config.classes[job.job_class].ordered:
            matches.setdefault((job.job_class, job.match_id), []).append(position)
        elif batches and len(batches[-1]) < BATCH:
            batches[-1].append(position)
        else:
            batches.append([position])
    return [*batches, *matches.values()]


def _enter(ports: Ports, config: Settings, job: Job, *, spends: bool) -> Entered:
    """The job at the end of its match; sent at once, if it spends and its turn has come."""

    def claimed(row: Job) -> Claim:
        if _is_live(ports, config, row):
            allowance = ports.ledger.read_allowance(row.job_class)
            if allowance.rows:
                return admitted_at_once(row, allowance, now_ms=ports.clock.now_ms()), allowance
        return row, None

    entered = enter_match(ports, job, claimed if spends else None)
    if entered.job.state is State.QUEUED and entered.created is Created.CREATED:
        send_jobs(ports, [entered.job])
    return entered


# -- the live allowance


def may_spend(job: Job, *, now_ms: int, live_window_s: int) -> bool:
    """Only live work that is due: a late event's jobs are recovery, and wait for a tick as all of it does."""
    return job.state is State.WAITING and 0 <= now_ms - job.due_ms < live_window_s * 1000


def admitted_at_once(job: Job, allowance: Allowance, *, now_ms: int) -> Job:
    """The row as a claim of the granting tick would have left it. Its creation is its entry to `queued`, at epoch 1."""
    return replace(
        job,
        state=State.QUEUED,
        epoch=1,
        lane=Lane.LIVE,
        run_id=allowance.run_id,
        sent_at_ms=now_ms,
        hand_until_ms=allowance.hand_until_ms,
    )


def _spend(ports: Ports, config: Settings, jobs: Sequence[Job]) -> set[int]:
    """Admit as many of the live rows of unordered classes as there is allowance for. Returns their positions."""
    by_class: dict[str, list[int]] = {}
    for position, job in enumerate(jobs):
        if not config.classes[job.job_class].ordered and _is_live(ports, config, job):
            by_class.setdefault(job.job_class, []).append(position)
    spent: set[int] = set()
    for name, positions in by_class.items():
        allowance = ports.ledger.read_allowance(name)
        now_ms = ports.clock.now_ms()
        first = positions[: allowance.rows]
        rows = [admitted_at_once(jobs[position], allowance, now_ms=now_ms) for position in first]
        if rows and ports.ledger.spend(allowance, rows):
            send_jobs(ports, rows)
            spent.update(first)
    return spent


def _count_missed(ports: Ports, config: Settings, waiting: Iterable[Job]) -> None:
    """Say of the rows that were created as waiting which would have spent: the next tick keeps rows for as many."""
    missed = Counter(job.job_class for job in waiting if _is_live(ports, config, job))
    for name, rows in missed.items():
        try:
            ports.ledger.miss(name, rows=rows)
        except LedgerUnavailable:
            ports.log.event("stats_dropped", job_class=name)


def _is_live(ports: Ports, config: Settings, job: Job) -> bool:
    window_s = config.classes[job.job_class].live_window_s
    return may_spend(job, now_ms=ports.clock.now_ms(), live_window_s=window_s)
