"""The work queues in memory: one FIFO queue per (class, lane), one dead-letter queue per class.

Each is as strict as the real one and stricter than local emulators (facts F1, F3, F7, F8, F10, F34): order within a
group, a group locked while any message of it is in flight, deduplication that survives deletion, receive counts and the
move to the dead-letter queue, retention, bounds on what is in flight and on what is searched.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final, Protocol, TypeAlias

from shared.domain.job import Lane
from shared.domain.messages import ACCEPTED_ID, MAX_BYTES, MAX_ENTRIES, BatchAnswer, Delivery, Message, Outgoing
from shared.domain.settings import ClassSettings, Settings

DEDUP_MS: Final = 5 * 60_000
"""How long a deduplication id stays taken."""

RETENTION_MS: Final = 14 * 24 * 3_600_000
"""After this a message is gone, read or not."""

IN_FLIGHT_CAP: Final = 20_000
"""The most messages of one queue that may be in flight."""

SEARCHED_MESSAGES: Final = 120_000
"""A receive looks for an available group among this many of the oldest messages only (fact F8)."""


@dataclass(eq=False, slots=True)
class Stored:
    """A message in the queue. `receipt` is "" while it is visible."""

    seq: int
    message_id: str
    message: Message
    group: str
    lane: Lane
    enqueued_ms: int
    receive_count: int = 0
    first_received_ms: int = 0
    visible_at_ms: int = 0
    receipt: str = ""
    lineage: int = 0


class Onlooker(Protocol):
    """Told of every message that is stored and of every one that is gone, a burial being both."""

    def stored(self, message: Message) -> None: ...

    def gone(self, message: Message) -> None: ...


class FifoQueue:
    def __init__(
        self,
        name: str,
        *,
        visibility_ms: int,
        max_receives: int | None = None,
        dead_letters: FifoQueue | None = None,
        in_flight_cap: int = IN_FLIGHT_CAP,
        searched: int = SEARCHED_MESSAGES,
        retention_ms: int = RETENTION_MS,
    ) -> None:
        self.name = name
        self.on_change: Callable[[], None] = lambda: None
        self.onlooker: Onlooker | None = None
        self.expired = 0
        self.retention_ms = retention_ms
        self._visibility_ms = visibility_ms
        self._max_receives = max_receives
        self._dead_letters = dead_letters
        self._in_flight_cap = in_flight_cap
        self._searched = searched
        self._seq = 0
        self._stored: dict[int, Stored] = {}
        self._groups: dict[str, dict[int, Stored]] = {}
        self._dedup: dict[str, tuple[int, str]] = {}
        self._in_flight: dict[str, Stored] = {}
        self._locks: Counter[str] = Counter()
        self._expiries: list[tuple[int, str]] = []
        self._ready: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def send(self, message: Message, *, group: str, dedup_id: str, lane: Lane, now_ms: int, lineage: int = 0) -> str:
        """Accept the message, or drop it as a repeat of one sent within 5 minutes; the first one's id either way."""
        for old_id in list(islice(self._dedup, 2)):  # amortised: two out for one in, oldest first
            if now_ms - self._dedup[old_id][0] >= DEDUP_MS:
                del self._dedup[old_id]
        sent_ms, message_id = self._dedup.get(dedup_id, (now_ms - DEDUP_MS, ""))
        if now_ms - sent_ms < DEDUP_MS:
            return message_id
        self._dedup.pop(dedup_id, None)
        message_id = self.append(message, group=group, lane=lane, now_ms=now_ms, lineage=lineage)
        self._dedup[dedup_id] = (now_ms, message_id)
        return message_id

    def receive(self, limit: int, *, now_ms: int) -> list[Stored]:
        """Up to `limit` messages: as many of one group as fit before the next group, each group in order."""
        self.release(now_ms)
        got: list[Stored] = []
        last_seq = self._last_searched()
        while self._ready and len(got) < limit and self.in_flight < self._in_flight_cap:
            seq, group = heapq.heappop(self._ready)
            if self._locks[group] or next(iter(self._groups.get(group, ())), None) != seq:
                continue  # an entry of an earlier time
            if seq > last_seq:
                heapq.heappush(self._ready, (seq, group))
                break
            got += self._take(group, min(limit - len(got), self._in_flight_cap - self.in_flight), now_ms)
        return got

    def delete(self, receipt: str, *, now_ms: int) -> bool:
        """False: the receipt is not the message's any more, and nothing happens."""
        stored = self._held(receipt, now_ms)
        if stored is None:
            return False
        self._forget(stored)
        self._unlock(stored)
        return True

    def change_visibility(self, receipt: str, *, seconds: int, now_ms: int) -> bool:
        if not 0 <= seconds <= 43_200:
            raise ValueError(f"visibility: got {seconds} s, expected 0 to 43200")
        stored = self._held(receipt, now_ms)
        if stored is None:
            return False
        stored.visible_at_ms = now_ms + seconds * 1000
        heapq.heappush(self._expiries, (stored.visible_at_ms, receipt))
        self.release(now_ms)
        return True

    def release(self, now_ms: int) -> None:
        """Make visible what was not deleted in time, and drop what nobody fetched in 14 days."""
        while self._expiries and self._expiries[0][0] <= now_ms:
            at_ms, receipt = heapq.heappop(self._expiries)
            stored = self._in_flight.get(receipt)
            if stored is not None and stored.visible_at_ms == at_ms:
                self._unlock(stored)
        while self._stored:
            oldest = next(iter(self._stored.values()))
            if now_ms - oldest.enqueued_ms < self.retention_ms:
                return
            self.expired += 1
            self._forget(oldest)
            self._unlock(oldest)

    def next_visible_ms(self) -> int | None:
        """When the next message in flight becomes visible, unless it is deleted before."""
        while self._expiries:
            at_ms, receipt = self._expiries[0]
            stored = self._in_flight.get(receipt)
            if stored is not None and stored.visible_at_ms == at_ms:
                return at_ms
            heapq.heappop(self._expiries)
        return None

    # -- inside

    def lineage_of(self, receipt: str) -> int:
        """How many workers handed on to one another before this message was sent."""
        stored = self._in_flight.get(receipt)
        return 0 if stored is None else stored.lineage

    def append(self, message: Message, *, group: str, lane: Lane, now_ms: int, lineage: int = 0) -> str:
        self._seq += 1
        stored = Stored(self._seq, f"{self.name}-{self._seq}", message, group, lane, now_ms, lineage=lineage)
        if self.onlooker is not None:
            self.onlooker.stored(message)
        self._stored[stored.seq] = stored
        members = self._groups.setdefault(group, {})
        members[stored.seq] = stored
        if len(members) == 1:
            heapq.heappush(self._ready, (stored.seq, group))
        self.on_change()
        return stored.message_id

    def _take(self, group: str, limit: int, now_ms: int) -> list[Stored]:
        taken: list[Stored] = []
        for stored in list(self._groups[group].values()):
            if len(taken) == limit:
                break
            if self._max_receives is not None and stored.receive_count >= self._max_receives:
                self._bury(stored, now_ms)
                continue
            stored.receive_count += 1
            stored.first_received_ms = stored.first_received_ms or now_ms
            stored.visible_at_ms = now_ms + self._visibility_ms
            stored.receipt = f"{self.name}:{stored.seq}:{stored.receive_count}"
            self._in_flight[stored.receipt] = stored
            self._locks[group] += 1
            heapq.heappush(self._expiries, (stored.visible_at_ms, stored.receipt))
            taken.append(stored)
        return taken

    def _bury(self, stored: Stored, now_ms: int) -> None:
        """On FIFO the enqueued time begins anew in the dead-letter queue, and deduplication is not asked."""
        self._forget(stored)
        if self._dead_letters is not None:
            self._dead_letters.append(stored.message, group=stored.group, lane=stored.lane, now_ms=now_ms)

    def _held(self, receipt: str, now_ms: int) -> Stored | None:
        self.release(now_ms)
        return self._in_flight.get(receipt)

    def _forget(self, stored: Stored) -> None:
        if self._stored.pop(stored.seq, None) is not None and self.onlooker is not None:
            self.onlooker.gone(stored.message)
        members = self._groups.get(stored.group, {})
        members.pop(stored.seq, None)
        if not members:
            self._groups.pop(stored.group, None)

    def _unlock(self, stored: Stored) -> None:
        """The message is not in flight any more: visible again, or gone. The last one in flight frees its group."""
        if self._in_flight.pop(stored.receipt, None) is not None:
            stored.receipt = ""
            self._locks[stored.group] -= 1
        if self._locks[stored.group] <= 0:
            del self._locks[stored.group]
            members = self._groups.get(stored.group)
            if members:
                heapq.heappush(self._ready, (next(iter(members)), stored.group))
        self.on_change()

    def _last_searched(self) -> int:
        """The sequence number of the last message that a receive looks at."""
        if len(self._stored) <= self._searched:
            return self._seq
        return next(islice(self._stored, self._searched - 1, None))


