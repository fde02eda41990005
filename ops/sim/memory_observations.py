"""What the ledger remembers for the rates: counters by minute, and what was learned of each upstream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from shared.core.rate import Learned
from shared.core.stats import StatsWindow


class MemoryObservations:
    def __init__(self) -> None:
        self.writes: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self._stats: dict[tuple[str, int], Counter[str]] = {}
        self._learned: dict[str, Learned] = {}

    # -- the learned rate

    def read_learned(self, upstream: str) -> Learned | None:
        self.reads["read_learned"] += 1
        return self._learned.get(upstream)

    def store_learned(self, upstream: str, learned: Learned, *, before: Learned | None) -> bool:
        self.writes["store_learned"] += 1
        found = self._learned.get(upstream)
        if (None if found is None else found.window_ms) == (None if before is None else before.window_ms):
            self._learned[upstream] = learned
        return self._learned.get(upstream) == learned

    # -- stats

    def add_stats(self, job_class: str, *, window_ms: int, shard: int, counters: Mapping[str, int]) -> None:
        self.writes["add_stats"] += 1
        self._stats.setdefault((job_class, window_ms), Counter()).update(counters)

    def read_stats(self, job_class: str, *, windows_ms: Sequence[int]) -> list[StatsWindow]:
        self.reads["read_stats"] += 1
        found = [(start_ms, self._stats.get((job_class, start_ms), Counter())) for start_ms in windows_ms]
        return [StatsWindow(start_ms=start_ms, counters=dict(counters)) for start_ms, counters in found]
