"""The work queues in memory: one FIFO queue per (class, lane), one dead-letter queue per class."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

from ops.sim.fifo import IN_FLIGHT_CAP, FifoQueue, Stored
from shared.core.exchange import BatchAnswer, Delivery, Outgoing
from shared.core.model import Lane, Message
from shared.core.settings import ClassSettings, Settings

MAX_BATCH: Final = 10
MAX_BATCH_BYTES: Final = 256 * 1024
_ID: Final = re.compile(r"[!-~]{1,128}")
"""ASCII letters, digits and punctuation: every printable character but the space (TRAPS 3)."""

DEAD_LETTER_VISIBILITY_MS: Final = 60_000


class EntryFault(StrEnum):
    """What goes wrong with one entry of a batch (TRAPS 4). Unknown: in neither list of the answer."""

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
                message = outgoing.message
                self.sent.append(
                    queue.send(
                        message,
                        group=outgoing.group,
                        dedup_id=dedup_ids[position],
                        lane=lane,
                        now_ms=now_ms,
                        lineage=self._lineage(),
                    )
                )
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

    def receive(self, job_class: str, lane: Lane, limit: int = MAX_BATCH) -> list[Delivery]:
        return self.receive_from(self._lanes[job_class, lane], limit)

    def receive_dead(self, job_class: str, limit: int = MAX_BATCH) -> list[Delivery]:
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
    if not 1 <= len(batch) <= MAX_BATCH:
        raise ValueError(f"batch: got {len(batch)} entries, expected 1 to {MAX_BATCH}")
    dedup_ids = [outgoing.message.dedup_id for outgoing in batch]
    for outgoing, dedup_id in zip(batch, dedup_ids, strict=True):
        for name, value in (("group id", outgoing.group), ("dedup id", dedup_id)):
            if not _ID.fullmatch(value):
                raise ValueError(f"{name}: got {len(value)} characters, expected 1 to 128 of ASCII !..~")
    size = sum(len(_body(outgoing.message)) for outgoing in batch)
    if size > MAX_BATCH_BYTES:
        raise ValueError(f"batch: got {size} bytes, expected at most {MAX_BATCH_BYTES}")
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
