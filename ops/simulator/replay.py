"""A recorded day in the virtual world: every row is a job that comes at its recorded moment, against a fake limiter.

A recording says how much each job was, and not how long it took: a job makes as many calls as its tokens need, and
works for as long as those are assumed to take. `Bill` splits what the run cost into what was bought and what was lost.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec import Struct

from ops.simulator.arrivals import Arrival, Arrivals, Take
from ops.simulator.drive import Drive
from ops.simulator.kinds import chunk_of
from ops.simulator.measure import quantile
from ops.simulator.recording import MATCH_PREFIX, Recorded, Recording
from ops.simulator.result import Result
from ops.simulator.scenario import CLASS, Expectation, Scenario, Source, Trouble, Truth
from ops.simulator.upstream import OK
from ops.simulator.world import START_MS, Crash, World
from shared.domain.job import Job, NewJob
from shared.domain.settings import RetrySettings
from shared.kind import Chunk, ChunkContext, Kind
from shared.pacer.cost import PRICES, REFUSED_CALL, REPEATED_CHUNK, Prices, Usage

KILLS_PER_MINUTE: Final = 3.0
"""What `--kills` asks for."""

CHUNK_TOKENS: Final = 1024
"""Tokens that one call of the upstream takes in: a job of more goes through it in chunks, one call each."""

PREFILL_MS: Final = 0.15
"""Assumed: milliseconds of work for each token that goes into the upstream."""

DECODE_MS: Final = 30.0
"""Assumed: milliseconds of work for each token that comes out of it."""

CALL_MS: Final = 100
"""Assumed: how long the upstream takes to answer a call."""

_MAX_CRASHES: Final = 20
"""A job that is killed from outside three times has proven nothing against itself: here it must not die of it."""

_HEADROOM: Final = 1.5
"""The pool beyond what the limit needs, so that the limit and not the slots is what the drain runs against."""

_MUST_HOLD: Final = ("over_budget_ticks", "duplicate_effects", "redone_chunks", "lost")
"""Figures that have to be 0 in any replay."""


class Options(Struct, frozen=True, kw_only=True):
    """What a replay is asked for. `limit_per_s` is what the upstream declares, and what it keeps to."""

    limit_per_s: float
    kills_per_minute: float = 0.0
    slots: int | None = None
    chunk_tokens: int = CHUNK_TOKENS
    prices: Prices = PRICES


# -- what a recorded job does


@dataclass(frozen=True, slots=True)
class Shape:
    """A job's chunks, as sizes: tokens in and out of each one's call."""

    chunks: tuple[tuple[int, int], ...]

    def duration_ms(self, number: int) -> int:
        tokens_in, tokens_out = self.chunks[number]
        return round(tokens_in * PREFILL_MS + tokens_out * DECODE_MS)

    @property
    def service_s(self) -> float:
        return sum(self.duration_ms(number) + CALL_MS for number in range(len(self.chunks))) / 1000


def shape_of(row: Recorded, *, chunk_tokens: int) -> Shape:
    """The tokens in are cut into whole calls; those that come out are spread evenly over them."""
    count = max(1, math.ceil(row.input_tokens / chunk_tokens))
    share, rest = divmod(row.output_tokens, count)
    return Shape(
        tuple(
            (min(chunk_tokens, row.input_tokens - number * chunk_tokens), share + (number < rest))
            for number in range(count)
        )
    )


@dataclass(slots=True)
class TimeSpent:
    """How long each chunk was worked on, attempt by attempt; the last one is the one that was committed."""

    attempts_ms: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    refused_ms: int = 0
    resumed_jobs: set[str] = field(default_factory=set)


class RecordedKind:
    """One call a chunk, then the time that its tokens take. Keeps the time of attempts that came to nothing."""

    calls_per_chunk = 1

    def __init__(self, world: World, shapes: Mapping[str, Shape], spent: TimeSpent) -> None:
        self._world = world
        self._shapes = shapes
        self._spent = spent

    def process_chunk(self, job: Job, cursor: str, context: ChunkContext) -> Chunk:
        shape, number, begun_ms = self._shapes[job.job_id], int(cursor or 0), self._world.now_ms
        try:
            context.call_upstream({"job": job.job_id, "chunk": number})
            self._world.call("kind.work", partial(self._world.sleep, shape.duration_ms(number)))
        except Crash:
            self._note(job, number, begun_ms)
            raise
        except Exception:
            self._spent.refused_ms += self._world.now_ms - begun_ms
            raise
        self._note(job, number, begun_ms)
        return chunk_of(number, of=len(shape.chunks))

    def _note(self, job: Job, number: int, begun_ms: int) -> None:
        attempts = self._spent.attempts_ms.setdefault((job.job_id, number), [])
        attempts.append(self._world.now_ms - begun_ms)
        if len(attempts) > 1 and number > 0:
            self._spent.resumed_jobs.add(job.job_id)


# -- the recording as a scenario


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
        class_keys={
            "slots": slots,
            "live_share": 0.5,
            "retry": RetrySettings(max_crashes=_MAX_CRASHES),
            "function_timeout_s": max(60, math.ceil(2 * longest_s) + 30),
            "max_inflight": max(1000, math.ceil(options.limit_per_s * 300)),
        },
        upstream_keys={"limit_per_s": options.limit_per_s},
        truth=Truth(latency_ms=(CALL_MS * 4 // 5, CALL_MS * 6 // 5)),
        sources=(Source(count=len(shapes)),),
        trouble=Trouble(kills_per_minute=options.kills_per_minute),
        expect=tuple(Expectation(figure=figure, compare="==", number=0) for figure in _MUST_HOLD),
        max_hours=recording.span_s / 3600 + 10 * backlog_h + 24,
    )


class RecordedArrivals(Arrivals):
    """Each row is handed in at its moment, counted from the first one's."""

    def __init__(
        self, recording: Recording, shapes: Mapping[str, Shape], scenario: Scenario, world: World, take: Take
    ) -> None:
        super().__init__(scenario, world, take)
        self._rows = recording.rows
        self._shapes = shapes

    def start(self) -> None:
        self._world.at(START_MS, super().start)

    def _moments(self, number: int, source: Source) -> Iterator[Arrival]:
        for row in self._rows:
            at_ms, job_id = START_MS + row.at_ms - self._rows[0].at_ms, id_of(row)
            match = job_id if row.match is None else f"{MATCH_PREFIX}{row.match}"
            job = NewJob(job_id=job_id, job_class=CLASS, match_id=match, payload="{}", due_ms=at_ms)
            yield Arrival(at_ms=at_ms, job=job, live=True, chunks=len(self._shapes[job_id].chunks), number=number)


