"""What a job kind is, and what it may use: everything that the author of `functions/worker/kinds/<kind>.py` needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from shared.domain.job import Job
from shared.domain.stats import INPUT_TOKENS, OUTPUT_TOKENS
from shared.errors import BadPayload


class Chunk(Struct, frozen=True, kw_only=True):
    """What a chunk gives back: the next cursor, or None when the job is finished, and a JSON-able output or None."""

    next_cursor: str | None
    output: Any = None


class ChunkContext(Protocol):
    """What a kind may use while it runs one chunk."""

    @property
    def remaining_s(self) -> float:
        """Seconds until the worker's own deadline."""
        ...

    @property
    def options(self) -> Mapping[str, str]:
        """What the class's `options` table in `sluice.toml` says to its kind."""
        ...

    @property
    def idempotency_key(self) -> str:
        """`<job_id>:<cursor>`: the same at every attempt at this chunk, and no other chunk's. To name its outputs.

        Up to 128 printable ASCII characters without a space; hashed where the plain text is anything else.
        """
        ...

    def call_upstream(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """One call under a shared permit, with the idempotency key `<job_id>:<cursor>:<call>`."""
        ...

    def read_blob(self, key: str, *, start: int, length: int) -> bytes:
        """At most `length` bytes of an object. Raises `ObjectMissing` and `StorageUnavailable`."""
        ...

    def put_blob_once(self, key: str, body: bytes, *, content_type: str) -> bool:
        """Create the object, unless it is there already: then False. Raises `StorageUnavailable`."""
        ...

    def outputs(self) -> list[Any]:
        """The outputs of this job's committed chunks, parsed, in byte order of their cursors."""
        ...

    def count(self, name: str, amount: int) -> None:
        """Add to one of this class's stats counters. Tokens have `count_tokens`."""
        ...


class Kind(Protocol):
    """The code of a job class: one file in `functions/worker/kinds`."""

    calls_per_chunk: int

    def process_chunk(self, job: Job, cursor: str, context: ChunkContext) -> Chunk:
        """Do one chunk from `cursor`. May run again after a crash: name outputs and calls by the idempotency key."""
        ...


def payload_of(job: Job) -> dict[str, Any]:
    """The job's payload, parsed. Raises `BadPayload` if it is no object."""
    payload = json.loads(job.payload)
    if not isinstance(payload, dict):
        raise BadPayload("payload: expected an object")
    return payload


def payload_text(job: Job, name: str) -> str:
    """A text that the payload must hold. Raises `BadPayload` that names the field, never its value (I12)."""
    text = payload_of(job).get(name)
    if not isinstance(text, str) or not text:
        raise BadPayload(f"{name}: expected a text that is not empty")
    return text


def count_tokens(answer: Mapping[str, Any], context: ChunkContext) -> None:
    """Count the tokens that an upstream's answer names, as in {"usage": {"input_tokens": 412, "output_tokens": 87}}.

    They are what the upstream is paid for (`usd_per_million_input_tokens` and its like in `sluice.toml`). An answer
    that does not name them, or names no whole numbers, counts for nothing.
    """
    usage = answer.get("usage")
    for name in (INPUT_TOKENS, OUTPUT_TOKENS):
        amount = usage.get(name) if isinstance(usage, Mapping) else None
        if type(amount) is int and amount > 0:
            context.count(name, amount)
