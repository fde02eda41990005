"""A scenario: what is declared, what is true, what arrives and what goes wrong; and its file, which is TOML.

The walker of `sluice.toml` (`shared.domain.configuration`) reads the file: `[class]` and `[upstream]` are sections of
the one table of keys, the others are sections here. docs/simulation.md describes the file for those who write one.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from ops.simulator.hosts import Hosting, ScheduleFaults
from ops.simulator.kinds import Duration
from ops.simulator.result import FIGURES
from ops.simulator.upstream import LimiterKind, Tail, UpstreamTruth
from ops.simulator.world import START_MS, Latency
from shared.domain import keys
from shared.domain.configuration import Walker, arguments, below, read_toml
from shared.domain.keys import (
    FLAG,
    Key,
    Law,
    Rule,
    Section,
    Values,
    above_zero,
    did_you_mean,
    kind_of,
    number,
    one_of,
    shown,
    text,
    whole,
)
from shared.domain.settings import ClassSettings, Settings, UpstreamSettings
from shared.errors import ConfigError, InvalidInput

CLASS: Final = "work"
"""The name of a scenario's one class."""

UPSTREAM: Final = "upstream"
"""The name of a scenario's one upstream."""

FOLDER: Final = Path(__file__).resolve().parent / "scenarios"
"""Where the scenarios lie that come with Sluice."""

