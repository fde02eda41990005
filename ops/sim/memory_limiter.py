"""The shared permits in memory: the same algorithm as production, with an item that cannot conflict."""

from __future__ import annotations

from shared.core.permits import Full, gcra_reserve, interval_us
from shared.core.settings import UpstreamSettings
from shared.ports import Granted, NoRoom, Reservation

_MS: int = 1000


class MemoryLimiter:
    """`reserved` counts permits per upstream; together with the calls made it says how many were wasted."""

    def __init__(self) -> None:
        self.reserved: dict[str, int] = {}
        self._tats_us: dict[str, int] = {}
        self._holds_ms: dict[str, int] = {}

    def reserve(self, upstream: UpstreamSettings, *, calls: int, now_ms: int, latest_ms: int) -> Reservation:
        # A hold is a later "now": nothing starts before its end, and what is reserved behind it is spaced from there.
        begin_ms = max(now_ms, self._holds_ms.get(upstream.name, now_ms))
        spacing_us = interval_us(upstream.limit_per_s)
        answer = gcra_reserve(
            self._tats_us.get(upstream.name),
            now_us=begin_ms * _MS,
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
        self._holds_ms[upstream.name] = max(until_ms, self._holds_ms.get(upstream.name, until_ms))
