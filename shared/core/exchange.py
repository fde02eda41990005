"""What goes through the ports: index pages, messages on their way out and in, reservations of permits."""

from __future__ import annotations

from typing import TypeAlias

from shared.core.model import Lane, Message, Nominee
from shared.core.values import frozen


@frozen
class IndexPage:
    """Up to a limit of nominees in index order. `resume` is None on the last page."""

    nominees: tuple[Nominee, ...]
    resume: str | None


@frozen
class Outgoing:
    """A message and the FIFO group that it belongs to."""

    message: Message
    group: str


@frozen
class BatchAnswer:
    """What SendMessageBatch said, by position in the batch. A position in neither is unknown (TRAPS 4)."""

    successful: frozenset[int]
    failed: frozenset[int]


@frozen
class Delivery:
    """One received message with what the queue says of it."""

    message: Message
    lane: Lane
    group: str
    message_id: str
    receipt: str
    receive_count: int
    first_received_ms: int


@frozen
class Granted:
    """Permits whose calls may start at `start_ms` and then every `spacing_ms`, fractions included."""

    start_ms: float
    spacing_ms: float


@frozen
class NoRoom:
    """Nothing was reserved: the first free slot that was found, at `free_at_ms`, is later than asked for."""

    free_at_ms: float


Reservation: TypeAlias = Granted | NoRoom


@frozen
class LaneMapping:
    """How many invocations a lane's event source mapping allows at once; None: it is not bounded.

    `settled` is False while the service still applies a change.
    """

    slots: int | None
    settled: bool = True
