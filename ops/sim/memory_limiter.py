"""The shared permits in memory: the same algorithm as production, with an item that cannot conflict."""

from __future__ import annotations

from typing import Final

from shared.core.exchange import Granted, NoRoom, Reservation
from shared.core.permits import Full, gcra_reserve, interval_us
from shared.core.settings import UpstreamSettings

_MS: Final = 1000


class MemoryLimiter:
    """`reserved` counts permits per upstream; together with the calls made it says how many were wasted."""

    def __init__(self) -> None:
        self.reserved: dict[str, int] = {}
        self._tats_us: dict[str, int] = {}
        self._held_ms: dict[str, int] = {}

    def reserve(self, upstream: UpstreamSettings, *, calls: int, now_ms: int, latest_ms: int) -> Reservation:
        spacing_us = interval_us(upstream.limit_per_s)
        answer = gcra_reserve(
            self._tats_us.get(upstream.name),
            now_us=now_ms * _MS,
            latest_us=latest_ms * _MS,
            interval_us=spacing_us,
            calls=calls,
            burst_calls=upstream.burst_calls,
        )
        if isinstance(answer, Full):
            return NoRoom(free_at_ms=answer.free_at_us / _MS)
        self._tats_us[upstream.name] = answer.tat_us
        self.reserved[upstream.name] = self.reserved.get(upstream.name, 0) + calls
        return Granted(start_ms=answer.start_us / _MS, spacing_ms=spacing_us / _MS)

    def hold(self, upstream: UpstreamSettings, *, until_ms: int) -> None:
        """The arrival time moves behind the hold, burst and all: later reservations start at its end, evenly spaced."""
        tolerance_us = (upstream.burst_calls - 1) * interval_us(upstream.limit_per_s)
        held_us = until_ms * _MS + tolerance_us
        self._tats_us[upstream.name] = max(held_us, self._tats_us.get(upstream.name, held_us))
        self._held_ms[upstream.name] = max(until_ms, self.held_until_ms(upstream))

    def held_until_ms(self, upstream: UpstreamSettings) -> int:
        return self._held_ms.get(upstream.name, 0)
