"""A crash at every port call of a small drain, once; and at every pair of port calls of the smallest one.

The points come from the runs themselves: a clean run's calls are the first crashes, and the calls that a crashed run
makes after its crash are the second ones. Before and after a call that only reads, the world is the same, so that a
read is one point and everything else two.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec import Struct

from ops.simulator.checks.suite import Suite
from ops.simulator.faults import Call, CrashAt, When
from ops.simulator.kinds import Duration, WorkKind
from ops.simulator.sluice_world import SimSluice
from ops.simulator.world import World
from shared.domain.job import NewJob, State
from shared.domain.settings import ClassSettings, Settings, UpstreamSettings
from shared.kind import Kind

_READS: Final = frozenset(
    {"read_job", "read_run", "read_control", "read_match", "read_stats", "job_id_at", "outputs", "read_allowance"}
)

"""Methods of the ledger and the limiter that change nothing."""

_NO_EFFECT: Final = frozenset({"ledger.count", "ledger.page", "clock.sleep", "kind.work"})
"""Points that change nothing either."""

_MAX_MS: Final = 2 * 3_600_000
"""What is not drained by then is stuck."""

_LATER_MS: Final = 70_000
"""When the later jobs come: after the first tick."""

_CLASS: Final = "work"


class Small(Struct, frozen=True, kw_only=True):
    """A world to crash in: so many jobs, in as many matches, of as many chunks, each chunk of so many milliseconds.

    `later` jobs more come after the first tick, which has left room for them: they spend live allowance.
    """

    jobs: int
    matches: int
    chunks: int
    chunk_ms: int
    ordered: bool = False
    later: int = 0
    seed: int = 3

    @property
    def settings(self) -> Settings:
        job_class = ClassSettings(
            name=_CLASS,
            kind="work",
            upstream="upstream",
            slots=4,
            ordered=self.ordered,
            function_timeout_s=20,
            chunk_margin_s=2.0,
            declared_service_s=self.chunks * self.chunk_ms / 1000,
            declared_chunk_s=self.chunk_ms / 1000,
        )
        upstream = UpstreamSettings(name="upstream", endpoint="http://simulated", limit_per_s=20.0)
        return Settings(upstreams={"upstream": upstream}, classes={_CLASS: job_class})

    def kinds(self, world: World) -> dict[str, Kind]:
        duration = Duration(ms=(self.chunk_ms, self.chunk_ms))
        return {"work": WorkKind(world, calls_per_chunk=1, duration=duration)}

    def new_jobs(self, first: int, count: int) -> list[NewJob]:
        payload = json.dumps({"note": "canary", "chunks": self.chunks})
        return [
            NewJob(job_id=f"job-{number}", job_class=_CLASS, match_id=f"match-{number % self.matches}", payload=payload)
            for number in range(first, first + count)
        ]


SMALLEST: Final = Small(jobs=1, matches=1, chunks=1, chunk_ms=1000)

CHAINED: Final = Small(jobs=3, matches=2, chunks=4, chunk_ms=5000)
"""Too long for one invocation: continuations are among its calls."""

ORDERED: Final = Small(jobs=3, matches=1, chunks=2, chunk_ms=1000, ordered=True)
"""One match of three jobs: handovers are among its calls."""

LIVE: Final = Small(jobs=1, matches=2, chunks=1, chunk_ms=1000, later=1)
"""The second job is admitted by whoever submits it."""


@dataclass(frozen=True, slots=True)
class Crashed:
    """One run with its crashes: what broke, and the calls that it made after the last of them."""

    crashes: tuple[CrashAt, ...]
    said: tuple[str, ...]
    later: tuple[CrashAt, ...]
    moves: tuple[str, ...] = ()


def crash(small: Small, crashes: Sequence[CrashAt]) -> Crashed:
    sluice = SimSluice(small.settings, small.seed, faults=list(crashes), kinds=small.kinds)
    suite = Suite(sluice)
    sluice.submit(small.new_jobs(0, small.jobs))
    if small.later:
        sluice.run(_LATER_MS)
        sluice.submit(small.new_jobs(small.jobs, small.later))
    sluice.drain(_MAX_MS)
    suite.ended()
    said = [str(violation) for violation in suite.findings.first]
    done = sluice.ledger.states[State.DONE]
    if done != small.jobs + small.later:
        said.append(f"{done} of {small.jobs + small.later} jobs are done")
    if any(job.attempts for job in sluice.rows.values()):
        said.append("a crash burned an attempt")
    last = max((point.call for point in crashes), default=0)
    later, moves = tuple(_points(sluice.world.trace, after=last)), tuple(step.name for step in sluice.ledger.steps)
    return Crashed(tuple(crashes), tuple(said), later, moves)


def _points(trace: Sequence[Call], *, after: int) -> Iterator[CrashAt]:
    for call in trace:
        if call.n > after:
            yield CrashAt(call.n, When.BEFORE)
            if call.point not in _NO_EFFECT and call.point.partition(".")[2] not in _READS:
                yield CrashAt(call.n, When.AFTER)


def once(small: Small) -> list[Crashed]:
    """A crash at every point of a clean run, once each."""
    clean = crash(small, ())
    return [clean, *(crash(small, (point,)) for point in clean.later)]


def pairs_after(small: Small, first: CrashAt, *, stride: int = 1, offset: int = 0) -> list[Crashed]:
    """A crash at `first`, then one at every `stride`-th point that comes after it."""
    return [crash(small, (first, second)) for second in crash(small, (first,)).later[offset::stride]]


@dataclass(slots=True, kw_only=True)
class SweepReport:
    points: int = 0
    runs: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, runs: Sequence[Crashed]) -> None:
        self.runs += len(runs)
        for run in runs:
            if run.said:
                where = " and ".join(f"{point.when} call {point.call}" for point in run.crashes)
                self.failures.append(f"crash {where}: {run.said[0]}")


def sweep_once() -> SweepReport:
    report = SweepReport()
    for small in (SMALLEST, CHAINED, ORDERED, LIVE):
        runs = once(small)
        report.points += len(runs) - 1
        report.add(runs)
    return report


def sweep_pairs() -> SweepReport:
    """Exhaustive: minutes of work, over all processors."""
    points = crash(SMALLEST, ()).later
    report = SweepReport(points=len(points))
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        for runs in pool.imap_unordered(partial(pairs_after, SMALLEST), points):
            report.add(runs)
    return report
