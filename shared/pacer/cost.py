"""What work costs: the price table and its date, what each step takes, and which part of it bought nothing.

No other file knows a price of AWS's; what an upstream asks is in `sluice.toml`. Everything is a sum of counters with
weights that are not negative, so that minutes add up and no part can be negative. What the counters cannot know is left
out: the time of a process that was killed (its counters died with it), a function's start before its handler, empty
receives of idle queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from shared.domain import stats
from shared.domain.control import Control
from shared.domain.settings import ClassSettings, UpstreamSettings
from shared.domain.stats import StatsWindow


class Prices(Struct, frozen=True, kw_only=True):
    """US dollars per unit, on demand, without free tiers, volume discounts, storage, logs, metrics or data transfer.

    The upstream's tokens have no price here: what an inference API asks is its operator's to say.
    """

    as_of: str
    region: str
    sources: tuple[str, ...]
    write_unit_usd: float
    read_unit_usd: float
    queue_request_usd: float
    invocation_usd: float
    gb_second_usd: float
    input_token_usd: float = 0.0
    output_token_usd: float = 0.0


PRICES: Final = Prices(
    as_of="2026-11",
    region="us-east-1",
    sources=(
        "https://aws.amazon.com/dynamodb/pricing/on-demand/",  # standard table class; halved in November 2024
        "https://aws.amazon.com/sqs/pricing/",  # FIFO; a request carries up to 64 KB
        "https://aws.amazon.com/lambda/pricing/",  # arm64, which is what is deployed; first tier
    ),
    write_unit_usd=0.625e-6,
    read_unit_usd=0.125e-6,
    queue_request_usd=0.50e-6,
    invocation_usd=0.20e-6,
    gb_second_usd=13.3334e-6,
)

_MILLION: Final = 1_000_000


def prices_with(upstream: UpstreamSettings | None, prices: Prices = PRICES) -> Prices:
    """The table with what the configuration says of the upstream's tokens; nothing where it says nothing."""
    if upstream is None:
        return prices
    return replace(
        prices,
        input_token_usd=(upstream.usd_per_million_input_tokens or 0.0) / _MILLION,
        output_token_usd=(upstream.usd_per_million_output_tokens or 0.0) / _MILLION,
    )


class Usage(Struct, frozen=True, kw_only=True):
    """What was used, in the units that are billed. Never negative."""

    write_units: float = 0.0
    read_units: float = 0.0
    queue_requests: float = 0.0
    invocations: float = 0.0
    gb_seconds: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in _UNITS})

    def times(self, count: float) -> Usage:
        return Usage(**{name: getattr(self, name) * count for name in _UNITS})

    def at_most(self, other: Usage) -> Usage:
        """Of each unit no more than `other` has."""
        return Usage(**{name: min(getattr(self, name), getattr(other, name)) for name in _UNITS})

    def usd(self, prices: Prices = PRICES) -> float:
        return spending(self, prices=prices).total_usd


_UNITS: Final = Usage.__struct_fields__

_NANO: Final = 1_000_000_000


class Spending(Struct, frozen=True, kw_only=True):
    """US dollars by who charges them. `waste_usd` is the part of all of it that bought nothing: refusals, repeats,
    stale messages. `jobs` are those that ended meanwhile."""

    lambda_usd: float = 0.0
    sqs_usd: float = 0.0
    dynamodb_usd: float = 0.0
    upstream_usd: float = 0.0
    waste_usd: float = 0.0
    jobs: int = 0

    @property
    def total_usd(self) -> float:
        return self.lambda_usd + self.sqs_usd + self.dynamodb_usd + self.upstream_usd

    @property
    def per_job_usd(self) -> float | None:
        """None: no job ended, so there is nothing to divide by."""
        return self.total_usd / self.jobs if self.jobs else None

    def packed(self) -> str:
        """Whole nano-dollars and jobs, some 30 bytes: control keeps one for each tick, and is paid by its size."""
        amounts = [round(getattr(self, name) * _NANO) for name in _DOLLARS]
        return " ".join(map(str, [*amounts, self.jobs]))


_DOLLARS: Final = tuple(name for name in Spending.__struct_fields__ if name.endswith("_usd"))


