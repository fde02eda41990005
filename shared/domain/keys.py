"""The one table of configuration keys: what each accepts, its unit, its meaning, and the laws between keys.

`shared.domain.configuration` walks it, for `sluice.toml` and for scenario files alike, and docs/configuration.md is
printed from it. A key's default is its field's in `shared.domain.settings` and stands there only: a new key is a field
there and a row here. A fault never repeats a long string: someone may have pasted a token into the wrong place (I12).
"""

from __future__ import annotations

import json
import keyword
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from msgspec import NODEFAULT, Struct, field
from msgspec.structs import fields, replace

from shared.domain import settings
from shared.domain.job import Lane

Values: TypeAlias = Mapping[str, Any]
"""A table of the document, or what was read of it: values by key."""

DAY_S: Final = 86_400
"""Bounds that are meant as days are written as multiples of it."""

FIFO_SEARCH_DEPTH: Final = 120_000
"""SQS looks no further than this for a free message group: more in flight would be stuck, not faster (fact F8)."""

LONGEST_SHOWN: Final = 40
"""A longer string is described by its length: it may be a token in the wrong place (I12)."""

LONGEST_OPTION: Final = 500
"""Enough for a list of labels or a short prompt; all options travel in the configuration of every function."""


# -- how a fault reads

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
"""What a value is called where the value itself is not shown."""


def fault(at: str, got: str, expected: str) -> str:
    return f"{at}: got {got}, expected {expected}"


def kind_of(value: object) -> str:
    return _KINDS.get(type(value), "something else")


def shown(value: object) -> str:
    """A number or a short string itself, otherwise its kind. One line, whatever it is."""
    if isinstance(value, str):
        short = len(value) <= LONGEST_SHOWN
        return json.dumps(value, ensure_ascii=True) if short else f"a string of {len(value)} characters"
    if type(value) is float or (type(value) is int and abs(value) < 10**15):
        return str(value)
    return "a huge number" if type(value) is int else kind_of(value)


