"""What a submitted job must be, and the row that it becomes. Nothing is written here."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from shared.domain.job import INLINE_BYTES, MAX_PAYLOAD_BYTES, Job, NewJob, State, payload_key
from shared.domain.json_text import json_fault, kind_of
from shared.domain.settings import Settings
from shared.errors import InvalidInput

MAX_ID_BYTES: Final = 1024
"""Of a job's and of a match's id: what a key of the table can hold, with room for its prefix."""

MAX_DUE_MS: Final = 4_102_444_800_000
"""2100-01-01: a due time beyond it is a mistake of units."""

_TEXT_ID: Final = f"a string of 1 to {MAX_ID_BYTES} bytes of UTF-8"


class NewRow(Struct, frozen=True, kw_only=True):
    """A row to create. `body` is a large payload, to be stored under the row's `payload_key` before the row is."""

    job: Job
    body: bytes | None


def new_row(new: NewJob, config: Settings, *, now_ms: int) -> NewRow:
    """The row of a submitted job. Raises `InvalidInput` that names the first field at fault, never its value (I12)."""
    job_class: object = new.job_class
    settings = config.classes.get(job_class) if isinstance(job_class, str) else None
    if settings is None:
        got = "an unknown class" if isinstance(job_class, str) else kind_of(job_class)
        raise InvalidInput("job_class", got=got, expected=f"one of {', '.join(sorted(config.classes))}")
    _check_id("job_id", new.job_id)
    _check_id("match_id", new.match_id)
    due_ms = now_ms if new.due_ms is None else _due_ms(new.due_ms)
    body = _payload(new.payload)
    large = len(body) > INLINE_BYTES
    job = Job(
        job_id=new.job_id,
        job_class=new.job_class,
        match_id=new.match_id,
        payload="" if large else new.payload,
        payload_key=payload_key(body) if large else "",
        due_ms=due_ms,
        eligible_ms=due_ms,
        priority=_priority(new.priority, settings.priorities),
        state=State.WAITING,
        created_ms=now_ms,
    )
    return NewRow(job=job, body=body if large else None)


def _check_id(name: str, value: object) -> None:
    """Any Unicode, compared byte by byte: nothing is normalised, trimmed or folded.

    NUL is refused although the table and the queue would carry it: no command line can, so that an operator could
    never name the job again.
    """
    if not isinstance(value, str):
        raise InvalidInput(name, got=kind_of(value), expected=_TEXT_ID)
    size = len(_utf8(name, value))
    if not 1 <= size <= MAX_ID_BYTES:
        raise InvalidInput(name, got=f"{size} bytes" if size else "an empty string", expected=_TEXT_ID)
    if "\0" in value:
        raise InvalidInput(name, got="a string with a NUL character", expected="text without one")


def _payload(value: object) -> bytes:
    if not isinstance(value, str):
        raise InvalidInput("payload", got=kind_of(value), expected="JSON text")
    body = _utf8("payload", value)
    if len(body) > MAX_PAYLOAD_BYTES:
        raise InvalidInput("payload", got=f"{len(body)} bytes", expected=f"at most {MAX_PAYLOAD_BYTES}")
    fault = json_fault(value)
    if fault is not None:
        raise InvalidInput("payload", got=fault, expected="a JSON value")
    return body


def _utf8(name: str, value: str) -> bytes:
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(name, got="a string with a lone surrogate", expected="well-formed Unicode") from None


def _due_ms(value: object) -> int:
    due_ms = _whole("due", value, expected="whole milliseconds since 1970, UTC")
    if not 0 <= due_ms <= MAX_DUE_MS:
        raise InvalidInput("due", got="a time out of range", expected="a time from 1970 to 2100")
    return due_ms


def _priority(value: object, priorities: int) -> int:
    expected = f"a whole number from 0 to {priorities - 1}"
    priority = _whole("priority", value, expected=expected)
    if not 0 <= priority < priorities:
        raise InvalidInput("priority", got="a number out of range", expected=expected)
    return priority


def _whole(name: str, value: object, *, expected: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(name, got=kind_of(value), expected=expected)
    return value
