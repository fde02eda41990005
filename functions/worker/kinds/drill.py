"""Work for `python -m ops drill`: it waits, leaves an output a chunk, touches nothing, and dies where it is told to.

Payload: {"chunks": 3, "seconds": 2.5, "die_at": 1}; one chunk of no length where it says nothing. `die_at` is a chunk
before which the worker takes its own process down, after the chunk before it was committed and before anything was
acknowledged. Redelivered, the job carries a start mark, and lives: so a real crash can be had from any deployment.
"""

from __future__ import annotations

import os
import time
from typing import Any, Final

from shared.domain.job import Job
from shared.errors import BadPayload
from shared.kind import Chunk, ChunkContext, payload_of

calls_per_chunk: Final = 0

LONGEST_CHUNK_S: Final = 60
"""Fits into the timeout of any class, so that a drill's chunk is never killed for its length."""

MOST_CHUNKS: Final = 1000
"""More than any drill asks for: a mistyped number must not keep a class busy for days."""

_EXIT_CODE: Final = 70
"""What the process ends with where it is told to die: EX_SOFTWARE of sysexits.h."""


def process_chunk(job: Job, cursor: str, context: ChunkContext) -> Chunk:  # noqa: ARG001 - every kind's signature
    asked, number = _asked(job), int(cursor or 0)
    if number == asked["die_at"] and job.mark is None:
        os._exit(_EXIT_CODE)
    time.sleep(asked["seconds"])
    last = number + 1 >= asked["chunks"]
    return Chunk(next_cursor=None if last else str(number + 1), output={"chunk": number})


def _asked(job: Job) -> dict[str, Any]:
    asked: dict[str, Any] = {"chunks": 1, "seconds": 0.0, "die_at": None} | payload_of(job)
    chunks, seconds, die_at = asked["chunks"], asked["seconds"], asked["die_at"]
    if type(chunks) is not int or not 1 <= chunks <= MOST_CHUNKS:
        raise BadPayload(f"chunks: expected a whole number from 1 to {MOST_CHUNKS}")
    if type(seconds) not in (int, float) or not 0 <= seconds <= LONGEST_CHUNK_S:
        raise BadPayload(f"seconds: expected a number from 0 to {LONGEST_CHUNK_S}")
    if die_at is not None and type(die_at) is not int:
        raise BadPayload("die_at: expected the number of a chunk")
    return asked
