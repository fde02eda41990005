"""The `Limiter`: one GCRA for all workers, as one number in one item (I7, TRAPS 42). The algorithm: `core.permits`.

Read, compute and write back if unchanged would livelock under 50 writers. So the addition happens in the write:

    busy   now <= tat <= latest + tolerance    tat := tat + cost         the old tat says when the calls may start
    idle   no tat, or tat < now                tat := now + cost         they may start now
    full   tat > latest + tolerance            nothing is written        NoRoom

A refused condition shows the item, which says what to try instead. The arrival time never falls, so `busy` and `idle`
cannot alternate for long. No attempt is repeated after a lost answer: that wastes a permit, and never makes one.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from shared.aws import keys
from shared.aws.keys import Item
from shared.aws.table import Answer, Table, Unmet, update_of
from shared.core.exchange import Granted, NoRoom, Reservation
from shared.core.permits import interval_us
from shared.core.settings import UpstreamSettings
from shared.errors import LedgerUnavailable

BUSY: Final = "#tat_us BETWEEN :was_now AND :was_last"
"""permits are reserved up to tat ── (another reserves: tat grows, we start later or not at all) ── ours follow on"""

IDLE: Final = "attribute_not_exists(#tat_us) OR #tat_us < :was_now"
"""nobody called for a while ── (another was first: it is busy now) ── ours start at once ✗"""

NOT_HELD_LONGER: Final = "attribute_not_exists(#tat_us) OR #tat_us < :new_tat_us"
"""hold until 12:00:30 ── (another's hold until 12:00:10 arrives late) ✗"""

NO_LATER_HOLD: Final = "attribute_not_exists(#held_until_ms) OR #held_until_ms < :new_held_until_ms"
"""the same, for permits that were reserved before the hold"""

_TRIES: Final = 4
_MS: Final = 1000


class DynamoLimiter:
    """`shared.ports.Limiter` over the item UPSTREAM#<name>."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def reserve(self, upstream: UpstreamSettings, *, calls: int, now_ms: int, latest_ms: int) -> Reservation:
        spacing_us = interval_us(upstream.limit_per_s)
        tolerance_us = (upstream.burst_calls - 1) * spacing_us
        cost_us, now_us, latest_us = calls * spacing_us, now_ms * _MS, latest_ms * _MS
        if calls < 1:
            raise ValueError(f"calls must be at least 1, got {calls}")
        if latest_us < now_us:  # no permit starts in the past
            tat_us = _tat_of(self._table.get(keys.upstream(upstream.name)) or {}) or now_us
            return NoRoom(free_at_ms=max(now_us, tat_us - tolerance_us) / _MS)
        tat_us = now_us
        for _ in range(_TRIES):
            answer = (
                self._follow_on(upstream.name, cost_us, now_us=now_us, last_us=latest_us + tolerance_us)
                if tat_us >= now_us
                else self._start_afresh(upstream.name, cost_us, now_us=now_us)
            )
            if not isinstance(answer, Unmet):
                virtual_us = (_tat_of(answer.item) or 0) - cost_us
                start_us = max(now_us, virtual_us - tolerance_us)
                return Granted(start_ms=start_us / _MS, spacing_ms=spacing_us / _MS)
            tat_us = _tat_of(answer.old) or 0
            if tat_us > latest_us + tolerance_us:
                return NoRoom(free_at_ms=(tat_us - tolerance_us) / _MS)
        raise LedgerUnavailable("conflict")

    def hold(self, upstream: UpstreamSettings, *, until_ms: int) -> None:
        """First the word to those who hold permits already, then the arrival time for those who come."""
        key = keys.upstream(upstream.name)
        held = {"held_until_ms": {"N": str(ceil(until_ms))}}
        self._table.update(update_of(key, values=held, condition=NO_LATER_HOLD), once=True)
        tolerance_us = (upstream.burst_calls - 1) * interval_us(upstream.limit_per_s)
        tat = {"N": str(ceil(until_ms) * _MS + tolerance_us)}
        self._table.update(update_of(key, values={"tat_us": tat}, condition=NOT_HELD_LONGER), once=True)

    def held_until_ms(self, upstream: UpstreamSettings) -> int:
        item = self._table.get(keys.upstream(upstream.name)) or {}
        return int(item["held_until_ms"]["N"]) if "held_until_ms" in item else 0

    def _follow_on(self, name: str, cost_us: int, *, now_us: int, last_us: int) -> Answer:
        was = {"now": {"N": str(now_us)}, "last": {"N": str(last_us)}}
        request = update_of(keys.upstream(name), values={}, add={"tat_us": cost_us}, condition=BUSY, was=was)
        return self._table.update(request, returns="UPDATED_NEW", once=True)

    def _start_afresh(self, name: str, cost_us: int, *, now_us: int) -> Answer:
        values = {"tat_us": {"N": str(now_us + cost_us)}}
        request = update_of(keys.upstream(name), values=values, condition=IDLE, was={"now": {"N": str(now_us)}})
        return self._table.update(request, returns="UPDATED_NEW", once=True)


def _tat_of(item: Item) -> int | None:
    return int(item["tat_us"]["N"]) if "tat_us" in item else None
