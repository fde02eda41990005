"""An exported ledger in the virtual world: the second implementation drains it, under a scenario's pool and faults.

Rows keep their ids, cursors, epochs, outputs and places in their matches. Times are moved so that the moment of the
export is the beginning of the world, and their class becomes the scenario's. What was in flight is given back: nothing
here has its message. A payload with `chunks` is obeyed as in a scenario; any other job has one more chunk.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from ops.simulator.arrivals import Arrival, Arrivals
from ops.simulator.checks.rows import OneEffect
from ops.simulator.drive import Drive
from ops.simulator.kinds import WorkKind
from ops.simulator.mix import Mix
from ops.simulator.scenario import CLASS, Scenario, Source
from ops.simulator.world import START_MS, World
from shared.domain.job import Job, State
from shared.domain.lifecycle import ENDED
from shared.domain.ordering import Match
from shared.domain.records import StoredOutput
from shared.kind import Chunk, ChunkContext, Kind
from shared.memory.copy import MemoryCopy

_TIMES: Final = ("due_ms", "eligible_ms", "created_ms", "sent_at_ms", "hand_until_ms")
"""The moments of a job, which move with the world's beginning."""

_ROUNDS_MS: Final = 60_000
"""An ordered class gets an operator after so long: dead jobs came with the export, and hold their matches."""


class ExportedClass(Struct, frozen=True, kw_only=True):
    """One class of an export, whole: as of `at_ms`. `orders` are those of its ordered matches."""

    at_ms: int
    jobs: Sequence[Job]
    outputs: Sequence[StoredOutput]
    orders: Sequence[Match] = ()

    @property
    def ordered(self) -> bool:
        return any(job.seq for job in self.jobs)


class LedgerKind(WorkKind):
    """The scenario's work, for payloads and cursors that no scenario has made."""

    def process_chunk(self, job: Job, cursor: str, context: ChunkContext) -> Chunk:
        simulated = replace(job, payload=json.dumps(_asked(job)))
        return super().process_chunk(simulated, cursor if cursor.isdigit() else "", context)


def _asked(job: Job) -> dict[str, Any]:
    """What of a payload a simulated kind obeys. A cursor of another kind says nothing of how much is left."""
    try:
        payload = json.loads(job.payload)
    except ValueError:  # an object in the store
        return {}
    if not isinstance(payload, dict):
        return {}
    chunks = payload.get("chunks")
    counted = type(chunks) is int and chunks > 0 and (job.cursor.isdigit() or not job.cursor)
    return {"poison": payload.get("poison") is True, "chunks": chunks if counted else 1}


class LedgerDrive(Drive):
    """One exported class under one scenario, whose own jobs do not come."""

    def __init__(self, scenario: Scenario, exported: ExportedClass, seed: int) -> None:
        class_keys = dict(scenario.class_keys) | {"ordered": exported.ordered}
        class_keys["priorities"] = 1 + max((job.priority for job in exported.jobs), default=0)
        sources = (Source(count=max(1, len(exported.jobs))),)
        mix = Mix(seed) if scenario.trouble.mix else None
        if mix is not None:  # whether a class is ordered is not a matter of chance here
            mix.chances = replace(mix.chances, ordered=exported.ordered)
        super().__init__(scenario.with_(class_keys=class_keys, sources=sources, events=(), expect=()), seed, mix=mix)
        self.exported = exported
        self.arrivals = _NoArrivals(self.scenario, self.world, self._take)

    def run(self) -> None:
        self._load()
        if self.exported.ordered:
            self.world.at(START_MS + _ROUNDS_MS, self.rounds.begin)
        super().run()

    def ends(self) -> dict[str, str]:
        """Job -> the state in which it ended."""
        return {job_id: job.state.value for job_id, job in self.sluice.rows.items()}

    # -- the ledger as it was

    def _kinds(self, scenario: Scenario, world: World) -> dict[str, Kind]:
        work = scenario.work
        return {"work": LedgerKind(world, calls_per_chunk=work.calls_per_chunk, duration=work.duration)}

    def _load(self) -> None:
        ledger, effects = self.sluice.ledger, self.suite.of(OneEffect)
        copy, by_ms = MemoryCopy(ledger), START_MS - self.exported.at_ms
        for order in self.exported.orders:
            copy.put_order(replace(order, job_class=CLASS))
        told = ledger.on_new
        for job in (moved(exported, by_ms) for exported in self.exported.jobs):
            ledger.on_new = None if job.state in ENDED else told  # what has ended there is no news here
            ledger.create([job])
            if job.seq and job.state is not State.REPLACED:
                copy.put_place(job)
            self._expect(job)
        ledger.on_new = told
        for stored in self.exported.outputs:
            copy.put_output(stored)
            effects.known(stored.job_id, stored.output.cursor)

    def _expect(self, job: Job) -> None:
        done = int(job.cursor) if job.cursor.isdigit() else 0
        left = 0 if job.state in ENDED else max(1, _asked(job).get("chunks", 1) - done)
        calls = left * self.scenario.work.calls_per_chunk
        self.lives.expect(job.job_id, due_ms=job.due_ms, created_ms=job.created_ms, live=False, calls=calls)
        if job.state in (State.WAITING, State.BEHIND):
            self._backlog.add(job.job_id)


def moved(job: Job, by_ms: int) -> Job:
    times: dict[str, Any] = {name: max(0, getattr(job, name) + by_ms) for name in _TIMES}
    here = replace(job, job_class=CLASS, **times)
    if here.state is State.QUEUED:
        return replace(here, state=State.WAITING, retried=True, eligible_ms=START_MS)
    return here


class _NoArrivals(Arrivals):
    """Everything is there already."""

    def _moments(self, number: int, source: Source) -> Iterator[Arrival]:
        return iter(())
