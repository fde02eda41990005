"""What `sluice.toml` may say, as data: one rule per key, one law per relation between keys.

`shared.config` walks these tables and reports what does not fit; a new setting is a field of its dataclass and one
line here. A fault never repeats a long string: someone may have pasted a token into the wrong place (I12).
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from datetime import date, datetime, time
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from msgspec import NODEFAULT, structs

from shared.domain.job import Lane
from shared.domain.settings import (
    LEASE_MARGIN_S,
    LOCK_MARGIN_S,
    MAX_LANE_SLOTS,
    MIN_LANE_SLOTS,
    ClassSettings,
    Consequence,
    RatePolicy,
    RetrySettings,
    Settings,
    UpstreamSettings,
)
from shared.domain.values import frozen

Values: TypeAlias = Mapping[str, Any]

DAY_S: Final = 86_400

FIFO_SEARCH_DEPTH: Final = 120_000
"""SQS looks no further than this for a free message group: more in flight would be stuck, not faster (fact F8)."""

_LONGEST_SHOWN: Final = 40

_LONGEST_OPTION: Final = 500

_KINDS: Final[Mapping[type, str]] = {
    str: "a string",
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    dict: "a table",
    list: "an array",
    datetime: "a date and time",
    date: "a date",
    time: "a time",
    type(None): "nothing",
}


# -- how a fault reads


def fault(at: str, got: str, expected: str) -> str:
    return f"{at}: got {got}, expected {expected}"


def kind_of(value: object) -> str:
    return _KINDS.get(type(value), "something else")


def shown(value: object) -> str:
    """A number or a short string itself, otherwise its kind. One line, whatever it is."""
    if isinstance(value, str):
        short = len(value) <= _LONGEST_SHOWN
        return json.dumps(value, ensure_ascii=True) if short else f"a string of {len(value)} characters"
    if type(value) is float or (type(value) is int and abs(value) < 10**15):
        return str(value)
    return "a huge number" if type(value) is int else kind_of(value)


def dotted(*keys: str) -> str:
    """The key as it would be written in TOML; a very long one is cut."""
    return ".".join(key if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", key) else json.dumps(key[:60]) for key in keys)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    import difflib  # noqa: PLC0415 - only a mistake needs it, and every cold start would pay for it

    close = difflib.get_close_matches(name[:60], list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


# -- one key


@frozen
class Rule:
    """Which values one key takes. Kinds are compared exactly: to Python a bool is an int, to a reader it is not.

    `secret` keeps the value out of the fault, however short it is.
    """

    kinds: tuple[type, ...]
    accepts: Callable[[Any], bool]
    expected: str
    convert: Callable[[Any], Any] = lambda value: value
    secret: bool = False

    def fault(self, at: str, value: object) -> str | None:
        right_kind = type(value) in self.kinds
        if right_kind and self.accepts(value):
            return None
        numeric = type(value) in (int, float) and bool({int, float} & set(self.kinds))
        reveal = not self.secret and (right_kind or numeric)
        return fault(at, shown(value) if reveal else kind_of(value), self.expected)


def whole(low: int, high: int) -> Rule:
    expected = f"a whole number from {low} to {high}"
    return Rule(kinds=(int,), accepts=lambda value: low <= value <= high, expected=expected)


def number(low: float, high: float) -> Rule:
    """NaN fails every comparison and infinity the upper one, so neither needs a case of its own."""
    expected = f"a number from {low:g} to {high:g}"
    return Rule(kinds=(int, float), accepts=lambda value: low <= value <= high, expected=expected, convert=float)


def above_zero(high: float) -> Rule:
    expected = f"a number above 0, at most {high:g}"
    return Rule(kinds=(int, float), accepts=lambda value: 0 < value <= high, expected=expected, convert=float)


def text(pattern: str, expected: str) -> Rule:
    return Rule(kinds=(str,), accepts=lambda value: bool(re.fullmatch(pattern, value)), expected=expected)


def is_http_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        has_port = parts.port is None or parts.port > 0
    except ValueError:  # a bracketed host that is no address, a port that is no number
        return False
    plain = value.isascii() and value.isprintable() and " " not in value
    return plain and has_port and parts.scheme in ("http", "https") and bool(parts.hostname)


def _is_module_name(value: str) -> bool:
    return bool(re.fullmatch(r"[a-z][a-z0-9_]{0,39}", value)) and not keyword.iskeyword(value)


NAME: Final = text(r"[a-z][a-z0-9_]{0,39}", "a name like replay_summary: a-z, 0-9 and _, at most 40 characters")

STATUS: Final = text(r"[45][0-9]{2}", "an HTTP status from 400 to 599")

URL: Final = Rule(kinds=(str,), accepts=is_http_url, expected="an http:// or https:// URL", secret=True)

OPTION: Final = Rule(
    kinds=(str,),
    accepts=lambda value: 1 <= len(value) <= _LONGEST_OPTION and value.isprintable(),
    expected=f"a string of 1 to {_LONGEST_OPTION} printable characters",
    secret=True,
)

FLAG: Final = Rule(kinds=(bool,), accepts=lambda _: True, expected="true or false")

CONSEQUENCE: Final = Rule(
    kinds=(str,),
    accepts=lambda value: value in {each.value for each in Consequence},
    expected="one of " + ", ".join(each.value for each in Consequence),
    convert=Consequence,
)

RATE_POLICY: Final = Rule(
    kinds=(str,),
    accepts=lambda value: value in {each.value for each in RatePolicy},
    expected="one of " + ", ".join(each.value for each in RatePolicy),
    convert=RatePolicy,
)

MODULE: Final = Rule(
    kinds=(str,), accepts=_is_module_name, expected="a snake_case module name under functions/worker/kinds"
)

TICK_INTERVAL: Final = Rule(  # EventBridge Scheduler's rate() counts whole minutes
    kinds=(int,),
    accepts=lambda value: 60 <= value <= DAY_S and value % 60 == 0,
    expected=f"a multiple of 60 from 60 to {DAY_S}",
)


# -- keys that depend on one another


@frozen
class Law:
    """What values of one table must be to one another; judged only where each of them is right by itself."""

    blames: str
    reads: tuple[str, ...]
    holds: Callable[[Values], bool]
    expected: str


def _lanes_fit(values: Values) -> bool:
    settings = ClassSettings(name="", kind="", slots=values["slots"], live_share=values["live_share"])
    return all(MIN_LANE_SLOTS <= settings.lane_slots(lane) <= MAX_LANE_SLOTS for lane in Lane)


@frozen
class Section:
    """One kind of table: the dataclass it becomes, its keys, what they are to one another, the tables inside it."""

    target: type
    rules: Mapping[str, Rule]
    laws: tuple[Law, ...] = ()
    inner: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        found = {each.name: each.default for each in structs.fields(self.target) if each.default is not NODEFAULT}
        object.__setattr__(self, "defaults", {key: found[key] for key in self.rules if key in found})


GENERAL: Final = Section(
    target=Settings,
    rules={
        "namespace": text(r"(?!AWS/)[A-Za-z][A-Za-z0-9_./#-]{0,99}", "a CloudWatch namespace outside AWS/"),
        "pacer_timeout_s": whole(2 * LOCK_MARGIN_S, 900),
        "pacer_memory_mb": whole(128, 10_240),
        "customer_managed_key": FLAG,
    },
)

UPSTREAM: Final = Section(
    target=UpstreamSettings,
    rules={
        "endpoint": URL,
        "limit_per_s": above_zero(100_000),
        "burst_calls": whole(1, 100_000),
        "refusal_threshold": number(0, 1),
        "rate_policy": RATE_POLICY,
        "decrease_factor": number(0.1, 0.95),
        "increase_step": number(0.005, 0.5),
        "floor_share": number(0.001, 1),
        "timeout_s": above_zero(900),
    },
    inner=("errors",),
)

RETRY: Final = Section(
    target=RetrySettings,
    rules={
        "max_attempts": whole(1, 100),
        "base_delay_s": above_zero(DAY_S),
        "max_delay_s": above_zero(7 * DAY_S),
        "max_crashes": whole(1, 100),
        "max_transport_deaths": whole(1, 100),
    },
    laws=(
        Law(
            blames="base_delay_s",
            reads=("base_delay_s", "max_delay_s"),
            holds=lambda values: bool(values["base_delay_s"] <= values["max_delay_s"]),
            expected="at most max_delay_s",
        ),
    ),
)

CLASS: Final = Section(
    target=ClassSettings,
    rules={
        "kind": MODULE,
        "upstream": NAME,
        "upstream_share": above_zero(1),
        "tick_interval_s": TICK_INTERVAL,
        "lateness_s": number(0, DAY_S),
        "live_window_s": whole(0, 7 * DAY_S),
        "live_share": number(0, 1),
        "max_inflight": whole(1, FIFO_SEARCH_DEPTH),
        "slots": whole(len(Lane) * MIN_LANE_SLOTS, len(Lane) * MAX_LANE_SLOTS),
        "batch_size": whole(1, 10),
        "function_timeout_s": whole(1, 900),
        "memory_mb": whole(128, 10_240),
        "chunk_margin_s": above_zero(900),
        "max_hops": whole(1, 10_000),
        "priorities": whole(1, 9),
        "ordered": FLAG,
        "measured": FLAG,
        "declared_calls_per_job": above_zero(1_000_000),
        "declared_service_s": above_zero(7 * DAY_S),
        "declared_chunk_s": above_zero(900),
    },
    laws=(
        Law(
            blames="chunk_margin_s",
            reads=("chunk_margin_s", "function_timeout_s"),
            holds=lambda values: bool(values["chunk_margin_s"] + LEASE_MARGIN_S < values["function_timeout_s"]),
            expected="less than function_timeout_s, or no chunk would ever have time",
        ),
        Law(
            blames="slots",
            reads=("slots", "live_share"),
            holds=_lanes_fit,
            expected=f"at most {MAX_LANE_SLOTS} slots for each lane after live_share",
        ),
    ),
    inner=("retry", "options"),
)
