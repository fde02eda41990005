"""A scenario as data: what is declared, what is true, what arrives and what goes wrong. `scenario_file` reads them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from ops.simulator.hosts import Hosting, ScheduleFaults
from ops.simulator.kinds import Duration
from ops.simulator.upstream import LimiterKind, Tail, UpstreamTruth
from ops.simulator.world import START_MS, Latency
from shared.domain.settings import ClassSettings, Settings, UpstreamSettings

CLASS: Final = "work"

UPSTREAM: Final = "upstream"

_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
}


class Truth(Struct, frozen=True, kw_only=True):
    """What the upstream really does. None: as declared."""

    limiter: LimiterKind = LimiterKind.TOKEN_BUCKET
    limit_per_s: float | None = None
    burst_calls: float | None = None
    window_s: float = 1.0
    latency_ms: tuple[int, int] = (80, 120)
    tail_share: float = 0.0
    tail_ms: tuple[int, int] = (1000, 3000)
    overloaded: float = 0.0
    overload_status: int = 503
    changes: tuple[tuple[float, float], ...] = ()
    """(second, calls per second from then on)."""


class Work(Struct, frozen=True, kw_only=True):
    """What one chunk is: its calls, then its duration."""

    calls_per_chunk: int = 1
    chunk_ms: tuple[int, int] = (200, 600)
    tail_share: float = 0.0
    tail_ms: tuple[int, int] = (2000, 6000)

    @property
    def duration(self) -> Duration:
        return Duration(ms=self.chunk_ms, tail_share=self.tail_share, tail_ms=self.tail_ms)


class Host(Struct, frozen=True, kw_only=True):
    """Cold starts, how long a call takes to arrive beyond its instant, and recursive-loop detection."""

    cold_start_ms: tuple[int, int] = (0, 0)
    call_jitter_ms: int = 0
    recursion_allowed: bool = True


class Ticks(Struct, frozen=True, kw_only=True):
    """How the schedule misbehaves."""

    late_ms: tuple[int, int] = (0, 0)
    double: float = 0.0
    miss: float = 0.0


class Trouble(Struct, frozen=True, kw_only=True):
    """`mix`: every fault there is, with chances drawn from the seed. Kills hit running workers at random moments."""

    kills_per_minute: float = 0.0
    mix: bool = False
    until_s: float = 0.0
    """0: to the end of the run."""


class Source(Struct, frozen=True, kw_only=True):
    """Where jobs come from: `count` of them evenly from `from_s` to `to_s`, or `per_s` at random moments.

    A source without an end (`to_s` 0 beside `per_s`) goes on until the jobs of all others are finished.
    """

    count: int = 0
    per_s: float = 0.0
    from_s: float = 0.0
    to_s: float = 0.0
    age_s: float = 0.0
    jobs_per_match: int = 1
    chunks: int = 1
    live: bool = False
    poison_every: int = 0
    crash_every: int = 0
    poison_share: float = 0.0
    """Of the jobs, wherever chance has them."""

    @property
    def endless(self) -> bool:
        return self.per_s > 0 and self.to_s == 0


class Event(Struct, frozen=True, kw_only=True):
    """What an operator does at a second of the run: `pause`, `resume`, or `repair` (a word on every dead job, then and
    in rounds from then on)."""

    at_s: float
    do: str


class Expectation(Struct, frozen=True, kw_only=True):
    """A figure of the result that must hold under our own policy."""

    figure: str
    compare: str
    number: float

    def holds(self, value: float | None) -> bool:
        return value is not None and _COMPARE[self.compare](value, self.number)

    def __str__(self) -> str:
        return f"{self.figure} {self.compare} {self.number:g}"


class Scenario(Struct, frozen=True, kw_only=True):
    name: str
    about: str
    job_class: Mapping[str, Any]
    upstream: Mapping[str, Any]
    sources: tuple[Source, ...]
    truth: Truth = field(default_factory=Truth)
    work: Work = field(default_factory=Work)
    host: Host = field(default_factory=Host)
    ticks: Ticks = field(default_factory=Ticks)
    trouble: Trouble = field(default_factory=Trouble)
    events: tuple[Event, ...] = ()
    expect: tuple[Expectation, ...] = ()
    max_hours: float = 24.0

    @property
    def settings(self) -> Settings:
        upstream = UpstreamSettings(name=UPSTREAM, endpoint="http://simulated", **self.upstream)
        declared = {"declared_calls_per_job": self.calls_per_job, "declared_service_s": self.service_s}
        declared["declared_chunk_s"] = self.service_s / self.chunks_per_job
        job_class = ClassSettings(name=CLASS, kind="work", upstream=UPSTREAM, **(declared | dict(self.job_class)))
        return Settings(upstreams={UPSTREAM: upstream}, classes={CLASS: job_class})

    @property
    def upstream_truth(self) -> UpstreamTruth:
        truth = self.truth
        return UpstreamTruth(
            limit_per_s=self.upstream["limit_per_s"] if truth.limit_per_s is None else truth.limit_per_s,
            changes=tuple((START_MS + round(at_s * 1000), per_s) for at_s, per_s in truth.changes),
            limiter=truth.limiter,
            bucket_calls=truth.burst_calls,
            window_ms=round(truth.window_s * 1000),
            latency_ms=truth.latency_ms,
            tail=Tail(share=truth.tail_share, ms=truth.tail_ms) if truth.tail_share else None,
            overloaded=truth.overloaded,
            overload_status=truth.overload_status,
        )

    @property
    def hosting(self) -> Hosting:
        return Hosting(cold_start_ms=self.host.cold_start_ms, recursion_allowed=self.host.recursion_allowed)

    @property
    def latency(self) -> Latency:
        """Half of a call's time passes before it arrives: twice the jitter, drawn evenly."""
        return Latency(
            by_point={"upstream.call": (0, 2 * self.host.call_jitter_ms)} if self.host.call_jitter_ms else {}
        )

    @property
    def schedule_faults(self) -> ScheduleFaults:
        return ScheduleFaults(late_ms=self.ticks.late_ms, double=self.ticks.double, miss=self.ticks.miss)

    @property
    def drains_from_s(self) -> float:
        """When the drain may begin: at the last resume, or when the first jobs come."""
        resumes = [event.at_s for event in self.events if event.do == "resume"]
        return max(resumes) if resumes else min(source.from_s for source in self.sources)

    # -- what is declared where the file does not say otherwise: the truth, as a first measurement would find it

    @property
    def chunks_per_job(self) -> float:
        weights = [(source.chunks, source.count or source.per_s * 3600) for source in self.sources]
        return sum(chunks * weight for chunks, weight in weights) / sum(weight for _, weight in weights)

    @property
    def calls_per_job(self) -> float:
        return self.chunks_per_job * max(1, self.work.calls_per_chunk)

    @property
    def service_s(self) -> float:
        call_s = sum(self.truth.latency_ms) / 2000 * self.work.calls_per_chunk
        return max(0.1, round(self.chunks_per_job * (self.work.duration.mean_s + call_s), 3))

    def with_(self, **changes: Any) -> Scenario:
        return replace(self, **changes)
