"""Job kinds of the simulation, and a wrapper that remembers what every kind was asked to do."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec import Struct

from ops.simulator.world import World
from shared.domain.job import Job
from shared.errors import JobFailure
from shared.kind import Chunk, ChunkContext, Kind


@dataclass(frozen=True, slots=True)
class ChunkStart:
    """A chunk that was begun, for the checkers of I4 and I5 and for the waits."""

    at_ms: int
    job_id: str
    cursor: str
    epoch: int


def chunk_of(number: int, *, of: int) -> Chunk:
    """What comes of a simulated chunk: its number, and the next one's as the cursor."""
    return Chunk(next_cursor=None if number + 1 >= of else str(number + 1), output={"chunk": number})


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
        return chunk_of(number, of=int(asked.get("chunks", 1)))


class Duration(Struct, frozen=True, kw_only=True):
    """Milliseconds drawn from `ms`, and for a `tail_share` of the draws from `tail_ms`."""

    ms: tuple[int, int]
    tail_share: float = 0.0
    tail_ms: tuple[int, int] = (0, 0)

    def of(self, name: str) -> int:
        """The same name has the same duration, in whatever order it is asked for."""
        digest = hashlib.sha256(name.encode()).digest()
        low, high = self.tail_ms if int.from_bytes(digest[:4]) < self.tail_share * 2**32 else self.ms
        return low + int.from_bytes(digest[4:12]) % (high - low + 1)

    @property
    def mean_s(self) -> float:
        body, tail = sum(self.ms) / 2000, sum(self.tail_ms) / 2000
        return body * (1 - self.tail_share) + tail * self.tail_share


class WorkKind:
    """The work of a scenario: the calls of a chunk first, under their permits, then the time that it takes.

    The payload says how many `chunks` there are, and whether the job is `poison` (its code fails every time, unless
    somebody has `mended` it) or a `crash` (it takes its process with it). The duration is drawn from the job and the
    chunk, not from a common stream: a chunk takes as long under one policy as under another.
    """

    def __init__(
        self, world: World, *, calls_per_chunk: int, duration: Duration, mended: Container[str] = frozenset()
    ) -> None:
        self.calls_per_chunk = calls_per_chunk
        self._world = world
        self._duration = duration
        self._mended = mended

    def process_chunk(self, job: Job, cursor: str, context: ChunkContext) -> Chunk:
        asked: Mapping[str, Any] = json.loads(job.payload)
        number = int(cursor or 0)
        if asked.get("crash"):
            self._world.die()
        if asked.get("poison") and job.job_id not in self._mended:
            raise JobFailure("canary: what a job's code says is nobody's business")
        for _ in range(self.calls_per_chunk):
            context.call_upstream({"job": job.job_id, "chunk": number})
        duration_ms = self.duration_ms(job.job_id, number)
        self._world.call("kind.work", partial(self._world.sleep, duration_ms))
        return chunk_of(number, of=int(asked.get("chunks", 1)))

    def duration_ms(self, job_id: str, chunk: int) -> int:
        return self._duration.of(f"{self._world.seed}/{job_id}/{chunk}")


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
