"""Put jobs into the ledger: idempotent by job id, in conditional batches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from shared.core.model import Created, Job, NewJob, State
from shared.core.settings import ClassSettings, Settings
from shared.errors import InvalidInput
from shared.ports import Ports

BATCH: Final = 100
MAX_ID_BYTES: Final = 1024
MAX_PAYLOAD_BYTES: Final = 4096
MAX_DUE_MS: Final = 4_102_444_800_000
"""2100-01-01: a due time beyond it is a mistake of units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A job that was not accepted: its position in what was submitted, and why."""

    position: int
    reason: str


@dataclass(slots=True, kw_only=True)
class SubmitReport:
    """created + existing + len(refused) is the number of jobs submitted."""

    created: int = 0
    existing: int = 0
    refused: list[Refusal] = field(default_factory=list)


def submit_jobs(ports: Ports, settings: Settings, jobs: Iterable[NewJob]) -> SubmitReport:
    """Create each job's row as waiting, unless its id is there already.

    The same id with other contents is refused and the first one stands. A job that is not valid is refused by name and
    the others go on. Raises `LedgerUnavailable`; what was created by then stays, and submitting again adds nothing.
    """
    report = SubmitReport()
    numbered = enumerate(jobs)
    while batch := list(islice(numbered, BATCH)):
        rows = list(_valid(batch, settings, report, now_ms=ports.clock.now_ms()))
        _create(ports, rows, report)
    return report


def _valid(
    batch: Sequence[tuple[int, NewJob]], settings: Settings, report: SubmitReport, *, now_ms: int
) -> Iterator[tuple[int, Job]]:
    for position, new in batch:
        try:
            yield position, admit(new, settings, now_ms=now_ms)
        except InvalidInput as fault:
            report.refused.append(Refusal(position=position, reason=str(fault)))


def _create(ports: Ports, rows: Sequence[tuple[int, Job]], report: SubmitReport) -> None:
    answers = ports.ledger.create([job for _, job in rows])
    for (position, _), answer in zip(rows, answers, strict=True):
        if answer is Created.CREATED:
            report.created += 1
        elif answer is Created.EXISTING:
            report.existing += 1
        else:
            reason = "job_id: got an id that exists with other contents, expected a new id"
            report.refused.append(Refusal(position=position, reason=reason))


def admit(new: NewJob, settings: Settings, *, now_ms: int) -> Job:
    """The row of a submitted job. Raises `InvalidInput` that names the first field at fault."""
    job_class = settings.classes.get(new.job_class)
    if job_class is None:
        known = ", ".join(sorted(settings.classes))
        raise InvalidInput("job_class", got="an unknown class", expected=f"one of {known}")
    _check_id("job_id", new.job_id)
    _check_id("match_id", new.match_id)
    _check_payload(new.payload)
    due_ms = now_ms if new.due_ms is None else new.due_ms
    if not 0 <= due_ms <= MAX_DUE_MS:
        raise InvalidInput("due", got="a time out of range", expected="a time from 1970 to 2100")
    return Job(
        job_id=new.job_id,
        job_class=new.job_class,
        match_id=new.match_id,
        payload=new.payload,
        due_ms=due_ms,
        eligible_ms=due_ms,
        priority=_priority(new.priority, job_class),
        state=State.WAITING,
        created_ms=now_ms,
    )


def _check_id(name: str, value: str) -> None:
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidInput(name, got="a string with a lone surrogate", expected="well-formed Unicode") from None
    if not 1 <= size <= MAX_ID_BYTES:
        raise InvalidInput(name, got=f"{size} bytes of UTF-8", expected=f"1 to {MAX_ID_BYTES}")


def _check_payload(payload: str) -> None:
    size = len(payload.encode("utf-8", "surrogatepass"))
    if size > MAX_PAYLOAD_BYTES:
        raise InvalidInput("payload", got=f"{size} bytes", expected=f"at most {MAX_PAYLOAD_BYTES}")
    try:
        json.loads(payload)
    except (ValueError, RecursionError):
        raise InvalidInput("payload", got="text that is not JSON", expected="a JSON value") from None


def _priority(priority: int, job_class: ClassSettings) -> int:
    if not 0 <= priority < job_class.priorities:
        raise InvalidInput(
            "priority", got="a number out of range", expected=f"a whole number from 0 to {job_class.priorities - 1}"
        )
    return priority