def dotted(*names: str) -> str:
    """The key as it would be written in TOML; a very long one is cut."""
    return ".".join(name if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name) else json.dumps(name[:60]) for name in names)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    import difflib  # noqa: PLC0415 - only a mistake needs it, and every cold start would pay for it

    close = difflib.get_close_matches(name[:60], list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


# -- what a key may be


class Rule(Struct, frozen=True, kw_only=True):
    """Which values a key takes. Kinds are compared exactly: to Python a bool is an int, to a reader it is not.

    `secret` keeps the value out of the fault, however short it is. `convert` makes of an accepted value what the
    settings hold.
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


def one_of(choices: type[StrEnum]) -> Rule:
    values = [choice.value for choice in choices]
    expected = f"one of {', '.join(values)}"
    return Rule(kinds=(str,), accepts=lambda value: value in values, expected=expected, convert=choices)


def or_off(rule: Rule) -> Rule:
    """TOML has no null, so `false` switches a rule off; to Python it is a number, to this rule it is not."""

    def accepts(value: Any) -> bool:
        return value is False or (not isinstance(value, bool) and rule.accepts(value))

    def convert(value: Any) -> Any:
        return None if value is False else rule.convert(value)

    expected = f"{rule.expected}, or false to switch the rule off"
    return replace(rule, kinds=(*rule.kinds, bool), accepts=accepts, convert=convert, expected=expected)


def _is_http_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        has_port = parts.port is None or parts.port > 0
    except ValueError:  # a bracketed host that is no address, a port that is no number
        return False
    plain = value.isascii() and value.isprintable() and " " not in value
    return plain and has_port and parts.scheme in ("http", "https") and bool(parts.hostname)


def _is_module_name(value: str) -> bool:
    return bool(re.fullmatch(r"[a-z][a-z0-9_]{0,39}", value)) and not keyword.iskeyword(value)


FLAG: Final = Rule(kinds=(bool,), accepts=lambda _: True, expected="true or false")

NAME: Final = text(r"[a-z][a-z0-9_]{0,39}", "a name like replay_summary: a-z, 0-9 and _, at most 40 characters")

MODULE: Final = Rule(
    kinds=(str,), accepts=_is_module_name, expected="a snake_case module name under functions/worker/kinds"
)

URL: Final = Rule(kinds=(str,), accepts=_is_http_url, expected="an http:// or https:// URL", secret=True)

MODEL: Final = text(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}", "the id or ARN of a Bedrock model or inference profile")

OPTION: Final = Rule(
    kinds=(str,),
    accepts=lambda value: 1 <= len(value) <= LONGEST_OPTION and value.isprintable(),
    expected=f"a string of 1 to {LONGEST_OPTION} printable characters",
    secret=True,
)

TICK_INTERVAL: Final = Rule(  # EventBridge Scheduler's rate() counts whole minutes
    kinds=(int,),
    accepts=lambda value: 60 <= value <= DAY_S and value % 60 == 0,
    expected=f"a multiple of 60 from 60 to {DAY_S}",
)

TIME_OF_DAY: Final = text(r"([01][0-9]|2[0-3]):[0-5][0-9]", "a time of day in UTC, like 03:00")


# -- the shape of the table


class Key(Struct, frozen=True):
    """One key: what it accepts, what its number counts ("" where there is nothing to count), and what it is for."""

    rule: Rule
    unit: str = ""
    meaning: str = ""


class Law(Struct, frozen=True):
    """What values of one table must be to one another; judged only where each of them is right by itself."""

    blames: str
    reads: tuple[str, ...]
    holds: Callable[[Values], bool]
    expected: str


class Entries(Struct, frozen=True, kw_only=True):
    """A table whose keys are its writer's own. What it says is added to the default, entry by entry."""

    about: str
    names: Rule
    values: Rule


class Section(Struct, frozen=True, kw_only=True):
    """One kind of table: the settings class that it becomes, its keys, their laws, and the tables inside it.

    `named`: the document holds any number of such tables, each under a name of its own (`[classes.<name>]`).
    """

    target: type
    keys: Mapping[str, Key] = field(default_factory=dict)
    about: str = ""
    laws: tuple[Law, ...] = ()
    inner: Mapping[str, Section | Entries] = field(default_factory=dict)
    named: bool = False

    def without(self, *names: str) -> Section:
        return replace(self, keys={name: key for name, key in self.keys.items() if name not in names})


@cache
def defaults_of(target: type) -> Values:
    """The values that the fields of a settings class have where nothing is said."""
    defaults = {}
    for setting in fields(target):
        if setting.default_factory is not NODEFAULT:
            defaults[setting.name] = setting.default_factory()
        elif setting.default is not NODEFAULT:
            defaults[setting.name] = setting.default
    return defaults


# -- the deployment as a whole: [sluice] and [webhook]

GENERAL: Final = Section(
    about="What holds for the whole deployment.",
    target=settings.Settings,
    keys={
        "namespace": Key(
            text(r"(?!AWS/)[A-Za-z][A-Za-z0-9_./#-]{0,99}", "a CloudWatch namespace outside AWS/"),
            "",
            "The namespace of all metrics.",
        ),
        "pacer_timeout_s": Key(whole(2 * settings.LOCK_MARGIN_S, 900), "s", "How long a tick may take."),
        "pacer_memory_mb": Key(whole(128, 10_240), "MB", "The pacer's memory, and with it its share of a processor."),
        "customer_managed_key": Key(
            FLAG, "", "Whether a key of this account's, made with the stack and rotated, encrypts everything at rest."
        ),
    },
)

WEBHOOK: Final = Section(
    about="The public webhook, where an external clock asks for drain runs. It is deployed when a class is open to it.",
    target=settings.WebhookSettings,
    keys={
        "max_age_s": Key(whole(60, 900), "s", "How far back a request's `scheduled_at` may lie."),
        "max_ahead_s": Key(whole(0, 120), "s", "How far ahead a request's `scheduled_at` may lie."),
        "requests_per_s": Key(
            whole(1, 1000), "requests/s", "Above this rate requests are answered with 429, before any function runs."
        ),
        "burst": Key(whole(1, 5000), "requests", "How many requests may come at once on top of that rate."),
        "rotation_days": Key(
            whole(1, 365), "days", "How often the secret is replaced; the one before is accepted for one rotation more."
        ),
    },
)


# -- an upstream: [upstreams.<name>]

UPSTREAM: Final = Section(
    about="A rate-limited dependency. Classes that name the same one share its permits.",
    target=settings.UpstreamSettings,
    named=True,
    keys={
        "endpoint": Key(URL, "", "Where calls are posted to, if the upstream speaks JSON over HTTP."),
        "limit_per_s": Key(
            above_zero(100_000), "calls/s", "What the upstream declares; the learned rate moves below it, never above."
        ),
        "burst_calls": Key(whole(1, 100_000), "calls", "How many calls may start at once; 1 spaces them evenly."),
        "refusal_threshold": Key(
            number(0, 1), "share", "More refused calls than this in a window of 60 s lower the learned rate."
        ),
        "rate_policy": Key(
            one_of(settings.RatePolicy),
            "",
            "How refusals lower the rate: to just under what was accepted, or by `decrease_factor`.",
        ),
        "decrease_factor": Key(
            number(0.1, 0.95), "share", "No decrease goes below this share of the rate that was refused."
        ),
        "increase_step": Key(
            number(0.005, 0.5),
            "share",
            "The learned rate's first step beyond what is known to be good, as a share of it.",
        ),
        "floor_share": Key(
            number(0.001, 1), "share", "The learned rate never falls below this share of `limit_per_s`."
        ),
        "timeout_s": Key(above_zero(900), "s", "How long one call may take."),
        "api": Key(
            one_of(settings.UpstreamApi), "", "How calls are made: a POST of JSON, or Amazon Bedrock's Converse."
        ),
        "model": Key(MODEL, "", "The model that Converse asks, in the stack's own region."),
        "max_tokens": Key(whole(1, 100_000), "tokens", "The longest answer that Converse asks the model for."),
        "usd_per_million_input_tokens": Key(
            number(0, 1_000_000), "USD/million", "Price of tokens into the model; unset, they cost nothing."
        ),
        "usd_per_million_output_tokens": Key(
            number(0, 1_000_000), "USD/million", "Price of tokens out of the model; unset, they cost nothing."
        ),
    },
    inner={
        "errors": Entries(
            about="What an answer's HTTP status means, on top of the default: `refuse` (too fast: the job waits again"
            " and the learned rate goes down), `hold` (overloaded: the job waits again and the rate stays),"
            " `exhausted` (the quota is used up: the class pauses), `reject` (the job's own failure burns an attempt,"
            " as with every other 4xx).",
            names=replace(text(r"[45][0-9]{2}", "an HTTP status from 400 to 599"), convert=int),
            values=one_of(settings.Consequence),
        ),
    },
    laws=(
        Law(
            "endpoint",
            ("api", "endpoint"),
            lambda values: (values["api"] is settings.UpstreamApi.HTTP) == bool(values["endpoint"]),
            f'{URL.expected} with api = "{settings.UpstreamApi.HTTP}", nothing without it',
        ),
        Law(
            "model",
            ("api", "model"),
            lambda values: (values["api"] is settings.UpstreamApi.CONVERSE) == bool(values["model"]),
            f'{MODEL.expected} with api = "{settings.UpstreamApi.CONVERSE}", nothing without it',
        ),
        Law(
            "burst_calls",
            ("burst_calls", "limit_per_s"),
            lambda values: values["burst_calls"] >= settings.shards_for(values["limit_per_s"]),
            f"at least 1 for each {settings.CALLS_PER_SHARD:g} of limit_per_s or part of it: so many items of the table"
            " hold the permits, and each may start a call at once",
        ),
    ),
)


# -- a job class: [classes.<name>] and the tables inside it

RETRY: Final = Section(
    about="Only a failure of the job's own code burns an attempt; crashes and dead messages are bounded apart.",
    target=settings.RetrySettings,
    keys={
        "max_attempts": Key(whole(1, 100), "attempts", "After so many failures a job is dead."),
        "base_delay_s": Key(above_zero(DAY_S), "s", "How long a job waits after its first failure; doubles with each."),
        "max_delay_s": Key(above_zero(7 * DAY_S), "s", "The longest wait between two attempts."),
        "max_crashes": Key(whole(1, 100), "crashes", "After so many deaths of its worker's process a job is dead."),
        "max_transport_deaths": Key(whole(1, 100), "messages", "After so many dead-lettered messages a job is dead."),
    },
    laws=(
        Law(
            "base_delay_s",
            ("base_delay_s", "max_delay_s"),
            lambda values: bool(values["base_delay_s"] <= values["max_delay_s"]),
            "at most max_delay_s",
        ),
    ),
)

ABORT: Final = Section(
    about="When the class stops by itself: it pauses with the reason and an alarm fires; nothing is deleted.",
    target=settings.AbortRules,
    keys={
        "age_windows": Key(
            or_off(whole(1, 60)), "ticks", "Ticks running in which the oldest row ages and the backlog does not fall."
        ),
        "excess_share": Key(
            or_off(number(0, 10)), "share", "Calls in a minute beyond the upstream's limit, as a share of it."
        ),
        "retry_share": Key(
            or_off(number(0, 10)), "share", "What growing retries take of the recovery margin (starts less arrivals)."
        ),
        "dead_share": Key(or_off(number(0, 1)), "share", "Dead rows among those that ended over 10 ticks."),
        "spend_usd": Key(
            or_off(above_zero(1_000_000)),
            "USD",
            "Cost of 10 ticks: table, queue, workers, and the upstream's tokens where priced.",
        ),
    },
)


def _lanes_fit(values: Values) -> bool:
    lanes = settings.ClassSettings(name="", kind="", slots=values["slots"], live_share=values["live_share"])
    return all(settings.MIN_LANE_SLOTS <= lanes.lane_slots(lane) <= settings.MAX_LANE_SLOTS for lane in Lane)


CLASS: Final = Section(
    about="A job class is the unit of pacing: its code, queues, worker, share of the upstream and retry policy.",
    target=settings.ClassSettings,
    named=True,
    keys={
        "kind": Key(MODULE, "", "The job's code: the module of this name under `functions/worker/kinds`."),
        "upstream": Key(NAME, "", "The upstream whose permits its calls take; none for jobs without calls."),
        "upstream_share": Key(above_zero(1), "share", "Its part of the upstream's limit; an idle class lends its own."),
        "tick_interval_s": Key(TICK_INTERVAL, "s", "How often the pacer comes by; the scheduler counts whole minutes."),
        "lateness_s": Key(number(0, DAY_S), "s", "How late a tick may be without the workers running dry."),
        "live_window_s": Key(
            whole(0, 7 * DAY_S), "s", "A job that became due at most this long ago is live, an older one is recovery."
        ),
        "live_share": Key(
            number(0, 1), "share", "The live lane's part of the slots, and of every budget while live work waits."
        ),
        "max_inflight": Key(
            whole(1, FIFO_SEARCH_DEPTH), "jobs", "How many may be admitted and unfinished, whatever the ticks plan."
        ),
        "slots": Key(
            whole(len(Lane) * settings.MIN_LANE_SLOTS, len(Lane) * settings.MAX_LANE_SLOTS),
            "workers",
            "Workers at once, over both lanes.",
        ),
        "batch_size": Key(whole(1, 10), "messages", "Messages per invocation: 1 for long jobs, more for short ones."),
        "function_timeout_s": Key(
            whole(1, 900), "s", "How long a worker may run; a crashed job's match is locked for as long."
        ),
        "memory_mb": Key(whole(128, 10_240), "MB", "A worker's memory."),
        "chunk_margin_s": Key(
            above_zero(900), "s", "Left unused before a worker's deadline, for the commit and the continuation."
        ),
        "max_hops": Key(whole(1, 10_000), "messages", "Continuations of one job before it waits for the pacer again."),
        "priorities": Key(whole(1, 9), "levels", "Levels of priority; the highest is served first."),
        "ordered": Key(FLAG, "", "Whether the jobs of one match run strictly in sequence."),
        "measured": Key(
            FLAG, "", "Whether measurements replace the `declared_*` figures; false where jobs are too unlike."
        ),
        "declared_calls_per_job": Key(above_zero(1_000_000), "calls", "A job's calls, until they are measured."),
        "declared_service_s": Key(above_zero(7 * DAY_S), "s", "A job's time at work, until it is measured."),
        "declared_chunk_s": Key(above_zero(900), "s", "A chunk's time, until it is measured."),
        "webhook": Key(FLAG, "", "Whether the public webhook may admit runs of this class, too."),
        "schedule": Key(
            one_of(settings.Schedule),
            "",
            "Whether its own schedule admits runs, or only sweeps and finishes open ones.",
        ),
        "staged_recovery": Key(
            FLAG, "", "Whether the rate comes back in steps after a pause or an outage: half, three quarters, all."
        ),
        "eta_objective_s": Key(above_zero(30 * DAY_S), "s", "An alarm fires when a drain is to take longer."),
        "age_objective_s": Key(above_zero(30 * DAY_S), "s", "An alarm fires when the oldest eligible row is older."),
    },
    inner={
        "retry": RETRY,
        "abort": ABORT,
        "options": Entries(
            about="What only the class's kind understands; docs/kinds.md says what each kind reads.",
            names=NAME,
            values=OPTION,
        ),
    },
    laws=(
        Law(
            "chunk_margin_s",
            ("chunk_margin_s", "function_timeout_s"),
            lambda values: bool(values["chunk_margin_s"] + settings.LEASE_MARGIN_S < values["function_timeout_s"]),
            "less than function_timeout_s, or no chunk would ever have time",
        ),
        Law(
            "slots",
            ("slots", "live_share"),
            _lanes_fit,
            f"at most {settings.MAX_LANE_SLOTS} slots for each lane after live_share",
        ),
        Law(
            "schedule",
            ("schedule", "webhook"),
            lambda values: values["schedule"] is settings.Schedule.RUNS or bool(values["webhook"]),
            '"runs", or webhook = true: nothing else would ever admit a run',
        ),
    ),
)


# -- what submits jobs by itself: [producers.match_ended] and the like

_BUS_NAME: Final = r"[A-Za-z0-9._/-]{1,256}"
"""What EventBridge allows in the name of a bus and in that of a source."""

MATCH_ENDED: Final = Section(
    about="Makes jobs of every event that tells of a match's end.",
    target=settings.MatchEndedSettings,
    keys={
        "bus": Key(text(_BUS_NAME, "the name of an EventBridge bus"), "", "The bus that the event comes on."),
        "source": Key(
            text(_BUS_NAME, "the source that the event's sender names, like game.matches"),
            "",
            "Whose events count; any sender's if nothing is said.",
        ),
        "replay_class": Key(NAME, "", "The class of the job that each replay of the match becomes."),
        "screenshot_class": Key(NAME, "", "The class of the job that each screenshot of the match becomes."),
    },
    laws=(
        Law(
            "replay_class",
            ("replay_class", "screenshot_class"),
            lambda values: bool(values["replay_class"] or values["screenshot_class"]),
            "a class here or in screenshot_class, or no job would come of an event",
        ),
    ),
)

GUILD_REPORTS: Final = Section(
    about="Every Monday a report of the week before, for each guild of a table.",
    target=settings.GuildReportsSettings,
    keys={
        "job_class": Key(NAME, "", "The class of the reports."),
        "guilds_table": Key(
            text(r"[A-Za-z0-9_.-]{3,255}", "a DynamoDB table's name: 3 to 255 of A-Z, a-z, 0-9, _, - and ."),
            "",
            "The table of the game's that lists the guilds.",
        ),
        "at": Key(TIME_OF_DAY, "HH:MM, UTC", "When the reports are submitted."),
    },
)

SESSION_SWEEP: Final = Section(
    about="Every day one sweep of expired sessions.",
    target=settings.SessionSweepSettings,
    keys={
        "job_class": Key(NAME, "", "The class of the sweep."),
        "at": Key(TIME_OF_DAY, "HH:MM, UTC", "When the sweep is submitted."),
    },
)

PRODUCERS: Final = Section(
    about="What submits jobs by itself. A producer that has no table is not deployed.",
    target=settings.ProducerSettings,
    inner={"match_ended": MATCH_ENDED, "guild_reports": GUILD_REPORTS, "session_sweep": SESSION_SWEEP},
)


# -- the document, and what its tables must be to one another

DOCUMENT: Final[Mapping[str, Section]] = {
    "sluice": GENERAL,
    "webhook": WEBHOOK,
    "upstreams": UPSTREAM,
    "classes": CLASS,
    "producers": PRODUCERS,
}
"""The tables of `sluice.toml`, in the order in which they are read."""


def _broken_shares(document: Values) -> Iterator[str]:
    shares: dict[str, dict[str, float]] = {}
    for name, values in document["classes"].items():
        upstream = values.get("upstream")
        if upstream is None:
            continue
        if upstream not in document["upstreams"]:
            expected = f"the name of an [upstreams.<name>] table{did_you_mean(upstream, document['upstreams'])}"
            yield fault(dotted("classes", name, "upstream"), shown(upstream), expected)
        elif "upstream_share" in values:
            shares.setdefault(upstream, {})[dotted("classes", name, "upstream_share")] = values["upstream_share"]
    for upstream, by_key in shares.items():
        total = round(math.fsum(by_key.values()), 9)  # ten shares of 0.1 are 1
        if total > 1:
            expected = f"shares of {dotted('upstreams', upstream)} that sum to at most 1"
            yield fault(" + ".join(by_key), f"{total:g}", expected)


def _broken_tick_times(document: Values) -> Iterator[str]:
    pacer_s, margin_s = document["sluice"].get("pacer_timeout_s"), settings.LOCK_MARGIN_S
    ticks_s = [values["tick_interval_s"] for values in document["classes"].values() if "tick_interval_s" in values]
    if pacer_s is not None and ticks_s and pacer_s + margin_s > min(ticks_s):
        expected = f"at least {margin_s} s less than the smallest tick_interval_s, which is {min(ticks_s)}"
        yield fault("sluice.pacer_timeout_s", shown(pacer_s), expected)


def _broken_call_times(document: Values) -> Iterator[str]:
    for name, values in document["classes"].items():
        upstream = values.get("upstream") or ""
        call_s = document["upstreams"].get(upstream, {}).get("timeout_s")
        function_s = values.get("function_timeout_s")
        if call_s is not None and function_s is not None and call_s >= function_s:
            expected = f"less than {dotted('classes', name, 'function_timeout_s')}, which is {function_s}"
            yield fault(dotted("upstreams", upstream, "timeout_s"), shown(call_s), expected)


def _broken_producers(document: Values) -> Iterator[str]:
    classes = document["classes"]
    for producer, values in document["producers"].items():
        for key in ("job_class", "replay_class", "screenshot_class"):
            job_class = values.get(key)
            if job_class and job_class not in classes:
                expected = f"the name of a [classes.<name>] table{did_you_mean(job_class, classes)}"
                yield fault(dotted("producers", producer, key), shown(job_class), expected)


RELATIONS: Final[Mapping[str, Callable[[Values], Iterator[str]]]] = {
    "Every class's upstream exists, and the shares of one upstream's classes sum to at most 1.": _broken_shares,
    "A tick that dies gives its lock back before the next tick of any class begins.": _broken_tick_times,
    "A call ends before Lambda ends the worker that made it.": _broken_call_times,
    "Every class that a producer submits to exists.": _broken_producers,
}
"""What the tables must be to one another, and what finds the faults, given the values that are right by themselves."""
