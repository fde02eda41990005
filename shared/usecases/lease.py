"""How long a worker may go on with a message: its lease ends before the queue thinks so (rule 4)."""

from __future__ import annotations

from typing import Final

from shared.core.exchange import Delivery
from shared.core.settings import LEASE_MARGIN_S, ClassSettings
from shared.core.values import frozen
from shared.ports import Clock, Ports

LEASE_MARGIN_MS: Final = LEASE_MARGIN_S * 1000


@frozen
class Lease:
    """Valid until `deadline_ms` on the worker's clock."""

    clock: Clock
    deadline_ms: int

    @property
    def remaining_s(self) -> float:
        return (self.deadline_ms - self.clock.now_ms()) / 1000


def take_lease(ports: Ports, settings: ClassSettings, delivery: Delivery, *, invocation_end_ms: int) -> Lease | None:
    """min(the invocation's end, first receive + visibility) - margin. A redelivery extends its visibility first.

    None: the extension failed, so nobody knows for how long the message is ours, and nothing may be done with it.
    """
    visible_ms = settings.visibility_s * 1000
    held_from_ms = delivery.first_received_ms
    if delivery.receive_count > 1:
        held_from_ms = ports.clock.now_ms()
        if not ports.queue.extend(delivery, seconds=settings.visibility_s):
            return None
    deadline_ms = min(invocation_end_ms, held_from_ms + visible_ms) - LEASE_MARGIN_MS
    return Lease(clock=ports.clock, deadline_ms=deadline_ms)
