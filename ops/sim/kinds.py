"""Job kinds of the simulation, and a wrapper that remembers what every kind was asked to do."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ops.sim.world import World
from shared.core.model import Job
from shared.kind import Chunk, ChunkContext, Kind


@dataclass(frozen=True, slots=True)
class ChunkStart:
    """A chunk that was begun, for the checkers of I4 and I5 and for the waits."""

    at_ms: int
    job_id: str
    cursor: str
    epoch: int


class SimKind:
    """Work that takes time and calls. The payload may name `chunks` (1) and `chunk_ms`; cursors are numbers."""

    def __init__(self, world: World, *, calls_per_chunk: int = 1, chunk_ms: tuple[int, int] = (200, 600)) -> None:
        self.calls_per_chunk = calls_per_chunk
        self._world = world
        self._chunk_ms = chunk_ms
        self._rng: random.Random = world.random("kind")

    def process_chunk(self, job: Job, cursor: str, context: ChunkContext) -> Chunk:
        asked: Mapping[str, Any] = json.loads(job.payload)
        number = int(cursor or 0)
        duration_ms = int(asked.get("chunk_ms", self._rng.randint(*self._chunk_ms)))
        self._world.call("kind.work", partial(self._world.sleep, duration_ms))
        for _ in range(self.calls_per_chunk):
            context.call_upstream({"job": job.job_id, "chunk": number})
        last = number + 1 >= int(asked.get("chunks", 1))
        return Chunk(next_cursor=None if last else str(number + 1), output={"chunk": number})


class WatchedKind:
    """Any kind, with a record of the chunks it was asked for, and for onlookers what it raised."""

    def __init__(self, world: World, kind: Kind) -> None:
        self.calls_per_chunk = kind.calls_per_chunk
        self.starts: list[ChunkStart] = []
        self.on_start: Callable[[ChunkStart], None] | None = None
        self.on_error: Callable[[Job, Exception], None] | None = None
        self._world = world
        self._kind = kind

    def process_chunk(self, job: Job, cursor: str, context: ChunkContext) -> Chunk:
        start = ChunkStart(self._world.now_ms, job.job_id, cursor, job.epoch)
        self.starts.append(start)
        if self.on_start is not None:
            self.on_start(start)
        try:
            return self._kind.process_chunk(job, cursor, context)
        except Exception as error:
            if self.on_error is not None:
                self.on_error(job, error)
            raise
