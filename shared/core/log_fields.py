"""The names that a log line's fields must not have: the line itself, its record and the logger's own keys have them.

Python's logging raises for some of them, and others silently replace what the line says of itself. Both adapters refuse
all of them alike, so that a name that production cannot write never passes in a simulation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

RESERVED: Final = frozenset(
    {
        *("args", "asctime", "created", "exc_info", "exc_text", "filename", "funcName", "levelname", "levelno"),
        *("lineno", "message", "module", "msecs", "msg", "name", "pathname", "process", "processName"),
        *("relativeCreated", "stack_info", "taskName", "thread", "threadName"),
        *("event", "exception", "exception_name", "level", "location", "sampling_rate", "service", "stack_trace"),
        *("timestamp", "xray_trace_id"),
    }
)


def check_fields(names: Iterable[str]) -> None:
    """ValueError naming the fields that no line may have."""
    if bad := sorted(RESERVED.intersection(names)):
        raise ValueError(f"log fields that every line has already: {', '.join(bad)}")
