"""The words of the system as data: jobs, messages, lanes, moves. Times are integer milliseconds since the epoch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from shared.core.flags import Flag
from shared.core.values import frozen

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


@frozen
class StartMark:
    """Left by a redelivered message just before its chunk: found unchanged by a later delivery, it proves a crash.

    A twin of the same delivery has the same `copy` and `receives` and proves nothing.
    """

    epoch: int
    cursor: str
    copy: int = 0
    receives: int = 0


@frozen
class Job:
    """One row of work, as the ledger holds it.

    `cursor` is opaque to everything but the kind, and "" before the first chunk. `payload` is JSON text; a large one is
    an object in the store under `payload_key`, and `payload` is "" (`core.payloads`): a kind sees the text in any case.
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


@frozen
class Message:
    """What travels in the queue: a hint at a row, never the truth (rule 1)."""

    job_id: str
    job_class: str
    cursor: str
    epoch: int
    copy: int

    @property
    def dedup_id(self) -> str:
        """SHA-256 hex of the identity, a pure function of it: an SDK retry of one send is dropped, a re-send is not."""
        identity = json.dumps([self.job_id, self.cursor, self.epoch, self.copy], ensure_ascii=True)
        return hashlib.sha256(identity.encode("ascii")).hexdigest()


@frozen
class IndexKey:
    """A row's place in the sparse `work` index: a partition and a position in it. Built and read by `work_index`."""

    partition: str
    position: str


@frozen
class Nominee:
    """What an index read shows of a row. It nominates; the conditional write on the base table decides."""

    job_id: str
    match_id: str
    epoch: int
    key: IndexKey


@frozen
class RowFence:
    """The row must still be in `state` at (epoch, cursor). Rule 2's condition for everyone who has read the row.

    `cursor` and `copy` are compared only where they are given: the dead-letter reader never moves the cursor.
    """

    state: State
    epoch: int
    cursor: str | None = None
    copy: int | None = None


@frozen
class IndexFence:
    """The row must still stand at this place in the index: the condition of whoever has only seen the index."""

    key: IndexKey


Fence: TypeAlias = RowFence | IndexFence


@frozen
class Output:
    """The result of the chunk that began at `cursor`, as JSON text. Created once, with that chunk's commit (I2)."""

    cursor: str
    body: str


@frozen
class KeepPlace:
    """The move leaves the row where it stands in the index."""


@frozen
class LeaveIndex:
    """The move takes the row out of the index."""


Place: TypeAlias = IndexKey | KeepPlace | LeaveIndex


@frozen
class Move:
    """One conditional change of one row, decided by `lifecycle`, carried out by a `Ledger` in a single atomic write.

    `changes` maps Job fields to new values; absent ones stay as they are in the row, so that a concurrent re-send's
    copy survives a mid-job commit. `nonce` None (a re-send) leaves the row's; `output` is created along with it.
    """

    name: str
    job_id: str
    fence: Fence
    changes: Mapping[str, Any]
    place: Place
    nonce: str | None
    output: Output | None = None


@frozen
class Won:
    """The move was made, by this call or by an earlier attempt of it whose answer was lost."""

    job: Job


@frozen
class Lost:
    """The fence did not hold: someone else moved the row first. Stop; never assume."""


@frozen
class OutputTaken:
    """The fence held but this cursor's output exists already: the job went in a circle, which is its own failure."""


MoveResult: TypeAlias = Won | Lost | OutputTaken


@frozen
class Match:
    """The line of an ordered match: jobs have the numbers 1, 2, ... in the order of their submission.

    `head_seq` has its turn (dead, it holds the line), `tail_seq` came last; the line is empty while head is beyond it.
    """

    job_class: str
    match_id: str
    head_seq: int = 1
    tail_seq: int = 0

    @property
    def empty(self) -> bool:
        return self.head_seq > self.tail_seq


@frozen
class MatchStep:
    """One atomic change of a line and of the rows that it moves: `before` as read, all fences, or nothing.

    `enters` is a new row, which takes its own `seq` in the line.
    """

    before: Match
    after: Match
    moves: tuple[Move, ...] = ()
    enters: Job | None = None


@frozen
class Stepped:
    """The step was made, by this call or by an earlier attempt of it."""


@frozen
class MatchChanged:
    """The line, a later row of the step or the entering id was not as read: read again and decide again."""


StepResult: TypeAlias = Stepped | MatchChanged | Lost | OutputTaken


@frozen
class NewJob:
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


@frozen
class LaneCounts:
    """Rows per lane."""

    live: int = 0
    recovery: int = 0

    @property
    def total(self) -> int:
        return self.live + self.recovery


@frozen
class Counts:
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
