"""Lambda entry of a worker: one batch of one class and lane."""

from __future__ import annotations

import random
import uuid
from importlib import import_module
from typing import Any, cast

from shared.aws.runtime import discreet
from shared.aws.wiring import host
from shared.kind import Kind
from shared.worker.invocation import batch_response, readable, work


@discreet
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Event: SQS records of one queue. Returns `batchItemFailures`."""
    here = host()
    end_ms = here.ports.clock.now_ms() + context.get_remaining_time_in_millis()
    deliveries = readable(here.ports, event["Records"], here.queue.delivery_of)
    if not deliveries:
        return batch_response([])
    settings = here.settings.classes[deliveries[0].message.job_class]
    failed = work(
        here.ports,
        cast(Kind, import_module(f"functions.worker.kinds.{settings.kind}")),
        settings,
        here.settings.upstream_of(settings),
        deliveries,
        nonce=uuid.uuid4().hex,
        end_ms=end_ms,
        jitter=random.random,
    )
    return batch_response(failed)