DEAD_LETTER_VISIBILITY_MS: Final = 60_000
"""Long enough for the dead-letter reader, which only moves rows."""


class EntryFault(StrEnum):
    """What goes wrong with one entry of a batch (fact F4). Unknown: in neither list of the answer."""

    FAILED = "failed"
    UNKNOWN_LOST = "unknown_lost"
    UNKNOWN_SENT = "unknown_sent"


EntryFaultHook: TypeAlias = Callable[[Outgoing], EntryFault | None]


class MemoryQueue:
    """`sent` holds every accepted message id in order; a dropped repeat adds the first one's id again."""

    def __init__(
        self,
        settings: Settings,
        now_ms: Callable[[], int],
        *,
        entry_fault: EntryFaultHook | None = None,
        in_flight_cap: int = IN_FLIGHT_CAP,
        lineage: Callable[[], int] = lambda: 0,
    ) -> None:
        self.refuse_extensions = False
        self.send_calls = 0
        self.sent: list[str] = []
        self._now_ms = now_ms
        self._entry_fault = entry_fault
        self._lineage = lineage
        self._by_name: dict[str, FifoQueue] = {}
        self._lanes: dict[tuple[str, Lane], FifoQueue] = {}
        self._dead: dict[str, FifoQueue] = {}
        for job_class in settings.classes.values():
            self._add_class(job_class, in_flight_cap)

    # -- the port

    def send_batch(self, job_class: str, lane: Lane, batch: Sequence[Outgoing]) -> BatchAnswer:
        """Raises ValueError for what SQS refuses as a whole: a caller's bug, and a local emulator would let it pass."""
        dedup_ids = check_batch(batch)
        self.send_calls += 1
        queue, now_ms = self._lanes[job_class, lane], self._now_ms()
        successful, failed = set(), set()
        for position, outgoing in enumerate(batch):
            fault = None if self._entry_fault is None else self._entry_fault(outgoing)
            if fault in (None, EntryFault.UNKNOWN_SENT):
                message_id = queue.send(
                    outgoing.message,
                    group=outgoing.group,
                    dedup_id=dedup_ids[position],
                    lane=lane,
                    now_ms=now_ms,
                    lineage=self._lineage(),
                )
                self.sent.append(message_id)
            if fault is None:
                successful.add(position)
            elif fault is EntryFault.FAILED:
                failed.add(position)
        return BatchAnswer(successful=frozenset(successful), failed=frozenset(failed))

    def delete(self, delivery: Delivery) -> None:
        self._queue_of(delivery).delete(delivery.receipt, now_ms=self._now_ms())

    def extend(self, delivery: Delivery, *, seconds: int) -> bool:
        if self.refuse_extensions:
            return False
        return self._queue_of(delivery).change_visibility(delivery.receipt, seconds=seconds, now_ms=self._now_ms())

    # -- what only the hosts and tests ask

    @property
    def queues(self) -> list[FifoQueue]:
        return list(self._by_name.values())

    def lane(self, job_class: str, lane: Lane) -> FifoQueue:
        return self._lanes[job_class, lane]

    def dead_letters(self, job_class: str) -> FifoQueue:
        return self._dead[job_class]

    def receive(self, job_class: str, lane: Lane, limit: int = MAX_ENTRIES) -> list[Delivery]:
        return self.receive_from(self._lanes[job_class, lane], limit)

    def receive_dead(self, job_class: str, limit: int = MAX_ENTRIES) -> list[Delivery]:
        return self.receive_from(self._dead[job_class], limit)

    def receive_from(self, queue: FifoQueue, limit: int) -> list[Delivery]:
        return [_delivery(stored) for stored in queue.receive(limit, now_ms=self._now_ms())]

    # -- inside

    def _add_class(self, job_class: ClassSettings, in_flight_cap: int) -> None:
        dead = FifoQueue(f"{job_class.name}/dead", visibility_ms=DEAD_LETTER_VISIBILITY_MS)
        self._dead[job_class.name] = self._by_name[dead.name] = dead
        for lane in Lane:
            queue = FifoQueue(
                f"{job_class.name}/{lane.value}",
                visibility_ms=job_class.visibility_s * 1000,
                max_receives=job_class.max_receives,
                dead_letters=dead,
                in_flight_cap=in_flight_cap,
            )
            self._lanes[job_class.name, lane] = self._by_name[queue.name] = queue

    def _queue_of(self, delivery: Delivery) -> FifoQueue:
        return self._by_name[delivery.receipt.rsplit(":", 2)[0]]


