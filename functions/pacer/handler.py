"""Lambda entry of the pacer: one tick of one job class."""

from __future__ import annotations

import uuid
from typing import Any

from msgspec import structs

from shared.aws.runtime import discreet
from shared.aws.wiring import host
from shared.errors import InvalidInput
from shared.pacer.tick import TickRequest, pace, scheduled_ms_of


@discreet
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Event: {"job_class", "scheduled_at", "source"}. Returns the tick's outcome and counts.

    The owner's nonce is new here and not the request id: Lambda repeats an asynchronous event under the same id.
    """
    here = host()
    now_ms = here.ports.clock.now_ms()
    settings = here.settings.classes.get(event.get("job_class", ""))
    if settings is None:
        raise InvalidInput("job_class", got="an unknown class", expected=f"one of {', '.join(here.settings.classes)}")
    request = TickRequest(
        scheduled_ms=scheduled_ms_of(event, now_ms=now_ms),
        source=event.get("source", "schedule"),
        nonce=uuid.uuid4().hex,
        deadline_ms=now_ms + context.get_remaining_time_in_millis(),
    )
    report = pace(here.ports, here.settings, settings, request)
    counts = structs.asdict(report.tick)
    del counts["plan"]
    return counts | {"executed": [tick.run_id for tick in report.executed]}
