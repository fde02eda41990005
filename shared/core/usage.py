"""How much of the billed units each step takes, and what a class's counters say was used and wasted.

Everything is a sum of counters with weights that are not negative, so that minutes add up and no part can be negative.
What the counters cannot know is left out: the time of a process that was killed (its counters died with it), a
function's start before its handler, empty receives of idle queues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from shared.core import stats
from shared.core.cost import Spending, Usage, spending
from shared.core.prices import PRICES, Prices
from shared.core.settings import ClassSettings
from shared.core.stats import StatsWindow

CONTROL_KB: Final = 12
"""Control's size with its 15 ticks, below 16 KB by a test. Each write and read of it is paid by its whole size."""

PACER_MB: Final = 512
PACER_S: Final = 2.0
"""A tick's memory and time, which are not measured: they are little beside what it writes and reads."""

_UNITS: Final[Mapping[str, int]] = {
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
    units = sum(_UNITS.get(part, 1) for part in parts) + stores + steps
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

    claim, commit = _UNITS["claim"], 1
    create = write_units("enter" if ordered else "create", output=False, ordered=ordered)
    finish, finish_and_store = (write_units("finish", output=output, ordered=ordered) for output in (False, True))
    commit_and_store = write_units("commit", output=True, ordered=ordered)
    handed = write_units("finish+hand_over", output=False, ordered=True) - finish - claim if ordered else 0
    return (
        count(*stats.ENDINGS) * (create + claim)
        + count(*_RETURNS) * (_UNITS["release"] + claim)
        + count(stats.CHUNKS) * commit
        + count(stats.COMPLETIONS) * (finish - commit)
        + count(stats.DEATHS) * _UNITS["die"]
        + count(stats.OUTPUTS) * (commit_and_store - commit)
        + count(stats.LAST_OUTPUTS) * (finish_and_store - finish)
        + count(stats.CONTINUATIONS) * (_UNITS["continue"] - commit)
        + count(stats.HAND_BACKS, stats.RESENDS) * _UNITS["resend"]
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
        write_units=returns * (_UNITS["release"] + _UNITS["claim"]) + again + resends * _UNITS["resend"],
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