def spending(used: Usage, *, wasted: Usage | None = None, jobs: int = 0, prices: Prices = PRICES) -> Spending:
    """What `used` costs; `wasted` is a part of it."""
    waste = Usage() if wasted is None else wasted.at_most(used)
    return Spending(
        lambda_usd=used.invocations * prices.invocation_usd + used.gb_seconds * prices.gb_second_usd,
        sqs_usd=used.queue_requests * prices.queue_request_usd,
        dynamodb_usd=used.write_units * prices.write_unit_usd + used.read_units * prices.read_unit_usd,
        upstream_usd=used.input_tokens * prices.input_token_usd + used.output_tokens * prices.output_token_usd,
        waste_usd=0.0 if wasted is None else waste.usd(prices),
        jobs=jobs,
    )


def unpacked(text: str) -> Spending | None:
    """The inverse of `packed`, to the nano-dollar; None where nothing was said, or nothing that can be read."""
    try:
        *amounts, jobs = (int(part) for part in text.split())
        return Spending(**{name: amount / _NANO for name, amount in zip(_DOLLARS, amounts, strict=True)}, jobs=jobs)
    except ValueError:
        return None


def summed(parts: Iterable[Spending]) -> Spending:
    found = list(parts)
    sums = {name: sum(getattr(each, name) for each in found) for name in _DOLLARS}
    return Spending(**sums, jobs=sum(each.jobs for each in found))


CONTROL_KB: Final = 12
"""Control's size with its 15 ticks, below 16 KB by a test. Each write and read of it is paid by its whole size."""

PACER_MB: Final = 512

PACER_S: Final = 2.0
"""A tick's memory and time, which are not measured: they are little beside what it writes and reads."""

_STEP_UNITS: Final[Mapping[str, int]] = {
    # The row, and what the move does to its place in the index: a put or a delete is one, a move of it two.
    "create": 2,
    "claim": 3,
    "resend": 3,
    "continue": 3,
    "hand_back": 3,
    "release": 3,
    "fail": 3,
    "transport": 3,
    "die": 3,
    "finish": 2,
    "hand_over": 3,
    "promote": 3,
    "spend": 3,  # the row, its place in the index, the allowance
    "enter": 4,  # the row, its place in the index, its place in the line, and the line
    # The run and control.
    "take_run": 1 + CONTROL_KB,
    "plan_run": 1 + CONTROL_KB,
    "close_run": 1 + CONTROL_KB,
}
"""Write units, 1 KB each, by the name of a write of the ledger; what is not here takes one."""

_SINGLE_WRITES: Final = ("admit_run", "withdraw")

_TRANSACTIONS: Final = frozenset({"spend", "enter", "take_run", "plan_run", "close_run"})

_WITH_OUTPUT: Final = frozenset({"commit", "continue", "finish"})
"""Moves that store a chunk's output: the row's write and the output's are one transaction."""

_CONTROL_READ: Final = CONTROL_KB / 4

_READS: Final[Mapping[str, float]] = {
    "read_control": _CONTROL_READ,
    "read_stats": 20,  # ten minutes of four shards, eventually consistent
    "count": 0.5,
    "page": 0.5,
}
"""Read units, 4 KB each, by the name of a read of the ledger; what is not here takes one."""

_ROW_READ: Final = 0.2 / 4 / 2
"""Of one row in the index: keys, match and epoch, eventually consistent."""

_BATCH: Final = 10

_WASTED_RETURNS: Final = (*stats.RETRIED, stats.NO_PERMIT)
"""What sends a row back although nobody wished it: its way there, its next claim and its next delivery buy nothing."""

_RETURNS: Final = (*stats.RETRIED, stats.NO_PERMIT, stats.RELEASES)


def write_units(name: str, *, output: bool, ordered: bool) -> int:
    """Of one write of the ledger, the moves of one step being joined by `+`. In a transaction every unit is paid twice.

    A chunk's output makes a transaction of its move, an ordered match one of an end, together with the line. The units
    of the index are taken to be paid twice in it, too, on which the documentation is silent.
    """
    parts = name.split("+")
    stores = output and parts[0] in _WITH_OUTPUT
    steps = len(parts) > 1 or (ordered and name == "finish")
    units = sum(_STEP_UNITS.get(part, 1) for part in parts) + stores + steps
    return 2 * units if stores or steps or name in _TRANSACTIONS else units


