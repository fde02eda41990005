"""Messages: what travels in the queue, on its way out and in, and what SQS FIFO accepts of it (facts F3, F5)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Final, TypeAlias, TypeVar

from msgspec import Meta, Struct

from shared.domain.job import Job, Lane, State

_Name: TypeAlias = Annotated[str, Meta(min_length=1)]

_Count: TypeAlias = Annotated[int, Meta(ge=0)]


class Message(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What travels in the queue, as JSON: a hint at a row, never the truth (rule 1). The fields are the row's."""

    job_id: _Name
    job_class: _Name
    cursor: str
    epoch: _Count
    copy: _Count

    @property
    def dedup_id(self) -> str:
        """SHA-256 hex of the identity, a pure function of it: an SDK retry of one send is dropped, a re-send is not."""
        identity = json.dumps([self.job_id, self.cursor, self.epoch, self.copy], ensure_ascii=True)
        return hashlib.sha256(identity.encode("ascii")).hexdigest()


def message_of(job: Job) -> Message:
    return Message(job_id=job.job_id, job_class=job.job_class, cursor=job.cursor, epoch=job.epoch, copy=job.copy)


def is_current(job: Job | None, message: Message) -> bool:
    """Rule 1: a message whose (job, epoch) is not (queued, epoch) of the row is stale."""
    return job is not None and job.state is State.QUEUED and job.epoch == message.epoch


class Outgoing(Struct, frozen=True, kw_only=True):
    """A message and the FIFO group that it belongs to."""

    message: Message
    group: str


class BatchAnswer(Struct, frozen=True, kw_only=True):
    """What SendMessageBatch said, by position in the batch. A position in neither is unknown (fact F4)."""

    successful: frozenset[int]
    failed: frozenset[int]


class Delivery(Struct, frozen=True, kw_only=True):
    """One received message with what the queue says of it."""

    message: Message
    lane: Lane
    group: str
    message_id: str
    receipt: str
    receive_count: int
    first_received_ms: int


MAX_ENTRIES: Final = 10
"""The most messages in one batch."""

MAX_BYTES: Final = 262_144
"""The most bytes of one batch, its messages together."""

HASHED_PREFIX: Final = "sha256-"
"""Begins every hashed group id, and no other: a match whose id begins so is hashed too."""

ACCEPTED_ID: Final = re.compile(r"[!-~]{1,128}")
"""What SQS takes as a group or deduplication id: printable ASCII except the space (fact F3)."""

Entry = TypeVar("Entry")


def batches(outgoing: Iterable[Entry], *, size: Callable[[Entry], int]) -> list[list[Entry]]:
    """The entries in their order, in as few batches as that allows: at most 10 entries and 262,144 bytes each.

    `size` gives an entry's bytes as UTF-8. An entry above the limit gets a batch of its own, so that its refusal
    hurts no other.
    """
    made: list[list[Entry]] = []
    room = 0
    for entry in outgoing:
        entry_bytes = size(entry)
        if not made or len(made[-1]) == MAX_ENTRIES or entry_bytes > room:
            made.append([])
            room = MAX_BYTES
        made[-1].append(entry)
        room -= entry_bytes
    return made


def group_id(match_id: str) -> str:
    """The FIFO group of a match: its id where SQS accepts that, else the SHA-256 of the id's exact bytes.

    Nothing is normalised, so distinct matches have distinct groups. Never raises, not for lone surrogates either.
    """
    if ACCEPTED_ID.fullmatch(match_id) and not match_id.startswith(HASHED_PREFIX):
        return match_id
    return HASHED_PREFIX + hashlib.sha256(match_id.encode("utf-8", "surrogatepass")).hexdigest()
