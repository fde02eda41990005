"""Scenario files: TOML -> a validated `Scenario`. docs/simulation.md describes the format for those who write them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from msgspec import structs

from ops.simulator.result import FIGURES
from ops.simulator.scenario import Event, Expectation, Host, Scenario, Source, Ticks, Trouble, Truth, Work
from ops.simulator.upstream import LimiterKind
from shared.domain.config_abort import ABORT
from shared.domain.config_rules import (
    CLASS,
    FLAG,
    RETRY,
    UPSTREAM,
    Law,
    Rule,
    Values,
    above_zero,
    did_you_mean,
    dotted,
    fault,
    kind_of,
    number,
    shown,
    text,
    whole,
)
from shared.errors import InvalidInput

FOLDER: Final = Path(__file__).resolve().parent / "scenarios"

_WEEK_S: Final = 7 * 86_400

_MOST: Final = 1_000_000


def _span(high: int) -> Rule:
    def accepts(value: list[Any]) -> bool:
        right = len(value) == 2 and all(type(each) is int for each in value)
        return right and 0 <= value[0] <= value[1] <= high

    return Rule(kinds=(list,), accepts=accepts, expected=f"[least, most] milliseconds, 0 to {high}", convert=tuple)


def _is_changes(value: list[Any]) -> bool:
    pairs = all(type(each) is list and len(each) == 2 for each in value)
    if not pairs or not all(type(part) in (int, float) and 0 <= part <= _MOST for each in value for part in each):
        return False
    return value == sorted(value, key=lambda each: each[0])


_CHANGES: Final = Rule(
    kinds=(list,),
    accepts=_is_changes,
    expected="[[second, calls per second], ...] in the order of time",
    convert=lambda value: tuple((float(at_s), float(per_s)) for at_s, per_s in value),
)

_LIMITER: Final = Rule(
    kinds=(str,),
    accepts=lambda value: value in {each.value for each in LimiterKind},
    expected="one of " + ", ".join(each.value for each in LimiterKind),
    convert=LimiterKind,
)

_DOES: Final = ("pause", "resume", "repair")

_DO: Final = Rule(kinds=(str,), accepts=lambda value: value in _DOES, expected=f"one of {', '.join(_DOES)}")

_LONG_MS: Final = 3_600_000

_TABLES: Final[Mapping[str, tuple[type, Mapping[str, Rule]]]] = {
    "truth": (
        Truth,
        {
            "limiter": _LIMITER,
            "limit_per_s": number(0, _MOST),
            "burst_calls": number(0, _MOST),
            "window_s": above_zero(3600),
            "latency_ms": _span(_LONG_MS),
            "tail_share": number(0, 1),
            "tail_ms": _span(_LONG_MS),
            "overloaded": number(0, 1),
            "overload_status": whole(500, 599),
            "changes": _CHANGES,
        },
    ),
    "work": (
        Work,
        {
            "calls_per_chunk": whole(0, 100),
            "chunk_ms": _span(_LONG_MS),
            "tail_share": number(0, 1),
            "tail_ms": _span(_LONG_MS),
        },
    ),
    "host": (
        Host,
        {"cold_start_ms": _span(60_000), "call_jitter_ms": whole(0, 60_000), "recursion_allowed": FLAG},
    ),
    "ticks": (Ticks, {"late_ms": _span(_LONG_MS), "double": number(0, 1), "miss": number(0, 0.9)}),
    "trouble": (
        Trouble,
        {"kills_per_minute": number(0, 1000), "mix": FLAG, "until_s": number(0, _WEEK_S)},
    ),
}

_SOURCE: Final[Mapping[str, Rule]] = {
    "count": whole(1, _MOST),
    "per_s": above_zero(10_000),
    "from_s": number(0, _WEEK_S),
    "to_s": number(0, _WEEK_S),
    "age_s": number(0, 30 * 86_400),
    "jobs_per_match": whole(1, _MOST),
    "chunks": whole(1, 10_000),
    "live": FLAG,
    "poison_every": whole(0, _MOST),
    "crash_every": whole(0, _MOST),
    "poison_share": number(0, 1),
}

_EVENT: Final[Mapping[str, Rule]] = {"at_s": number(0, _WEEK_S), "do": _DO}

_ABOUT: Final = text(r"[^\n]{1,300}", "one sentence of at most 300 characters")

_HOURS: Final = above_zero(24 * 30)

_EXPECT: Final = re.compile(r"([a-z0-9_]+) (>=|<=|==) ([0-9]+(?:\.[0-9]+)?)")

_TOP: Final = ("about", "max_hours", "expect", "class", "upstream", "jobs", "events", *_TABLES)

_CLASS_RULES: Final = {key: rule for key, rule in CLASS.rules.items() if key not in ("kind", "upstream")}

_INNER: Final = {"retry": RETRY, "abort": ABORT}

_UPSTREAM_RULES: Final = {key: rule for key, rule in UPSTREAM.rules.items() if key != "endpoint"}


def names() -> list[str]:
    """The scenarios that come with Sluice."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name_or_path: str) -> Scenario:
    """A scenario by its name, or from a file. Raises `InvalidInput`: one line with file, line or key, got, expected."""
    known = FOLDER / f"{name_or_path}.toml"
    path = known if re.fullmatch(r"[a-z0-9-]{1,60}", name_or_path) and known.is_file() else Path(name_or_path)
    try:
        source = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput(str(path), got="bytes that are not UTF-8", expected="a TOML file") from None
    except (OSError, ValueError):
        expected = f"a readable file or one of {', '.join(names())}"
        raise InvalidInput("scenario", got=shown(name_or_path), expected=expected) from None
    return parse(source, path=path)


