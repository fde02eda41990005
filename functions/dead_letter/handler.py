"""Lambda entry of the dead-letter reader: messages that died in transport, of any class and lane."""

from __future__ import annotations

import random
import uuid
from functools import partial
from typing import Any

from shared.aws.queue import parse_delivery
from shared.aws.runtime import discreet
from shared.aws.wiring import host
from shared.domain.job import Lane
from shared.worker.dead_letters import read_dead_letters
from shared.worker.invocation import batch_response, readable


@discreet
def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Event: SQS records of one dead-letter queue. Returns `batchItemFailures`. The lane says nothing here."""
    here = host()
    failed: list[str] = []
    deliveries = readable(here.ports, event["Records"], partial(parse_delivery, lane=Lane.RECOVERY))
    for name, settings in here.settings.classes.items():
        own = [delivery for delivery in deliveries if delivery.message.job_class == name]
        if own:
            failed += read_dead_letters(here.ports, settings, own, nonce=uuid.uuid4().hex, jitter=random.random)
    return batch_response(failed)