def check_batch(batch: Sequence[Outgoing]) -> list[str]:
    """The limits of one SendMessageBatch; answers with the entries' dedup ids."""
    if not 1 <= len(batch) <= MAX_ENTRIES:
        raise ValueError(f"batch: got {len(batch)} entries, expected 1 to {MAX_ENTRIES}")
    dedup_ids = [outgoing.message.dedup_id for outgoing in batch]
    for outgoing, dedup_id in zip(batch, dedup_ids, strict=True):
        for name, value in (("group id", outgoing.group), ("dedup id", dedup_id)):
            if not ACCEPTED_ID.fullmatch(value):
                raise ValueError(f"{name}: got {len(value)} characters, expected 1 to 128 of ASCII !..~")
    size = sum(len(_body(outgoing.message)) for outgoing in batch)
    if size > MAX_BYTES:
        raise ValueError(f"batch: got {size} bytes, expected at most {MAX_BYTES}")
    return dedup_ids


def _body(message: Message) -> bytes:
    fields = [message.job_id, message.job_class, message.cursor, message.epoch, message.copy]
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _delivery(stored: Stored) -> Delivery:
    return Delivery(
        message=stored.message,
        lane=stored.lane,
        group=stored.group,
        message_id=stored.message_id,
        receipt=stored.receipt,
        receive_count=stored.receive_count,
        first_received_ms=stored.first_received_ms,
    )