def parse(source: str, *, path: Path) -> Scenario:
    try:
        document = tomllib.loads(source)
    except (ValueError, RecursionError) as error:
        found = re.search(r"\(at (line \d+|end of document)", str(error))
        at = f"{path}, {found.group(1)}" if found else str(path)
        raise InvalidInput(at, got="text that is not TOML", expected="a scenario as docs/simulation.md says") from None
    return _Reader(str(path)).scenario(document, path.stem)


class _Reader:
    """Raises at the first fault, with the file's name before the key's."""

    def __init__(self, file: str) -> None:
        self._file = file

    def scenario(self, document: Values, name: str) -> Scenario:
        self._known(document, _TOP, ())
        tables = {key: made(**self._read(document, key, rules)) for key, (made, rules) in _TABLES.items()}
        return Scenario(
            name=name,
            about=self._value(document, "about", _ABOUT),
            max_hours=self._value(document, "max_hours", _HOURS, 24.0),
            job_class=self._class(document),
            upstream=self._upstream(document),
            sources=self._sources(document),
            events=tuple(Event(**values) for values in self._list(document, "events", _EVENT)),
            expect=self._expect(document),
            **tables,
        )

    # -- tables

    def _class(self, document: Values) -> dict[str, Any]:
        table = dict(self._table(document.get("class", {}), "class"))
        inner = {key: table.pop(key, {}) for key in _INNER}
        values = self._values(table, _CLASS_RULES, "class")
        self._obey(CLASS.laws, {**CLASS.defaults, **values}, "class")
        for key, section in _INNER.items():
            at = f"class.{key}"
            given = self._values(self._table(inner[key], at), section.rules, at)
            self._obey(section.laws, {**section.defaults, **given}, at)
            if given:
                values[key] = section.target(**given)
        return values

    def _upstream(self, document: Values) -> dict[str, Any]:
        values = self._read(document, "upstream", _UPSTREAM_RULES)
        if "limit_per_s" not in values:
            self._stop("upstream.limit_per_s", "nothing", _UPSTREAM_RULES["limit_per_s"].expected)
        return values

    def _sources(self, document: Values) -> tuple[Source, ...]:
        sources = []
        for position, values in enumerate(self._list(document, "jobs", _SOURCE), 1):
            at = f"jobs[{position}]"
            if ("count" in values) == ("per_s" in values):
                got = "both" if "count" in values else "neither"
                self._stop(at, got, "either count or per_s")
            if values.get("to_s", 0) and values["to_s"] < values.get("from_s", 0):
                self._stop(f"{at}.to_s", shown(values["to_s"]), "at least from_s")
            sources.append(Source(**values))
        if not sources or all(source.endless for source in sources):
            self._stop("jobs", "no source that ends", "at least one [[jobs]] table with count, or with per_s and to_s")
        return tuple(sources)

    def _expect(self, document: Values) -> tuple[Expectation, ...]:
        lines = document.get("expect", [])
        if type(lines) is not list:
            self._stop("expect", kind_of(lines), "an array of strings")
        found = []
        for position, line in enumerate(lines, 1):
            match = _EXPECT.fullmatch(line) if isinstance(line, str) else None
            if match is None:
                self._stop(f"expect[{position}]", shown(line), 'a string like "utilisation >= 0.95"')
            figure, compare, limit = match.groups()
            if figure not in FIGURES:
                hint = did_you_mean(figure, FIGURES)
                self._stop(f"expect[{position}]", shown(figure), f"one of {', '.join(FIGURES)}{hint}")
            found.append(Expectation(figure=figure, compare=compare, number=float(limit)))
        return tuple(found)

    # -- parts

    def _read(self, document: Values, key: str, rules: Mapping[str, Rule]) -> dict[str, Any]:
        return self._values(self._table(document.get(key, {}), key), rules, key)

    def _list(self, document: Values, key: str, rules: Mapping[str, Rule]) -> list[dict[str, Any]]:
        tables = document.get(key, [])
        if type(tables) is not list:
            self._stop(key, kind_of(tables), f"[[{key}]] tables")
        read = [
            self._values(self._table(table, f"{key}[{position}]"), rules, f"{key}[{position}]")
            for position, table in enumerate(tables, 1)
        ]
        needed = {each.name for each in structs.fields(Event) if each.required} if key == "events" else set()
        for position, values in enumerate(read, 1):
            for name in sorted(needed - set(values)):
                self._stop(f"{key}[{position}].{name}", "nothing", rules[name].expected)
        return read

    def _values(self, table: Values, rules: Mapping[str, Rule], at: str) -> dict[str, Any]:
        self._known(table, rules, (at,))
        return {key: self._value(table, key, rules[key], at=at) for key in table}

    def _value(self, table: Values, key: str, rule: Rule, default: Any = None, *, at: str = "") -> Any:
        if key not in table:
            if default is None:
                self._stop(key, "nothing", rule.expected)
            return default
        where = f"{at}.{key}" if at else key
        bad = rule.fault(where, table[key])
        if bad is not None:
            raise self._invalid(bad)
        return rule.convert(table[key])

    def _table(self, value: object, at: str) -> Values:
        if not isinstance(value, dict):
            self._stop(at, kind_of(value), "a table")
        return value

    def _known(self, table: Values, known: Iterable[str], at: tuple[str, ...]) -> None:
        for key in table:
            if key not in known:
                where = ".".join((*at, dotted(key)))
                self._stop(where, "an unknown key", f"one of {', '.join(known)}{did_you_mean(key, known)}")

    def _obey(self, laws: Iterable[Law], values: Values, at: str) -> None:
        for law in laws:
            if all(key in values for key in law.reads) and not law.holds(values):
                self._stop(f"{at}.{law.blames}", shown(values[law.blames]), law.expected)

    def _stop(self, at: str, got: str, expected: str) -> NoReturn:
        raise self._invalid(fault(at, got, expected))

    def _invalid(self, said: str) -> InvalidInput:
        at, _, rest = said.partition(": got ")
        got, _, expected = rest.partition(", expected ")
        return InvalidInput(f"{self._file}: {at}", got=got, expected=expected)