_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
}
"""How an expectation compares a figure with its number."""


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
    class_keys: Mapping[str, Any]
    """What is said of the class: fields of `ClassSettings`, without those that nothing is said of."""
    upstream_keys: Mapping[str, Any]
    """What the upstream declares: fields of `UpstreamSettings`, without those that nothing is said of."""
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
        upstream = UpstreamSettings(name=UPSTREAM, endpoint="http://simulated", **self.upstream_keys)
        declared = {"declared_calls_per_job": self.calls_per_job, "declared_service_s": self.service_s}
        declared["declared_chunk_s"] = self.service_s / self.chunks_per_job
        work = ClassSettings(name=CLASS, kind="work", upstream=UPSTREAM, **(declared | dict(self.class_keys)))
        return Settings(upstreams={UPSTREAM: upstream}, classes={CLASS: work})

    @property
    def upstream_truth(self) -> UpstreamTruth:
        truth = self.truth
        return UpstreamTruth(
            limit_per_s=self.upstream_keys["limit_per_s"] if truth.limit_per_s is None else truth.limit_per_s,
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


# -- the file

_WEEK_S: Final = 7 * 86_400
"""The last moment of a run that a file may name."""

_HOUR_MS: Final = 3_600_000
"""The longest that a call, a chunk or a tick's delay may take."""

_MOST: Final = 1_000_000
"""Beyond this many jobs or calls a run does not end in anybody's patience."""

_EXPECT: Final = re.compile(r"([a-z0-9_]+) (>=|<=|==) ([0-9]+(?:\.[0-9]+)?)")
"""An expectation as it is written: a figure, a comparison, a number."""

_DOES: Final = ("pause", "resume", "repair")
"""What an operator can do in an event."""

_TABLES: Final = "[[{key}]] tables"
"""What an array of tables is called."""

_ARRAYS: Final = ("expect", "jobs", "events")
"""The keys of a file that hold arrays, which no section describes."""


def _span(high: int) -> Rule:
    def accepts(bounds: list[Any]) -> bool:
        right = len(bounds) == 2 and all(type(bound) is int for bound in bounds)
        return right and 0 <= bounds[0] <= bounds[1] <= high

    return Rule(kinds=(list,), accepts=accepts, expected=f"[least, most] milliseconds, 0 to {high}", convert=tuple)


def _is_changes(value: list[Any]) -> bool:
    pairs = all(type(change) is list and len(change) == 2 for change in value)
    if not pairs or not all(type(part) in (int, float) and 0 <= part <= _MOST for change in value for part in change):
        return False
    return value == sorted(value, key=operator.itemgetter(0))


_CHANGES: Final = Rule(
    kinds=(list,),
    accepts=_is_changes,
    expected="[[second, calls per second], ...] in the order of time",
    convert=lambda value: tuple((float(at_s), float(per_s)) for at_s, per_s in value),
)

_TRUTH: Final = Section(
    target=Truth,
    keys={
        "limiter": Key(one_of(LimiterKind)),
        "limit_per_s": Key(number(0, _MOST)),
        "burst_calls": Key(number(0, _MOST)),
        "window_s": Key(above_zero(3600)),
        "latency_ms": Key(_span(_HOUR_MS)),
        "tail_share": Key(number(0, 1)),
        "tail_ms": Key(_span(_HOUR_MS)),
        "overloaded": Key(number(0, 1)),
        "overload_status": Key(whole(500, 599)),
        "changes": Key(_CHANGES),
    },
)

_WORK: Final = Section(
    target=Work,
    keys={
        "calls_per_chunk": Key(whole(0, 100)),
        "chunk_ms": Key(_span(_HOUR_MS)),
        "tail_share": Key(number(0, 1)),
        "tail_ms": Key(_span(_HOUR_MS)),
    },
)

_HOST: Final = Section(
    target=Host,
    keys={
        "cold_start_ms": Key(_span(60_000)),
        "call_jitter_ms": Key(whole(0, 60_000)),
        "recursion_allowed": Key(FLAG),
    },
)

_TICKS: Final = Section(
    target=Ticks,
    keys={"late_ms": Key(_span(_HOUR_MS)), "double": Key(number(0, 1)), "miss": Key(number(0, 0.9))},
)

_TROUBLE: Final = Section(
    target=Trouble,
    keys={"kills_per_minute": Key(number(0, 1000)), "mix": Key(FLAG), "until_s": Key(number(0, _WEEK_S))},
)

_SOURCE: Final = Section(
    target=Source,
    keys={
        "count": Key(whole(1, _MOST)),
        "per_s": Key(above_zero(10_000)),
        "from_s": Key(number(0, _WEEK_S)),
        "to_s": Key(number(0, _WEEK_S)),
        "age_s": Key(number(0, 30 * 86_400)),
        "jobs_per_match": Key(whole(1, _MOST)),
        "chunks": Key(whole(1, 10_000)),
        "live": Key(FLAG),
        "poison_every": Key(whole(0, _MOST)),
        "crash_every": Key(whole(0, _MOST)),
        "poison_share": Key(number(0, 1)),
    },
    laws=(
        Law(
            "to_s",
            ("from_s", "to_s"),
            lambda values: not values["to_s"] or values["to_s"] >= values["from_s"],
            "at least from_s",
        ),
    ),
)

_EVENT: Final = Section(
    target=Event,
    keys={
        "at_s": Key(number(0, _WEEK_S)),
        "do": Key(Rule(kinds=(str,), accepts=lambda value: value in _DOES, expected=f"one of {', '.join(_DOES)}")),
    },
)

_CLASS: Final = keys.CLASS.without("kind", "upstream")
"""What a file may say of its class: its kind is the simulator's, and its upstream the scenario's only one."""

_UPSTREAM: Final = keys.UPSTREAM.without("endpoint")
"""What a file may declare of the upstream, which lies at no address."""

_FILE: Final = Section(
    target=Scenario,
    keys={
        "about": Key(text(r"[^\n]{1,300}", "one sentence of at most 300 characters")),
        "max_hours": Key(above_zero(24 * 30)),
    },
    inner={
        "truth": _TRUTH,
        "work": _WORK,
        "host": _HOST,
        "ticks": _TICKS,
        "trouble": _TROUBLE,
        "class": _CLASS,
        "upstream": _UPSTREAM,
    },
)
"""The tables of a scenario file, in the order in which they are read."""


def scenario_names() -> list[str]:
    """The scenarios that come with Sluice."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_scenario(name_or_path: str) -> Scenario:
    """A scenario by its name, or from a file. Raises `InvalidInput` if there is none."""
    known = FOLDER / f"{name_or_path}.toml"
    path = known if re.fullmatch(r"[a-z0-9-]{1,60}", name_or_path) and known.is_file() else Path(name_or_path)
    try:
        source = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput(str(path), got="bytes that are not UTF-8", expected="a TOML file") from None
    except (OSError, ValueError):
        expected = f"a readable file or one of {', '.join(scenario_names())}"
        raise InvalidInput("scenario", got=shown(name_or_path), expected=expected) from None
    return parse_scenario(source, path=path)


def parse_scenario(source: str, *, path: Path) -> Scenario:
    """The scenario that the text says, or ConfigError with every fault in it, each behind the file's name."""
    reader = _Reader()
    scenario = reader.scenario(read_toml(source, file=str(path)), path.stem)
    if scenario is None:
        raise ConfigError([f"{path}: {fault}" for fault in reader.faults])
    return scenario


class _Reader(Walker):
    """The walker over a scenario file: its sections as in `sluice.toml`, and the arrays that only it has."""

    def scenario(self, document: dict[str, Any], name: str) -> Scenario | None:
        """None where there are faults."""
        document.setdefault("upstream", {})  # so that the limit is missed where the whole table is missing
        values = self.section("", {key: value for key, value in document.items() if key not in _ARRAYS}, _FILE)
        sources = self._sources(document)
        events = [self.section(at, table, _EVENT) for at, table in self._array("events", document, _TABLES)]
        expect = self._expect(document)
        if self.faults:
            return None
        class_values, upstream_values = values.pop("class", {}), values.pop("upstream")
        return Scenario(
            name=name,
            class_keys=_given(document.get("class", {}), class_values, _CLASS),
            upstream_keys=_given(document["upstream"], upstream_values, _UPSTREAM),
            sources=tuple(Source(**source) for source in sources),
            events=tuple(Event(**event) for event in events),
            expect=tuple(expect),
            **arguments(_FILE, values),
        )

    def known(self, at: str, table: Values, known: Collection[str]) -> None:
        names = known if at else (*known, *_ARRAYS)
        for key in table:
            if key not in names:
                self.fault(below(at, key), "an unknown key", f"one of {', '.join(names)}{did_you_mean(key, names)}")

    def _array(self, key: str, document: Values, expected: str) -> list[tuple[str, Any]]:
        """The parts of an array, each with its place as a fault names it."""
        parts = document.get(key, [])
        if type(parts) is not list:
            self.fault(key, kind_of(parts), expected.format(key=key))
            return []
        return [(f"{key}[{position}]", part) for position, part in enumerate(parts, 1)]

    def _sources(self, document: Values) -> list[dict[str, Any]]:
        faults_before = len(self.faults)
        sources = []
        for at, table in self._array("jobs", document, _TABLES):
            sources.append(self.section(at, table, _SOURCE))
            if isinstance(table, dict) and ("count" in table) == ("per_s" in table):
                self.fault(at, "both" if "count" in table else "neither", "either count or per_s")
        if len(self.faults) == faults_before and all(Source(**source).endless for source in sources):
            expected = "at least one [[jobs]] table with count, or with per_s and to_s"
            self.fault("jobs", "no source that ends", expected)
        return sources

    def _expect(self, document: Values) -> list[Expectation]:
        expectations = []
        for at, line in self._array("expect", document, "an array of strings"):
            match = _EXPECT.fullmatch(line) if isinstance(line, str) else None
            if match is None:
                self.fault(at, shown(line), 'a string like "utilisation >= 0.95"')
                continue
            figure, compare, limit = match.groups()
            if figure not in FIGURES:
                self.fault(at, shown(figure), f"one of {', '.join(FIGURES)}{did_you_mean(figure, FIGURES)}")
            expectations.append(Expectation(figure=figure, compare=compare, number=float(limit)))
        return expectations


def _given(table: Values, values: Values, section: Section) -> dict[str, Any]:
    """Of a section's values those that the file's own table gives, without the defaults."""
    return {key: value for key, value in arguments(section, values).items() if key in table}
