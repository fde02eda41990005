"""What the jobs of a recording do: as many calls as their tokens need, and as long as those take."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ops.sim.invocations import Crash
from ops.sim.recording import Recorded
from ops.sim.world import World
from shared.core.model import Job
from shared.kind import Chunk, ChunkContext

CHUNK_TOKENS: Final = 1024
"""Tokens that one call of the upstream takes in: a job of more goes through it in chunks, one call each."""

PREFILL_MS: Final = 0.15
DECODE_MS: Final = 30.0
"""Assumed, since a recording says how much and not how long: milliseconds per token in, and per token out."""

CALL_MS: Final = 100


@dataclass(frozen=True, slots=True)
class Shape:
    """A job's chunks, as sizes: tokens in and out of each one's call."""

    chunks: tuple[tuple[int, int], ...]

    def duration_ms(self, number: int) -> int:
        put_in, got_out = self.chunks[number]
        return round(put_in * PREFILL_MS + got_out * DECODE_MS)

    @property
    def service_s(self) -> float:
        return sum(self.duration_ms(number) + CALL_MS for number in range(len(self.chunks))) / 1000


def shape_of(row: Recorded, *, chunk_tokens: int) -> Shape:
    """The tokens in are cut into whole calls; those that come out are spread evenly over them."""
    count = max(1, math.ceil(row.input_tokens / chunk_tokens))
    each, more = divmod(row.output_tokens, count)
    return Shape(
        tuple(
            (min(chunk_tokens, row.input_tokens - number * chunk_tokens), each + (number < more))
            for number in range(count)
        )
    )


@dataclass(slots=True)
class Work:
    """How long each chunk was worked on, attempt by attempt; the last one is the one that was committed."""

    attempts_ms: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    refused_ms: int = 0
    resumed_jobs: Counter[str] = field(default_factory=Counter)


class RecordedKind:
    """One call a chunk, then the time that its tokens take. Keeps the time of attempts that came to nothing."""

    calls_per_chunk = 1

    def __init__(self, world: World, shapes: Mapping[str, Shape], work: Work) -> None:
        self._world = world
        self._shapes = shapes
        self._work = work

    def process_chunk(self, job: Job, cursor: str, context: ChunkContext) -> Chunk:
        shape, number, begun_ms = self._shapes[job.job_id], int(cursor or 0), self._world.now_ms
        try:
            context.call_upstream({"job": job.job_id, "chunk": number})
            self._world.call("kind.work", partial(self._world.sleep, shape.duration_ms(number)))
        except Crash:
            self._note(job, number, begun_ms)
            raise
        except Exception:
            self._work.refused_ms += self._world.now_ms - begun_ms
            raise
        self._note(job, number, begun_ms)
        last = number + 1 == len(shape.chunks)
        return Chunk(next_cursor=None if last else str(number + 1), output={"chunk": number})

    def _note(self, job: Job, number: int, begun_ms: int) -> None:
        attempts = self._work.attempts_ms.setdefault((job.job_id, number), [])
        attempts.append(self._world.now_ms - begun_ms)
        if len(attempts) > 1 and number > 0:
            self._work.resumed_jobs[job.job_id] += 1
