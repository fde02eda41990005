"""Read the records of one event. A record that cannot be read is counted and acknowledged: it must not fail its
neighbours, no repeat makes it readable, and the row it may have meant is the truth anyway (rule 1, TRAPS 33)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shared.core.exchange import Delivery
from shared.errors import InvalidInput
from shared.ports import Ports


def readable(ports: Ports, records: Iterable[object], read: Callable[[object], Delivery]) -> list[Delivery]:
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
