"""What jobs use beside the ledger and the queue, in memory: the shared permits and the object store."""

from __future__ import annotations

from itertools import count
from typing import Final

from shared.domain.settings import CALLS_PER_SHARD, UpstreamSettings
from shared.domain.upstream import Granted, NoRoom, Reservation
from shared.errors import ObjectMissing
from shared.worker.permits import Full, gcra_reserve, parts_of, parts_to_ask

_MS: Final = 1000
"""Microseconds in a millisecond: permits are counted in microseconds."""


class MemoryLimiter:
    """The algorithm of production, over items that cannot conflict.

    `reserved` counts permits per upstream; together with the calls made it says how many were wasted. `requests` are
    what the permits took to reserve.
    """

    def __init__(self, *, calls_per_shard: float = CALLS_PER_SHARD) -> None:
        self.reserved: dict[str, int] = {}
        self.requests = 0
        self._calls_per_shard = calls_per_shard
        self._turns = count()
        self._tats_us: dict[tuple[str, int], int] = {}
        self._held_ms: dict[str, int] = {}

    def reserve(self, upstream: UpstreamSettings, *, calls: int, now_ms: int, latest_ms: int) -> Reservation:
        self.requests += 1
        free_us: list[int] = []
        for part in parts_to_ask(parts_of(upstream, calls_per_shard=self._calls_per_shard), next(self._turns)):
            answer = gcra_reserve(
                self._tats_us.get((upstream.name, part.shard)),
                now_us=now_ms * _MS,
                latest_us=latest_ms * _MS,
                interval_us=part.interval_us,
                calls=calls,
                burst_calls=part.burst_calls,
            )
            if not isinstance(answer, Full):
                self._tats_us[upstream.name, part.shard] = answer.tat_us
                self.reserved[upstream.name] = self.reserved.get(upstream.name, 0) + calls
                return Granted(start_ms=answer.start_us / _MS, spacing_ms=part.interval_us / _MS)
            free_us.append(answer.free_at_us)
        return NoRoom(free_at_ms=min(free_us) / _MS)

    def hold(self, upstream: UpstreamSettings, *, until_ms: int) -> None:
        """The arrival times move behind the hold, burst and all: later reservations start at its end, evenly spaced."""
        for part in parts_of(upstream, calls_per_shard=self._calls_per_shard):
            key, held_us = (upstream.name, part.shard), until_ms * _MS + part.tolerance_us
            self._tats_us[key] = max(held_us, self._tats_us.get(key, held_us))
        self._held_ms[upstream.name] = max(until_ms, self.held_until_ms(upstream))

    def held_until_ms(self, upstream: UpstreamSettings) -> int:
        return self._held_ms.get(upstream.name, 0)


class MemoryBlobs:
    """`objects` is open to tests, which put there what a game would have uploaded."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def read(self, key: str, *, start: int, length: int) -> bytes:
        if key not in self.objects:
            raise ObjectMissing()
        return self.objects[key][start : start + length]

    def put_once(self, key: str, body: bytes, *, content_type: str) -> bool:
        if key in self.objects:
            return False
        self.objects[key] = body
        return True