def read_units(name: str) -> float:
    """Of one read of the ledger, without the rows that it finds in the index (`index_read_units`)."""
    return _READS.get(name, 1.0)


def index_read_units(rows: float) -> float:
    return rows * _ROW_READ


def used_by_workers(windows: Sequence[StatsWindow], settings: ClassSettings) -> Usage:
    """Each step where its counter stands. Creation and admission stand with what ended them: an end, or a way back."""

    def count(*names: str) -> int:
        return stats.total(windows, *names)

    admitted, invocations = count(*stats.ENDINGS, *_RETURNS), count(stats.INVOCATIONS)
    singly_deleted = count(stats.MESSAGES) if settings.batch_size > 1 else 0
    return Usage(
        write_units=_row_writes(windows, ordered=settings.ordered)
        + count(stats.FLUSHES, stats.REDELIVERIES, stats.RESERVATIONS),
        read_units=count(stats.MESSAGES, stats.OUTPUTS, stats.LAST_OUTPUTS)
        + count(stats.CLASS_READS) * _class_read(settings)
        + (count(stats.COMPLETIONS) * (_CONTROL_READ + 3) if settings.ordered else 0),
        queue_requests=(admitted + count(stats.RESENDS)) / _BATCH
        + count(stats.CONTINUATIONS, stats.HAND_BACKS, stats.HANDOVERS, stats.REDELIVERIES)
        + 2 * invocations
        + singly_deleted,
        invocations=invocations,
        gb_seconds=_gb_seconds(windows, stats.WORKER_MS, settings),
        input_tokens=count(stats.INPUT_TOKENS),
        output_tokens=count(stats.OUTPUT_TOKENS),
    )


def _class_read(settings: ClassSettings) -> float:
    """A worker's look at its class: control, and what was learned of the upstream."""
    return _CONTROL_READ + (settings.upstream is not None)


def _row_writes(windows: Sequence[StatsWindow], *, ordered: bool) -> int:
    """A chunk counts as a commit; its end, continuation or output adds what it takes beyond that."""

    def count(*names: str) -> int:
        return stats.total(windows, *names)

    claim, commit = _STEP_UNITS["claim"], 1
    create = write_units("enter" if ordered else "create", output=False, ordered=ordered)
    finish, finish_and_store = (write_units("finish", output=output, ordered=ordered) for output in (False, True))
    commit_and_store = write_units("commit", output=True, ordered=ordered)
    handed = write_units("finish+hand_over", output=False, ordered=True) - finish - claim if ordered else 0
    return (
        count(*stats.ENDINGS) * (create + claim)
        + count(*_RETURNS) * (_STEP_UNITS["release"] + claim)
        + count(stats.CHUNKS) * commit
        + count(stats.COMPLETIONS) * (finish - commit)
        + count(stats.DEATHS) * _STEP_UNITS["die"]
        + count(stats.OUTPUTS) * (commit_and_store - commit)
        + count(stats.LAST_OUTPUTS) * (finish_and_store - finish)
        + count(stats.CONTINUATIONS) * (_STEP_UNITS["continue"] - commit)
        + count(stats.HAND_BACKS, stats.RESENDS) * _STEP_UNITS["resend"]
        + count(stats.HANDOVERS) * handed  # in the place of the claim that is counted with the successor's end
    )


def used_by_ticks(ticks: float, settings: ClassSettings, *, rows: float) -> Usage:
    """Of the pacer itself, `rows` being what a tick finds in the index: it counts all of them each time."""
    lists = 9 + 28 * settings.priorities
    closing = sum(write_units(name, output=False, ordered=False) for name in ("take_run", "plan_run", "close_run"))
    single = sum(read_units(name) for name in ("read_run", "read_learned", "read_control", "read_stats"))
    tick = Usage(
        write_units=closing + len(_SINGLE_WRITES),
        read_units=single + lists * read_units("count") + index_read_units(rows),
        invocations=1,
        gb_seconds=PACER_S * PACER_MB / 1024,
    )
    return tick.times(ticks)


