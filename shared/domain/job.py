"""Who wanted something, why and when: the signature under everything that a person changes (I10).

The words of the system as data: jobs, messages, lanes, moves. Times are integer milliseconds since the epoch.

Where a payload lives: a small one in its row, a large one in the object store under a key that names its content.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

SLUICE: Final = "sluice"
"""Who signs where nobody did: a class that stopped itself, after an abort or on an exhausted quota."""


class Flag(Struct, frozen=True, kw_only=True):
    """Stands on control for a pause, a halt and a switch, and on a row for an operator's move of it."""

    by: str
    why: str
    at_ms: int


MINUTE_MS: Final = 60_000


class State(StrEnum):
    """Where a job is. `lifecycle` holds every way from one to another."""

    WAITING = "waiting"
    QUEUED = "queued"
    BEHIND = "behind"
    DONE = "done"
    DEAD = "dead"
    SKIPPED = "skipped"
    REPLACED = "replaced"


class Lane(StrEnum):
    """Which queue a claim goes to: `live` became due within the live window, `recovery` is older or retried."""

    LIVE = "live"
    RECOVERY = "recovery"


class StartMark(Struct, frozen=True, kw_only=True):
    """Left by a redelivered message just before its chunk: found unchanged by a later delivery, it proves a crash.

    A twin of the same delivery has the same `copy` and `receives` and proves nothing.
    """

    epoch: int
    cursor: str
    copy: int = 0
    receives: int = 0


class Job(Struct, frozen=True, kw_only=True):
    """One row of work, as the ledger holds it.

    `cursor` is opaque to everything but the kind, and "" before the first chunk. `payload` is JSON text; a large one is
    an object in the store under `payload_key`, and `payload` is "": a kind sees the text in any case.
    `seq` orders a match's jobs in an ordered class and is 0 elsewhere. `eligible_ms` is when a waiting row may be
    claimed; `retried` says that it waited before, which keeps it out of the live lane. `changed`: an operator moved it.
    """

    job_id: str
    job_class: str
    match_id: str
    payload: str
    due_ms: int
    payload_key: str = ""
    priority: int = 0
    state: State = State.WAITING
    cursor: str = ""
    epoch: int = 0
    copy: int = 0
    nonce: str = ""
    lane: Lane | None = None
    eligible_ms: int = 0
    retried: bool = False
    sent_at_ms: int = 0
    run_id: str = ""
    hand_until_ms: int = 0
    hop: int = 0
    attempts: int = 0
    mark: StartMark | None = None
    crashes: int = 0
    transport_deaths: int = 0
    last_error: str = ""
    seq: int = 0
    created_ms: int = 0
    changed: Flag | None = None


class Output(Struct, frozen=True, kw_only=True):
    """The result of the chunk that began at `cursor`, as JSON text. Created once, with that chunk's commit (I2)."""

    cursor: str
    body: str


class NewJob(Struct, frozen=True, kw_only=True):
    """A job as a producer hands it in. `payload` is JSON text; `due_ms` None means now."""

    job_id: str
    job_class: str
    match_id: str
    payload: str
    due_ms: int | None = None
    priority: int = 0


class Created(StrEnum):
    """What became of one submitted job."""

    CREATED = "created"
    EXISTING = "existing"
    DIFFERENT = "different"


class LaneCounts(Struct, frozen=True, kw_only=True):
    """Rows per lane."""

    live: int = 0
    recovery: int = 0

    @property
    def total(self) -> int:
        return self.live + self.recovery


class Counts(Struct, frozen=True, kw_only=True):
    """What the index holds of one class. `eligible` rows may be claimed now, `later` ones are not due yet."""

    eligible: LaneCounts = field(default_factory=LaneCounts)
    later: int = 0
    behind: int = 0
    dead: int = 0
    oldest_eligible_ms: int | None = None

    @property
    def waiting(self) -> int:
        return self.eligible.total + self.later


def same_work(one: Job, other: Job) -> bool:
    """Whether two submissions under one id ask for the same work. A due time left open differs at every attempt."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("job_class", "match_id", "payload", "payload_key", "priority")
    )


INLINE_BYTES: Final = 4096
"""The largest payload, as UTF-8, that a row holds itself: rows are read and written whole at every move."""

MAX_PAYLOAD_BYTES: Final = 1_048_576
"""The hard limit. What is larger belongs into the object store by its producer, with its key as the payload."""


def payload_key(body: bytes) -> str:
    """By content, so that the same job submitted again means the same object, and no two payloads share one."""
    return f"payloads/{hashlib.sha256(body).hexdigest()}"
