"""The places in the sparse `work` index: how a row's state becomes a key, and what a key says (protocol: the ledger).

    <class>#waiting#<priority>#<shard>   <eligible ms>#<epoch>          fresh rows, due times are eligible times
    <class>#retry#<priority>#<shard>     <eligible ms>#<epoch>          rows that waited before: never live again
    <class>#inflight#<shard>             <sent ms>#<epoch>#<copy>
    <class>#behind#<shard>               <due ms>#<epoch>               ordered classes: not the head of their match
    <class>#dead                         <died ms>#<epoch>

Positions sort as text in the order of their numbers. Epoch and copy stand in the position, so that a condition on the
key a reader saw is a fence on them too. These keys are final: changing one means moving every row.
"""

from __future__ import annotations

import hashlib
from typing import Final, TypeAlias

from msgspec import Struct


class IndexKey(Struct, frozen=True, kw_only=True):
    """A row's place in the sparse `work` index: a partition and a position in it. Made and read here alone."""

    partition: str
    position: str


class Nominee(Struct, frozen=True, kw_only=True):
    """What an index read shows of a row. It nominates; the conditional write on the base table decides."""

    job_id: str
    match_id: str
    epoch: int
    key: IndexKey


class KeepPlace(Struct, frozen=True, kw_only=True):
    """The move leaves the row where it stands in the index."""


class LeaveIndex(Struct, frozen=True, kw_only=True):
    """The move takes the row out of the index."""


Place: TypeAlias = IndexKey | KeepPlace | LeaveIndex

SHARDS: Final = 4
"""Partitions per list. One DynamoDB partition takes 1,000 writes/s, so a class can move about 4,000 rows/s."""

_TIME_DIGITS: Final = 15
_EPOCH_DIGITS: Final = 8
_COPY_DIGITS: Final = 6
"""Numbers are padded, so that they sort as text. There is room for times until the year 33658."""


def shard_of(job_id: str) -> int:
    """A stable shard for a job, the same in every process."""
    return hashlib.sha256(job_id.encode("utf-8", "surrogatepass")).digest()[0] % SHARDS


def waiting_partition(job_class: str, *, priority: int, shard: int, retried: bool) -> str:
    return f"{job_class}#{'retry' if retried else 'waiting'}#{priority}#{shard}"


def inflight_partition(job_class: str, *, shard: int) -> str:
    return f"{job_class}#inflight#{shard}"


def behind_partition(job_class: str, *, shard: int) -> str:
    return f"{job_class}#behind#{shard}"


def dead_partition(job_class: str) -> str:
    return f"{job_class}#dead"


def at(time_ms: int) -> str:
    """The smallest position at `time_ms`: every row at that time or later sorts at or after it."""
    return f"{max(0, time_ms):0{_TIME_DIGITS}d}"


def position(time_ms: int, *, epoch: int, copy: int | None = None) -> str:
    suffix = "" if copy is None else f"#{copy:0{_COPY_DIGITS}d}"
    return f"{at(time_ms)}#{epoch:0{_EPOCH_DIGITS}d}{suffix}"


def time_of(key: IndexKey) -> int:
    """Milliseconds: eligible, sent or died, by the partition."""
    return int(key.position.split("#")[0])


def copy_of(key: IndexKey) -> int:
    """The copy of an in-flight row."""
    return int(key.position.split("#")[2])


def waiting(job_id: str, job_class: str, *, priority: int, retried: bool, eligible_ms: int, epoch: int) -> IndexKey:
    partition = waiting_partition(job_class, priority=priority, shard=shard_of(job_id), retried=retried)
    return IndexKey(partition=partition, position=position(eligible_ms, epoch=epoch))


def inflight(job_id: str, job_class: str, *, sent_at_ms: int, epoch: int, copy: int) -> IndexKey:
    partition = inflight_partition(job_class, shard=shard_of(job_id))
    return IndexKey(partition=partition, position=position(sent_at_ms, epoch=epoch, copy=copy))


def behind(job_id: str, job_class: str, *, due_ms: int, epoch: int) -> IndexKey:
    return IndexKey(
        partition=behind_partition(job_class, shard=shard_of(job_id)), position=position(due_ms, epoch=epoch)
    )


def dead(job_class: str, *, died_ms: int, epoch: int) -> IndexKey:
    return IndexKey(partition=dead_partition(job_class), position=position(died_ms, epoch=epoch))


class IndexPage(Struct, frozen=True, kw_only=True):
    """Up to a limit of nominees in index order. `resume` is None on the last page."""

    nominees: tuple[Nominee, ...]
    resume: str | None
