"""The `Limiter`: one GCRA for all workers, as one number in an item (I7, fact F40). The algorithm: `worker.permits`.

Read, compute and write back if unchanged would livelock under 50 writers. So the addition happens in the write:

    busy   now <= tat <= latest + tolerance    tat := tat + cost         the old tat says when the calls may start
    idle   no tat, or tat < now                tat := now + cost         they may start now
    full   tat > latest + tolerance            nothing is written        NoRoom

A refused condition shows the item, which says what to try instead. The arrival time never falls, so `busy` and `idle`
cannot alternate for long. No attempt is repeated after a lost answer: that wastes a permit, and never makes one.
"""

from __future__ import annotations

import random
from itertools import count
from math import ceil
from typing import Final

from shared.aws import keys
from shared.aws.keys import Item
from shared.aws.table import Answer, Table, Unmet, update_of
from shared.domain.settings import CALLS_PER_SHARD, UpstreamSettings
from shared.domain.upstream import Granted, NoRoom, Reservation
from shared.errors import LedgerUnavailable
from shared.worker.permits import Full, Part, Reserved, parts_of, parts_to_ask

BUSY: Final = "#tat_us BETWEEN :was_now AND :was_last"
"""permits are reserved up to tat ── (another reserves: tat grows, we start later or not at all) ── ours follow on"""

IDLE: Final = "attribute_not_exists(#tat_us) OR #tat_us < :was_now"
"""nobody called for a while ── (another was first: it is busy now) ── ours start at once ✗"""

NOT_HELD_LONGER: Final = "attribute_not_exists(#tat_us) OR #tat_us < :new_tat_us"
"""hold until 12:00:30 ── (another's hold until 12:00:10 arrives late) ✗"""

NO_LATER_HOLD: Final = "attribute_not_exists(#held_until_ms) OR #held_until_ms < :new_held_until_ms"
"""the same, for permits that were reserved before the hold"""

_TRIES: Final = 4
"""How often a reservation is tried anew because others changed the item."""

_MS: Final = 1000
"""Microseconds in a millisecond: permits are counted in microseconds."""


class DynamoLimiter:
    """`shared.ports.Limiter` over the item UPSTREAM#<name>; over more of them where one would be too hot."""

    def __init__(self, table: Table, *, calls_per_shard: float = CALLS_PER_SHARD) -> None:
        self._table = table
        self._calls_per_shard = calls_per_shard
        self._turns = count(random.randrange(1 << 16))
        """A process goes round the items; that it begins anywhere keeps the processes apart."""

    def reserve(self, upstream: UpstreamSettings, *, calls: int, now_ms: int, latest_ms: int) -> Reservation:
        if calls < 1:
            raise ValueError(f"calls must be at least 1, got {calls}")
        free_us: list[int] = []
        for part in parts_to_ask(self._parts(upstream), next(self._turns)):
            key = keys.upstream(upstream.name, part.shard)
            answer = self._ask(key, part, calls=calls, now_us=now_ms * _MS, latest_us=latest_ms * _MS)
            if not isinstance(answer, Full):
                return Granted(start_ms=answer.start_us / _MS, spacing_ms=part.interval_us / _MS)
            free_us.append(answer.free_at_us)
        return NoRoom(free_at_ms=min(free_us) / _MS)

    def hold(self, upstream: UpstreamSettings, *, until_ms: int) -> None:
        """To each item, first the word to those who hold permits already, then the arrival time for those who come."""
        held = {"held_until_ms": ceil(until_ms)}
        for part in self._parts(upstream):
            key = keys.upstream(upstream.name, part.shard)
            self._table.update(update_of(key, values=held, condition=NO_LATER_HOLD), once=True)
            tat = {"tat_us": ceil(until_ms) * _MS + part.tolerance_us}
            self._table.update(update_of(key, values=tat, condition=NOT_HELD_LONGER), once=True)

    def held_until_ms(self, upstream: UpstreamSettings) -> int:
        """One read, of any item: a hold is on all of them, and all workers asking the same one would make it hot."""
        part = random.choice(self._parts(upstream))
        item = self._table.get(keys.upstream(upstream.name, part.shard)) or {}
        return int(item["held_until_ms"]["N"]) if "held_until_ms" in item else 0

    def _parts(self, upstream: UpstreamSettings) -> tuple[Part, ...]:
        return parts_of(upstream, calls_per_shard=self._calls_per_shard)

    def _ask(self, key: Item, part: Part, *, calls: int, now_us: int, latest_us: int) -> Reserved | Full:
        """`worker.permits.gcra_reserve` on one item."""
        cost_us, last_us = calls * part.interval_us, latest_us + part.tolerance_us
        if latest_us < now_us:  # no permit starts in the past
            tat_us = _tat_of(self._table.get(key) or {}) or now_us
            return Full(free_at_us=max(now_us, tat_us - part.tolerance_us))
        tat_us = now_us
        for _ in range(_TRIES):
            answer = (
                self._follow_on(key, cost_us, now_us=now_us, last_us=last_us)
                if tat_us >= now_us
                else self._start_afresh(key, cost_us, now_us=now_us)
            )
            if not isinstance(answer, Unmet):
                tat_us = _tat_of(answer.item) or 0
                return Reserved(start_us=max(now_us, tat_us - cost_us - part.tolerance_us), tat_us=tat_us)
            tat_us = _tat_of(answer.old) or 0
            if tat_us > last_us:
                return Full(free_at_us=tat_us - part.tolerance_us)
        raise LedgerUnavailable("conflict")

    def _follow_on(self, key: Item, cost_us: int, *, now_us: int, last_us: int) -> Answer:
        request = update_of(key, add={"tat_us": cost_us}, condition=BUSY, was={"now": now_us, "last": last_us})
        return self._table.update(request, returns="UPDATED_NEW", once=True)

    def _start_afresh(self, key: Item, cost_us: int, *, now_us: int) -> Answer:
        request = update_of(key, values={"tat_us": now_us + cost_us}, condition=IDLE, was={"now": now_us})
        return self._table.update(request, returns="UPDATED_NEW", once=True)


def _tat_of(item: Item) -> int | None:
    return int(item["tat_us"]["N"]) if "tat_us" in item else None
