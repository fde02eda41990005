"""A recorded day in the virtual world: every row is a job that comes at its recorded moment, against a fake limiter."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from ops.simulator.arrivals import Arrival, Arrivals
from ops.simulator.drive import Drive, result_of
from ops.simulator.kinds import CALL_MS, CHUNK_TOKENS, RecordedKind, Shape, Work, shape_of
from ops.simulator.measure import quantile
from ops.simulator.recording import MATCH_PREFIX, Recorded, Recording
from ops.simulator.result import Result
from ops.simulator.scenario import CLASS, Expectation, Scenario, Source, Trouble, Truth
from ops.simulator.waste import Bill, bill_of
from ops.simulator.world import START_MS, World
from shared.domain.job import NewJob
from shared.domain.settings import RetrySettings
from shared.kind import Kind
from shared.pacer.cost import Prices

KILLS_PER_MINUTE: Final = 3.0

_MAX_CRASHES: Final = 20
"""A job that is killed from outside three times has proven nothing against itself: here it must not die of it."""

_HEADROOM: Final = 1.5
"""The pool beyond what the limit needs, so that the limit and not the slots is what the drain runs against."""

_MUST_HOLD: Final = ("over_budget_ticks", "duplicate_effects", "redone_chunks", "lost")


class Options(Struct, frozen=True, kw_only=True):
    """What a replay is asked for. `limit_per_s` is what the upstream declares, and what it keeps to."""

    limit_per_s: float
    kills_per_minute: float = 0.0
    slots: int | None = None
    chunk_tokens: int = CHUNK_TOKENS


class RecordedScenario(Scenario, Struct, frozen=True, kw_only=True):
    """A scenario whose jobs come from a recording; what is declared is what a first measurement of it would find."""

    mean_chunks: float
    mean_service_s: float

    @property
    def chunks_per_job(self) -> float:
        return self.mean_chunks

    @property
    def service_s(self) -> float:
        return self.mean_service_s


def scenario_of(recording: Recording, shapes: Mapping[str, Shape], options: Options) -> RecordedScenario:
    calls = sum(len(shape.chunks) for shape in shapes.values())
    chunk_s = sum(shape.service_s for shape in shapes.values()) / calls
    longest_s = max(max(shape.duration_ms(n) for n in range(len(shape.chunks))) for shape in shapes.values()) / 1000
    # Half of the slots are each lane's own: a recorded day is all live until it falls behind, and all recovery then.
    slots = options.slots or 2 * (math.ceil(options.limit_per_s * chunk_s * _HEADROOM) + 2)
    backlog_h = calls / options.limit_per_s / 3600
    return RecordedScenario(
        name=recording.name,
        about="a recorded day",
        mean_chunks=calls / len(shapes),
        mean_service_s=max(0.1, round(chunk_s * calls / len(shapes), 3)),
        job_class={
            "slots": slots,
            "live_share": 0.5,
            "retry": RetrySettings(max_crashes=_MAX_CRASHES),
            "function_timeout_s": max(60, math.ceil(2 * longest_s) + 30),
            "max_inflight": max(1000, math.ceil(options.limit_per_s * 300)),
        },
        upstream={"limit_per_s": options.limit_per_s},
        truth=Truth(latency_ms=(CALL_MS * 4 // 5, CALL_MS * 6 // 5)),
        sources=(Source(count=len(shapes)),),
        trouble=Trouble(kills_per_minute=options.kills_per_minute),
        expect=tuple(Expectation(figure=figure, compare="==", number=0) for figure in _MUST_HOLD),
        max_hours=recording.span_s / 3600 + 10 * backlog_h + 24,
    )


class RecordedArrivals(Arrivals):
    """Each row is handed in at its moment, counted from the first one's."""

    def __init__(
        self,
        recording: Recording,
        shapes: Mapping[str, Shape],
        scenario: Scenario,
        world: World,
        take: Callable[[list[Arrival]], None],
    ) -> None:
        super().__init__(scenario, world, take)
        self._rows = recording.rows
        self._shapes = shapes
        self._coming = 0

    @property
    def over(self) -> bool:
        return self._coming == len(self._rows)

    @property
    def backlog_over(self) -> bool:
        return self.over

    def start(self) -> None:
        self._world.at(START_MS, self._come)

    def _come(self) -> None:
        batch = []
        while not self.over and self._at_ms(self._coming) <= self._world.now_ms:
            batch.append(self._recorded(self._rows[self._coming]))
            self._coming += 1
        if not self.over:
            self._world.at(self._at_ms(self._coming), self._come)
        self._take(batch)

    def _at_ms(self, index: int) -> int:
        return START_MS + self._rows[index].at_ms - self._rows[0].at_ms

    def _recorded(self, row: Recorded) -> Arrival:
        job_id = id_of(row)
        match = job_id if row.match is None else f"{MATCH_PREFIX}{row.match}"
        job = NewJob(job_id=job_id, job_class=CLASS, match_id=match, payload="{}", due_ms=self._world.now_ms)
        return Arrival(at_ms=self._world.now_ms, job=job, live=True, chunks=len(self._shapes[job_id].chunks), number=0)


def id_of(row: Recorded) -> str:
    return f"line-{row.line}"


class Replay(Drive):
    """One recording, one seed. `result` and `bill` are there after `run`."""

    def __init__(self, recording: Recording, options: Options, seed: int) -> None:
        self.recording = recording
        self.shapes = {id_of(row): shape_of(row, chunk_tokens=options.chunk_tokens) for row in recording.rows}
        self.work = Work()
        super().__init__(scenario_of(recording, self.shapes, options), seed)
        self.arrivals = RecordedArrivals(recording, self.shapes, self.scenario, self.sluice.world, self._take)

    def _kinds(self, world: World) -> dict[str, Kind]:
        return {"work": RecordedKind(world, self.shapes, self.work)}

    def finish(self, prices: Prices) -> tuple[Result, Bill]:
        """What came of it. The cost per job is that of the bill, tokens included."""
        result, bill = result_of(self), bill_of(self, self.shapes, self.work, prices)
        done = max(1, result.figures.done)
        result.figures.cost_per_job_usd = bill.total_usd / done
        result.figures.waste_per_job_usd = (bill.refused_usd + bill.repeated_usd) / done
        result.figures.ideal_drain_s = self._ideal_s()
        waits = self._live_waits_s()
        for entry, wait_s in zip(result.series, waits, strict=True):
            entry["live_wait_s"] = wait_s
        return result, bill

    def _ideal_s(self) -> float:
        """When a pool that wastes no permit would have made the last call: never before a job came."""
        limit_per_s = self.scenario.upstream["limit_per_s"]
        first_ms, made_s = self.recording.rows[0].at_ms, 0.0
        for row in self.recording.rows:
            came_s = (row.at_ms - first_ms) / 1000
            made_s = max(made_s, came_s) + len(self.shapes[id_of(row)].chunks) / limit_per_s
        return made_s

    def _live_waits_s(self) -> list[float | None]:
        """Per tick, the p95 of the waits of the jobs that began since the tick before."""
        ticks_ms = [line.at_ms for line in self.measure.lines]
        waits: list[list[float]] = [[] for _ in ticks_ms]
        begun: set[str] = set()
        for start in (start for kind in self.sluice.kinds.values() for start in kind.starts):
            number = bisect_left(ticks_ms, start.at_ms)
            if start.job_id not in begun and number < len(ticks_ms):
                waits[number].append((start.at_ms - self.sluice.ledger.rows[start.job_id].job.due_ms) / 1000)
            begun.add(start.job_id)
        return [quantile(each, 0.95) for each in waits]
