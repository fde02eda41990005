"""The minute that a trigger stands for: from its scheduled time, never from "now" (I6, TRAPS 25)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from shared.errors import InvalidInput

_UNEXPANDED: Final = re.compile(r"<aws\.scheduler\.[a-z-]+>")
"""What a scheduler that does not know its own context attributes delivers; the local emulator is one."""


def scheduled_ms_of(event: Mapping[str, Any], *, now_ms: int) -> int:
    """`event["scheduled_at"]` (ISO 8601 with an offset or Z) in milliseconds; `now_ms` where the trigger has none.

    Raises `InvalidInput` for anything else: a tick of a guessed minute could be a second run of another.
    """
    value = event.get("scheduled_at")
    if value is None or (isinstance(value, str) and _UNEXPANDED.fullmatch(value)):
        return now_ms
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidInput("scheduled_at", got=f"a {type(value).__name__}", expected="an ISO 8601 time with an offset")
    # Down, never to the nearest: 11:59:59.9999 is not the next minute, whose run would be another.
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