def wasted(windows: Sequence[StatsWindow], settings: ClassSettings) -> Usage:
    """What bought nothing: refused and failed chunks with their way back, repeats, stale messages.

    An answered call whose chunk came to nothing, or that a redelivery repeats, is taken to be billed again, at the mean
    of the tokens of a call.
    """

    def count(*names: str) -> int:
        return stats.total(windows, *names)

    returns, idle = count(*_WASTED_RETURNS), count(stats.STALE, stats.LOST_RACES)
    again, resends = count(stats.REDELIVERIES), count(stats.RESENDS)
    deliveries = returns + idle + again
    answered = count(stats.CALLS) - count(stats.REFUSALS, stats.HOLDS)
    share = count(stats.WASTED_CALLS) / answered if answered > 0 else 0.0
    each = 1 / settings.batch_size if settings.batch_size > 1 else 1.0
    return Usage(
        write_units=returns * (_STEP_UNITS["release"] + _STEP_UNITS["claim"]) + again + resends * _STEP_UNITS["resend"],
        read_units=deliveries,
        queue_requests=deliveries * 2 * each + again + (returns + resends) / _BATCH,
        invocations=deliveries * each,
        gb_seconds=_gb_seconds(windows, stats.WASTED_MS, settings),
        input_tokens=count(stats.INPUT_TOKENS) * share,
        output_tokens=count(stats.OUTPUT_TOKENS) * share,
    )


def spent(
    windows: Sequence[StatsWindow], settings: ClassSettings, *, ticks: float, rows: float, prices: Prices = PRICES
) -> Spending:
    """What the class cost in these minutes, with `ticks` of the pacer in them, of which each found `rows` rows."""
    return spending(
        used_by_workers(windows, settings) + used_by_ticks(ticks, settings, rows=rows),
        wasted=wasted(windows, settings),
        jobs=stats.total(windows, stats.COMPLETIONS),
        prices=prices,
    )


REFUSED_CALL: Final = Usage(write_units=6, queue_requests=2.1, invocations=1, read_units=1)
"""A refused call beside its time: the row's way back to waiting and its next claim, a tenth of a batch, a receive and a
delete, an invocation and its read of the row."""

REPEATED_CHUNK: Final = Usage(write_units=1, queue_requests=2, invocations=1, read_units=1)
"""A chunk begun again beside its time and its calls: the start mark, an extended visibility and a receive, an
invocation and its read of the row."""


def job_usage(*, service_s: float, memory_mb: int, chunks: float = 1) -> Usage:
    """What a job takes by itself, before anything is known of it: two units for the row and its place in the index,
    three for the claim, one a chunk and two for the last; a tenth of a batch, a receive and a delete; one invocation
    that reads the row and its class."""
    return Usage(
        write_units=7 + max(0.0, chunks - 1),
        read_units=1 + _CONTROL_READ,
        queue_requests=2.1,
        invocations=1,
        gb_seconds=service_s * memory_mb / 1024,
    )


def _gb_seconds(windows: Sequence[StatsWindow], counter: str, settings: ClassSettings) -> float:
    return stats.total(windows, counter) / 1000 * settings.memory_mb / 1024


MOST_MINUTES: Final = 60
"""Ticks further apart than this say nothing of their cost: it would take more reads than it is worth."""


def minutes_since(now_ms: int, before_ms: int | None) -> list[int]:
    """The minutes that closed since the tick before, newest first, each once, but a minute late: workers flush every
    30 s, so that the counters of a minute that has just closed are not all there."""
    closed = 1 if before_ms is None else (stats.window_of(now_ms) - stats.window_of(before_ms)) // stats.WINDOW_MS
    last_ms = stats.window_of(now_ms) - 2 * stats.WINDOW_MS
    return [last_ms - number * stats.WINDOW_MS for number in range(closed)]


def minutes_to_price(control: Control, now_ms: int) -> list[int] | None:
    """The minutes that a tick at `now_ms` accounts for; None where they are too many to be read."""
    minutes_ms = minutes_since(now_ms, control.history[-1].at_ms if control.history else None)
    return minutes_ms if len(minutes_ms) <= MOST_MINUTES else None
