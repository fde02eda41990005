"""One invocation of a worker: groups in parallel, in order inside a group, under one deadline."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

from shared.domain import stats
from shared.domain.messages import Delivery
from shared.domain.settings import ClassSettings, UpstreamSettings
from shared.errors import InvalidInput, LedgerUnavailable, QueueUnavailable
from shared.kind import Kind
from shared.ports import Jitter, Ports
from shared.worker.context import ClassView, Invocation
from shared.worker.message import work_message
from shared.worker.tally import Tally


def readable(ports: Ports, records: Iterable[object], read: Callable[[object], Delivery]) -> list[Delivery]:
    """The deliveries of one event. A record that cannot be read is counted and acknowledged: it must not fail its
    neighbours, no repeat makes it readable, and the row it may have meant is the truth anyway (rule 1, fact F32)."""
    deliveries = []
    for record in records:
        try:
            deliveries.append(read(record))
        except InvalidInput as fault:
            ports.log.event("message_unreadable", field=fault.field, expected=fault.expected)
    return deliveries


def batch_response(message_ids: Iterable[str]) -> dict[str, list[dict[str, str]]]:
    """What the event source mapping expects: exactly these messages come back, all others are deleted."""
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in message_ids]}


def work(
    ports: Ports,
    kind: Kind,
    settings: ClassSettings,
    upstream: UpstreamSettings | None,
    deliveries: Sequence[Delivery],
    *,
    nonce: str,
    end_ms: int,
    jitter: Jitter,
) -> list[str]:
    """Work the messages; return the message ids that must come back, in order (`batchItemFailures`).

    `end_ms` is when the process is killed. A failed message fails the later ones of its own group and no others, or
    FIFO order would break. With a redelivery among them everything runs one at a time, so that a crash is proven
    against the one chunk that ran.
    """
    begun_ms = ports.clock.now_ms()
    tally = Tally(ports, settings.name, shard=hashlib.sha256(nonce.encode()).digest()[0] % stats.SHARDS)
    invocation = Invocation(
        ports=ports,
        kind=kind,
        settings=settings,
        upstream=upstream,
        nonce=nonce,
        end_ms=end_ms,
        jitter=jitter,
        tally=tally,
        class_view=ClassView(ports, settings, upstream),
    )
    try:
        invocation.class_view.load()
    except LedgerUnavailable:
        return [delivery.message_id for delivery in deliveries]
    failed = _work_all(invocation, deliveries)
    worked_ms = ports.clock.now_ms() - begun_ms
    # what is billed of an invocation, with its other counters: no write of its own
    tally.add(stats.INVOCATIONS)
    tally.add(stats.MESSAGES, len(deliveries))
    tally.add(stats.WORKER_MS, max(0, worked_ms))
    tally.add(stats.CLASS_READS, invocation.class_view.reads)
    tally.flush()
    return failed


def _work_all(invocation: Invocation, deliveries: Sequence[Delivery]) -> list[str]:
    groups: dict[str, list[Delivery]] = {}
    for delivery in deliveries:
        groups.setdefault(delivery.group, []).append(delivery)

    def work_group(group: list[Delivery], fresh: bool = True) -> list[str]:
        for position, delivery in enumerate(group):
            if not work_message(invocation, delivery, fresh=fresh and position == 0):
                return [failed.message_id for failed in group[position:]]
            if len(deliveries) > 1:
                _delete(invocation.ports, delivery)
        return []

    if any(delivery.receive_count > 1 for delivery in deliveries):
        failed = [work_group(group, fresh=number == 0) for number, group in enumerate(groups.values())]
    else:
        failed = invocation.ports.parallel.map(work_group, list(groups.values()))
    return [message_id for ids in failed for message_id in ids]


def _delete(ports: Ports, delivery: Delivery) -> None:
    """At once, so that a long neighbour does not keep a short job's match locked. The mapping deletes it again."""
    try:
        ports.queue.delete(delivery)
    except QueueUnavailable:
        ports.log.event("delete_failed", job_class=delivery.message.job_class)