def id_of(row: Recorded) -> str:
    return f"line-{row.line}"


# -- the run


class Bill(Struct, frozen=True, kw_only=True):
    """US dollars: total = useful + refused + repeated. A repeated call is taken to be billed again by the upstream."""

    total_usd: float
    useful_usd: float
    refused_usd: float
    repeated_usd: float
    tokens_usd: float
    refused_calls: int
    repeated_calls: int
    repeated_chunks: int
    resumed_jobs: int
    """Jobs that were interrupted after their first chunk and went on at the stored cursor."""
    lost_worker_s: float
    input_tokens: int
    output_tokens: int


class Replay(Drive):
    """One recording, one seed. After `run`, `bill` says what it cost and `finish` what came of it."""

    def __init__(self, recording: Recording, options: Options, seed: int) -> None:
        self.recording = recording
        self.shapes = {id_of(row): shape_of(row, chunk_tokens=options.chunk_tokens) for row in recording.rows}
        self._prices = options.prices
        self._spent = TimeSpent()
        super().__init__(scenario_of(recording, self.shapes, options), seed)
        self.arrivals = RecordedArrivals(recording, self.shapes, self.scenario, self.world, self._take)

    def _kinds(self, scenario: Scenario, world: World) -> dict[str, Kind]:
        return {"work": RecordedKind(world, self.shapes, self._spent)}

    def finish(self) -> Result:
        """The cost per job is that of the bill, tokens included."""
        result, bill = super().finish(), self.bill()
        done = max(1, result.figures.done)
        result.figures.cost_per_job_usd = bill.total_usd / done
        result.figures.waste_per_job_usd = (bill.refused_usd + bill.repeated_usd) / done
        result.figures.ideal_drain_s = self._ideal_s()
        for entry, wait_s in zip(result.series, self._live_waits_s(), strict=True):
            entry["live_wait_s"] = wait_s
        return result

    def bill(self) -> Bill:
        calls = Counter(call.key for call in self.upstream.calls if call.status == OK)
        bought = repeated_calls = Usage()
        for key, count in calls.items():
            tokens = self._tokens(key)
            bought, repeated_calls = bought + tokens.times(count), repeated_calls + tokens.times(count - 1)
        memory_gb, attempts_ms = self.job_class.memory_mb / 1024, self._spent.attempts_ms.values()
        lost_s = sum(sum(attempts[:-1]) for attempts in attempts_ms) / 1000
        repeated_chunks = sum(len(attempts) - 1 for attempts in attempts_ms)
        refused_time = Usage(gb_seconds=self._spent.refused_ms / 1000 * memory_gb)
        refused_usd = (REFUSED_CALL.times(self.upstream.refusals) + refused_time).usd(self._prices)
        repeated = repeated_calls + REPEATED_CHUNK.times(repeated_chunks) + Usage(gb_seconds=lost_s * memory_gb)
        repeated_usd = repeated.usd(self._prices)
        total_usd = self.usage.usd() + bought.usd(self._prices)
        return Bill(
            total_usd=total_usd,
            useful_usd=total_usd - refused_usd - repeated_usd,
            refused_usd=refused_usd,
            repeated_usd=repeated_usd,
            tokens_usd=bought.usd(self._prices),
            refused_calls=self.upstream.refusals,
            repeated_calls=sum(calls.values()) - len(calls),
            repeated_chunks=repeated_chunks,
            resumed_jobs=len(self._spent.resumed_jobs),
            lost_worker_s=lost_s,
            input_tokens=round(bought.input_tokens),
            output_tokens=round(bought.output_tokens),
        )

    def _tokens(self, key: str) -> Usage:
        """The tokens of one call, by its idempotency key `<job_id>:<cursor>:<call>`."""
        job_id, cursor, _ = key.split(":")
        tokens_in, tokens_out = self.shapes[job_id].chunks[int(cursor or 0)]
        return Usage(input_tokens=tokens_in, output_tokens=tokens_out)

    def _ideal_s(self) -> float:
        """When a pool that wastes no permit would have made the last call: never before a job came."""
        limit_per_s = self.scenario.upstream_keys["limit_per_s"]
        first_ms, made_s = self.recording.rows[0].at_ms, 0.0
        for row in self.recording.rows:
            came_s = (row.at_ms - first_ms) / 1000
            made_s = max(made_s, came_s) + len(self.shapes[id_of(row)].chunks) / limit_per_s
        return made_s

    def _live_waits_s(self) -> list[float | None]:
        """Per tick, the p95 of the waits of the jobs that began since the tick before."""
        ticks_ms = [line.at_ms for line in self.meter.lines]
        waits: list[list[float]] = [[] for _ in ticks_ms]
        begun: set[str] = set()
        for start in self.sluice.starts:
            number = bisect_left(ticks_ms, start.at_ms)
            if start.job_id not in begun and number < len(ticks_ms):
                waits[number].append((start.at_ms - self.sluice.ledger.rows[start.job_id].job.due_ms) / 1000)
            begun.add(start.job_id)
        return [quantile(of_tick, 0.95) for of_tick in waits]
