"""Whether a record of a file may enter a ledger: what the deployment's own code would have refused, an import does too.

Raises `InvalidInput` that names the field and the kind of its value, never the value (I12).
"""

from __future__ import annotations

from typing import Final

from ops.transfer.format import FileRecord, StoredPayload
from shared.domain.control import Control, Run
from shared.domain.job import MAX_PAYLOAD_BYTES, MINUTE_MS, Job, NewJob, State, payload_key
from shared.domain.json_text import json_fault
from shared.domain.records import StoredOutput, StoredRate
from shared.domain.settings import Settings
from shared.errors import InvalidInput
from shared.submit.validation import MAX_DUE_MS, new_row
from shared.worker.message import MAX_CURSOR_BYTES, MAX_OUTPUT_BYTES

_MOST: Final = {"epoch": 10**8, "copy": 10**6}
"""As many digits as a place in the index has for them."""

_COUNTS: Final = ("epoch", "copy", "hop", "attempts", "crashes", "transport_deaths", "seq")

_TIMES: Final = ("due_ms", "eligible_ms", "sent_at_ms", "hand_until_ms", "created_ms")


def judge(record: FileRecord, settings: Settings) -> None:
    match record:
        case Job():
            _judge_job(record, settings)
        case StoredOutput(output=output):
            _judge_cursor("output.cursor", output.cursor)
            _judge_json("output.body", output.body, MAX_OUTPUT_BYTES)
        case StoredPayload(key=key, text=text):
            _judge_json("payload.text", text, MAX_PAYLOAD_BYTES)
            if payload_key(text.encode()) != key:
                raise InvalidInput("payload.key", got="another text's key", expected="the key that names the text")
        case Run(key=key):
            _known("run.key.job_class", key.job_class, settings)
            if key.minute_ms % MINUTE_MS or not 0 <= key.minute_ms <= MAX_DUE_MS:
                raise InvalidInput("run.key.minute_ms", got="a time that is no minute", expected="a whole minute")
        case Control(job_class=job_class):
            _known("control.job_class", job_class, settings)
        case StoredRate(upstream=upstream):
            if upstream not in settings.upstreams:
                expected = f"one of {', '.join(sorted(settings.upstreams)) or 'none: nothing calls one'}"
                raise InvalidInput("rate.upstream", got="an unknown upstream", expected=expected)


def _judge_job(job: Job, settings: Settings) -> None:
    """What a submission may say, judged as one; then what only rows have."""
    _known("job.job_class", job.job_class, settings)
    said = {"job_id": job.job_id, "job_class": job.job_class, "match_id": job.match_id, "priority": job.priority}
    payload = "null" if job.payload_key else job.payload
    try:
        new_row(NewJob(payload=payload, due_ms=job.due_ms, **said), settings, now_ms=0)  # type: ignore[arg-type]
    except InvalidInput as fault:
        raise InvalidInput(f"job.{fault.field}", got=fault.got, expected=fault.expected) from None
    _judge_cursor("job.cursor", job.cursor)
    for name in _COUNTS:
        if not 0 <= getattr(job, name) < _MOST.get(name, 10**12):
            raise InvalidInput(f"job.{name}", got="a number out of range", expected="a count")
    for name in _TIMES:
        if not 0 <= getattr(job, name) <= MAX_DUE_MS:
            raise InvalidInput(f"job.{name}", got="a time out of range", expected="a time from 1970 to 2100")
    if job.state is State.QUEUED and (job.lane is None or not job.sent_at_ms):
        raise InvalidInput("job.lane", got="nothing", expected="the lane and the time of a job in flight")
    ordered = settings.classes[job.job_class].ordered
    if ordered is not (job.seq > 0) or (job.state is State.BEHIND and not ordered):
        expected = "a number in its match's line, as its class is ordered" if ordered else "0: its class is not ordered"
        raise InvalidInput("job.seq", got="0" if ordered else "a number", expected=expected)


def _judge_cursor(name: str, cursor: str) -> None:
    if len(cursor.encode()) > MAX_CURSOR_BYTES:
        raise InvalidInput(name, got="a longer one", expected=f"at most {MAX_CURSOR_BYTES} bytes")


def _judge_json(name: str, text: str, most: int) -> None:
    if len(text.encode()) > most:
        raise InvalidInput(name, got="a longer one", expected=f"at most {most} bytes")
    fault = json_fault(text)
    if fault is not None:
        raise InvalidInput(name, got=fault, expected="a JSON value")


def _known(name: str, job_class: str, settings: Settings) -> None:
    if job_class not in settings.classes:
        expected = f"one of {', '.join(sorted(settings.classes))}"
        raise InvalidInput(name, got="an unknown class", expected=expected)
