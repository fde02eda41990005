"""What a job is: the row in the ledger, its states, its lanes, what a producer hands in, and what of it is counted.

Times are integer milliseconds since the epoch, UTC; a name says its unit at its end.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

MINUTE_MS: Final = 60_000

SLUICE: Final = "sluice"
"""Signs for a class that stopped itself, after an abort or on an exhausted quota."""


class Flag(Struct, frozen=True, kw_only=True):
    """A signature under what a person changes (I10). On control it stands for a pause, a halt, a resume or a switch, on
    an override for its number, on a row for an operator's move of it."""

    by: str
    """Who wanted it."""
    why: str
    """The reason, in the words of whoever wanted it."""
    at_ms: int
    """When it was said."""


class State(StrEnum):
    """Where a job is. `lifecycle` holds every way from one to another."""

    WAITING = "waiting"
    """For a tick that claims it, from `eligible_ms` on."""
    QUEUED = "queued"
    """In flight: claimed, its message sent or about to be."""
    BEHIND = "behind"
    """In an ordered match, for the jobs before it to end."""
    DONE = "done"
    DEAD = "dead"
    """A bound was reached; an operator decides."""
    SKIPPED = "skipped"
    """Given up by an operator."""
    REPLACED = "replaced"
    """Given up by an operator, for another job in its place."""


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
    """One row of work, as the ledger holds it. `lifecycle` makes every change of it."""

    job_id: str
    """Chosen by the producer, unique in the deployment. Submitting it twice is submitting it once."""
    job_class: str
    """The class that paces it. The producer says which; never changes."""
    match_id: str
    """The ordering key, and the FIFO group of its messages. The producer says which; never changes."""
    payload: str
    """JSON text from the producer. "" in the row of a large one, which stands under `payload_key`: a kind sees the text
    in any case."""
    due_ms: int
    """When the work should begin at the earliest: said by the producer, or else the submission. Decides the lane."""
    payload_key: str = ""
    """The large payload's key in the object store, set by the submission; "" while the row holds the payload itself."""
    priority: int = 0
    """Claimed first at 0. The producer chooses among the class's priorities."""
    state: State = State.WAITING
    """Where the job is. Every move that `lifecycle.TABLE` lists sets it."""
    cursor: str = ""
    """Where the next chunk begins, in the kind's own words; "" before the first one. Set by the commit of a chunk."""
    epoch: int = 0
    """How often the row entered `queued`. The fence: a message of another epoch is stale (rule 1)."""
    copy: int = 0
    """How often the sweep sent this epoch's message again (rule 3). Part of the message's identity."""
    nonce: str = ""
    """The invocation that wrote the row last: it recognises its own write after a lost answer (rule 2)."""
    lane: Lane | None = None
    """The queue that the present epoch's message went to. Set by a claim and a handover; None before the first one."""
    eligible_ms: int = 0
    """From when on a waiting row may be claimed: its due time, or the end of a delay. For a dead row, when it died."""
    retried: bool = False
    """The row went back to waiting once, which keeps it out of the live lane from then on."""
    sent_at_ms: int = 0
    """When the present epoch's message was last sent, or would have been: the sweep looks for old ones."""
    run_id: str = ""
    """The run whose budget admitted the job. Set by a claim, inherited by a handover."""
    hand_until_ms: int = 0
    """Until when the finished job may hand over to the next one of its ordered match: the next tick is expected then.
    Set by a claim, inherited by a handover."""
    hop: int = 0
    """Continuations since the last claim. The worker returns the row to waiting at the class's `max_hops`."""
    attempts: int = 0
    """Failures of the job's own code (I9). At the class's bound the job is dead; an operator's retry begins at 0."""
    mark: StartMark | None = None
    """Left by a worker before it runs a redelivered chunk: found unchanged, it proves a crash."""
    crashes: int = 0
    """Proven crashes of the present chunk. A commit sets them to 0; at the class's bound the job is dead."""
    transport_deaths: int = 0
    """Messages of the present chunk that ended in the dead-letter queue. A commit sets them to 0, as for crashes."""
    last_error: str = ""
    """The reason code of the last failure, refusal or release; "" when the job is done. Never a text with content."""
    seq: int = 0
    """The place in an ordered match, from 1 on, given by the submission. 0 in a class that is not ordered."""
    created_ms: int = 0
    """When the row was created."""
    changed: Flag | None = None
    """The operator who last retried, skipped, replaced or entered this job, and why. None: nobody did."""


class Output(Struct, frozen=True, kw_only=True):
    """The result of the chunk that began at `cursor`, as JSON text. Created once, with that chunk's commit (I2)."""

    cursor: str
    body: str


class NewJob(Struct, frozen=True, kw_only=True):
    """A job as a producer hands it in; the fields are those of `Job`."""

    job_id: str
    job_class: str
    match_id: str
    payload: str
    due_ms: int | None = None
    """None: now."""
    priority: int = 0


class Created(StrEnum):
    """What became of one submitted job."""

    CREATED = "created"
    EXISTING = "existing"
    """The id exists, with the same work."""
    DIFFERENT = "different"
    """The id exists, with other work: this one was not taken."""


class LaneCounts(Struct, frozen=True, kw_only=True):
    """Rows per lane."""

    live: int = 0
    recovery: int = 0

    @property
    def total(self) -> int:
        return self.live + self.recovery


class Counts(Struct, frozen=True, kw_only=True):
    """What the index holds of one class, but for what is in flight."""

    eligible: LaneCounts = field(default_factory=LaneCounts)
    """Waiting rows that may be claimed now."""
    later: int = 0
    """Waiting rows that may be claimed later: not due yet, or delayed."""
    behind: int = 0
    """Jobs of ordered matches that wait for the ones before them."""
    dead: int = 0
    oldest_eligible_ms: int | None = None
    """Since when the oldest eligible row may be claimed; None where there is none."""

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
