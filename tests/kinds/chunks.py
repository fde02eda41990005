"""A `ChunkContext` that remembers, and a driver that runs a kind to its end: alone, or killed on the way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.domain.job import Job
from shared.kind import Chunk, ChunkContext
from shared.memory.resources import MemoryBlobs

NOW_MS = 1_796_040_000_000
"""2026-11-30T12:00Z."""

Process = Callable[[Job, str, ChunkContext], Chunk]


def a_job(payload: Any, *, job_id: str = "j1", due_ms: int = NOW_MS) -> Job:
    return Job(job_id=job_id, job_class="c", match_id="m", payload=json.dumps(payload), due_ms=due_ms)


@dataclass(slots=True)
class FakeContext:
    """What a kind may use. `answers` is the upstream; outputs are kept by the cursor that they began at."""

    answers: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda body: {}
    options: Mapping[str, str] = field(default_factory=dict)
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    committed: dict[str, Any] = field(default_factory=dict)
    counted: Counter[str] = field(default_factory=Counter)
    bodies: list[Mapping[str, Any]] = field(default_factory=list)
    remaining_s: float = 60.0
    idempotency_key: str = "j1:"

    def call_upstream(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self.bodies.append(body)
        return self.answers(body)

    def read_blob(self, key: str, *, start: int, length: int) -> bytes:
        return self.blobs.read(key, start=start, length=length)

    def put_blob_once(self, key: str, body: bytes, *, content_type: str) -> bool:
        return self.blobs.put_once(key, body, content_type=content_type)

    def outputs(self) -> list[Any]:
        return [self.committed[cursor] for cursor in sorted(self.committed, key=str.encode)]

    def count(self, name: str, amount: int) -> None:
        self.counted[name] += amount


def run_to_end(process: Process, job: Job, context: FakeContext, *, dies_at: int | None = None) -> list[str]:
    """Chunk after chunk, each committed as the worker does it; returns the cursors. The chunk number `dies_at` runs
    twice: its process was killed before its commit."""
    cursor: str | None = ""
    cursors: list[str] = []
    while cursor is not None:
        if len(cursors) == dies_at:
            process(job, cursor, context)
        chunk = process(job, cursor, context)
        if chunk.output is not None:
            context.committed[cursor] = json.loads(json.dumps(chunk.output))
        assert chunk.next_cursor != cursor, "no progress"
        cursors.append(cursor)
        cursor = chunk.next_cursor
    return cursors
