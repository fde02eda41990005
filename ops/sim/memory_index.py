"""The sparse `work` index in memory, as stale as it is told to be (TRAPS 17).

A change reaches readers `lag_ms` later, and a move between two places is a delete and an insert: with a gap between
them a reader in between sees the row in neither place, with a negative gap in both. One row's changes stay in order.
"""

from __future__ import annotations

import heapq
import json
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from shared.core.exchange import IndexPage
from shared.core.model import IndexKey, Job, Nominee

_Entry: TypeAlias = tuple[str, str]
"""(position, job id): the order within a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """How late an index shows a row: one rule for all rows, or a draw per change."""

    lag_ms: Callable[[str], int]
    gap_ms: Callable[[str], int]

    @classmethod
    def fixed(cls, lag_ms: int = 0, *, gap_ms: int = 0) -> Staleness:
        return cls(lag_ms=lambda _: lag_ms, gap_ms=lambda _: gap_ms)


@dataclass(slots=True)
class _Partition:
    """Entries in order. Bisection in a plain list: moving 12,500 pointers is microseconds."""

    order: list[_Entry] = field(default_factory=list)
    nominees: dict[_Entry, Nominee] = field(default_factory=dict)

    def add(self, nominee: Nominee) -> None:
        entry = (nominee.key.position, nominee.job_id)
        if entry not in self.nominees:
            insort(self.order, entry)
        self.nominees[entry] = nominee

    def drop(self, key: IndexKey, job_id: str) -> None:
        entry = (key.position, job_id)
        if self.nominees.pop(entry, None) is not None:
            del self.order[bisect_left(self.order, entry)]


class MemoryIndex:
    def __init__(self, now_ms: Callable[[], int], staleness: Staleness | None = None) -> None:
        self._now_ms = now_ms
        self._staleness = staleness
        self._partitions: dict[str, _Partition] = {}
        self._pending: list[tuple[int, int, Callable[[], None]]] = []
        self._changes = 0
        self._settled_ms: dict[str, int] = {}

    def shift(self, job: Job, old: IndexKey | None, new: IndexKey | None) -> None:
        """The row stood at `old` and now stands at `new`; None is nowhere."""
        if old == new:
            return
        nominee = None
        if new is not None:
            nominee = Nominee(job_id=job.job_id, match_id=job.match_id, epoch=job.epoch, key=new)
        if self._staleness is None:
            self._drop(old, job.job_id)
            self._add(nominee)
            return
        gap_ms = self._staleness.gap_ms(job.job_id) if old and new else 0
        start_ms = max(self._now_ms() + self._staleness.lag_ms(job.job_id), self._settled_ms.get(job.job_id, 0))
        self._settled_ms[job.job_id] = start_ms + abs(gap_ms)
        self._later(start_ms + max(0, -gap_ms), lambda: self._drop(old, job.job_id))
        self._later(start_ms + max(0, gap_ms), lambda: self._add(nominee))

    def count(self, partition: str, *, low: str, high: str) -> int:
        order = self._read(partition).order
        return max(0, bisect_left(order, (high, "")) - bisect_left(order, (low, "")))

    def page(self, partition: str, *, low: str, high: str, limit: int, resume: str | None = None) -> IndexPage:
        """As DynamoDB pages: a full page always names a key to resume from, also where nothing follows."""
        if limit < 1:
            raise ValueError(f"limit: got {limit}, expected 1 or more")
        rows = self._read(partition)
        start = bisect_left(rows.order, (low, ""))
        if resume is not None:
            position, job_id = json.loads(resume)
            start = max(start, bisect_right(rows.order, (position, job_id)))
        entries = rows.order[start : max(start, min(start + limit, bisect_left(rows.order, (high, ""))))]
        return IndexPage(
            nominees=tuple(rows.nominees[entry] for entry in entries),
            resume=json.dumps(entries[-1]) if len(entries) == limit else None,
        )

    def _read(self, partition: str) -> _Partition:
        while self._pending and self._pending[0][0] <= self._now_ms():
            heapq.heappop(self._pending)[2]()
        return self._partitions.setdefault(partition, _Partition())

    def _later(self, at_ms: int, change: Callable[[], None]) -> None:
        self._changes += 1
        heapq.heappush(self._pending, (at_ms, self._changes, change))

    def _add(self, nominee: Nominee | None) -> None:
        if nominee is not None:
            self._partitions.setdefault(nominee.key.partition, _Partition()).add(nominee)

    def _drop(self, key: IndexKey | None, job_id: str) -> None:
        if key is not None:
            self._partitions.setdefault(key.partition, _Partition()).drop(key, job_id)
