"""What a line says of a job, whatever its format: the field names, and the values that need more than a type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from shared.domain.job import NewJob
from shared.domain.json_text import kind_of
from shared.domain.keys import did_you_mean, shown
from shared.errors import InvalidInput

FIELDS: Final = ("job_id", "job_class", "match_id", "payload", "due", "priority")
"""What a line may say, in the order in which it is documented."""

_EXPECTED: Final[Mapping[str, str]] = {
    "job_id": "an id of the job's own",
    "job_class": "a class of sluice.toml, here or with --job-class",
    "match_id": "the id whose jobs run in series",
    "payload": "a JSON value",
}
"""What a line has to say."""

_DUE: Final = "ISO 8601 with an offset, like 2026-11-30T12:00:00Z or 2026-11-30T13:00:00+01:00"

_LONGEST_DUE: Final = 64
"""Python reads any number of digits of a second, and so for as long as a line is."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Row(Struct, frozen=True, kw_only=True):
    """One job as the line with this number says it, or what is wrong with that line."""

    number: int
    job: NewJob | InvalidInput


def new_job(values: Mapping[str, Any], *, default_class: str | None) -> NewJob:
    """The job that the fields describe; `payload` is JSON text. Raises `InvalidInput` for a field that is not there,
    not known or, like a due time, not readable. Everything else is judged at admission, as for every producer."""
    known = {"job_class": default_class} | dict(values) if default_class else values
    for name in _EXPECTED:
        if name not in known:
            raise InvalidInput(name, got="nothing", expected=_EXPECTED[name])
    due = known.get("due")
    return NewJob(
        job_id=known["job_id"],
        job_class=known["job_class"],
        match_id=known["match_id"],
        payload=known["payload"],
        due_ms=None if due is None else due_ms(due),
        priority=known.get("priority", 0),
    )


def unknown_field(name: str) -> InvalidInput:
    expected = f"one of {', '.join(FIELDS)}{did_you_mean(name, FIELDS)}"
    return InvalidInput(shown(name), got="an unknown field", expected=expected)


def due_ms(value: object) -> int:
    """Milliseconds since 1970, UTC. A time without an offset means another moment on another machine: refused."""
    if not isinstance(value, str):
        raise InvalidInput("due", got=kind_of(value), expected=_DUE)
    if re.match(r"[+-]?[0-9]{5,}-", value):
        raise InvalidInput("due", got="a year of more than four digits", expected=_DUE)
    if len(value) > _LONGEST_DUE:
        raise InvalidInput("due", got=f"more than {_LONGEST_DUE} characters", expected=_DUE)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise InvalidInput("due", got="other text" if value else "an empty string", expected=_DUE) from None
    if moment.tzinfo is None:
        raise InvalidInput("due", got="a time without an offset", expected=_DUE)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
