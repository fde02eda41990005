"""Time and threads of a real process. The only place in what ships that reads the wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

DEFAULT_THREADS: Final = 32
"""Half of a client's connection pool: two fan-outs at a time find a free connection each."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)


class ThreadParallel:
    """A pool per call: one inside another cannot wait for threads that the outer one holds."""

    def __init__(self, threads: int = DEFAULT_THREADS) -> None:
        self._threads = threads

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        if not items:
            return []
        with ThreadPoolExecutor(max_workers=min(self._threads, len(items))) as pool:
            futures = [pool.submit(work, item) for item in items]
        return [future.result() for future in futures]  # the pool has waited for all of them
