"""Counters of one worker invocation, by the minute in which things happened, flushed seldom."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import Final

from shared.domain import stats
from shared.errors import LedgerUnavailable
from shared.ports import Ports

FLUSH_EVERY_MS: Final = 30_000
"""A long invocation writes its counters this often, or a tick would not see what it does."""


class Tally:
    """Collects in memory; groups that run in parallel share one. The lock is never held across a port call."""

    def __init__(self, ports: Ports, job_class: str, *, shard: int) -> None:
        self._ports = ports
        self._job_class = job_class
        self._shard = shard
        self._lock = Lock()
        self._windows: dict[int, Counter[str]] = {}
        self._flushed_ms = self._looked_ms = ports.clock.now_ms()
        self.longest_chunk_ms = 0
        """The longest chunk that this invocation has seen."""

    def add(self, name: str, amount: int = 1) -> None:
        window_ms = stats.window_of(self._ports.clock.now_ms())
        with self._lock:
            self._windows.setdefault(window_ms, Counter())[name] += amount

    def chunk(self, duration_ms: int) -> None:
        self.longest_chunk_ms = max(self.longest_chunk_ms, duration_ms)
        self.add(stats.CHUNKS)
        self.add(stats.CHUNK_MS, duration_ms)
        self.add(stats.bucket_name(duration_ms))

    def flush_if_due(self) -> None:
        """Between two chunks: every 30 s, and when the next chunk, with its wait for permits, may not end before the
        minute does, at whose end a tick judges what was counted."""
        now_ms = self._ports.clock.now_ms()
        unflushed_ms, lap_ms = now_ms - self._flushed_ms, max(self.longest_chunk_ms, now_ms - self._looked_ms)
        self._looked_ms = now_ms
        minute_ends = stats.window_of(now_ms + lap_ms) != stats.window_of(now_ms)
        if unflushed_ms >= FLUSH_EVERY_MS or (minute_ends and unflushed_ms >= lap_ms):
            self.flush()

    def flush(self) -> None:
        """Write what was collected. Statistics that cannot be written are dropped: they are never a condition."""
        with self._lock:
            windows, self._windows = self._windows, {}
        self._flushed_ms = self._ports.clock.now_ms()
        for window_ms, counters in windows.items():
            counters[stats.FLUSHES] += 1
            try:
                self._ports.ledger.add_stats(self._job_class, window_ms=window_ms, shard=self._shard, counters=counters)
            except LedgerUnavailable:
                self._ports.log.event("stats_dropped", job_class=self._job_class)
