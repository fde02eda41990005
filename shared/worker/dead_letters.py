"""The dead-letter reader: a message that died in transport becomes a row transition, if it was the newest copy."""

from __future__ import annotations

from collections.abc import Sequence

from shared.domain import lifecycle, messages, stats
from shared.domain.lifecycle import Won
from shared.domain.messages import Delivery
from shared.domain.settings import ClassSettings
from shared.errors import LedgerUnavailable
from shared.ports import Jitter, Ports
from shared.worker.retry import backoff_s
from shared.worker.tally import Tally


def read_dead_letters(
    ports: Ports, settings: ClassSettings, deliveries: Sequence[Delivery], *, nonce: str, jitter: Jitter
) -> list[str]:
    """Return the message ids that must come back, in order.

    Acts only on the row's present epoch and copy: an older copy's death says nothing, because the newer one lives.
    """
    tally = Tally(ports, settings.name, shard=0)
    failed = []
    for delivery in deliveries:
        try:
            tally.add(_read(ports, settings, delivery, nonce=nonce, jitter=jitter))
        except LedgerUnavailable:
            failed.append(delivery.message_id)
    tally.flush()
    return failed


def _read(ports: Ports, settings: ClassSettings, delivery: Delivery, *, nonce: str, jitter: Jitter) -> str:
    """The counter that this dead letter belongs to."""
    message = delivery.message
    job = ports.ledger.read_job(message.job_id)
    if job is None or not messages.is_current(job, message) or job.copy != message.copy:
        return stats.STALE
    now_ms = ports.clock.now_ms()
    move = lifecycle.transport_death(
        job,
        copy=message.copy,
        eligible_ms=now_ms + round(backoff_s(job.transport_deaths + 1, settings.retry, jitter()) * 1000),
        now_ms=now_ms,
        max_deaths=settings.retry.max_transport_deaths,
        nonce=nonce,
    )
    result = ports.ledger.move(move)
    ports.log.event("dead_letter", job_class=settings.name, move=move.name, won=isinstance(result, Won))
    if not isinstance(result, Won):
        return stats.LOST_RACES
    return stats.DEATHS if move.name == "die" else stats.TRANSPORT_DEATHS
