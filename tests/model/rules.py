"""The worlds that are searched with every rule in force, and for each rule the world that breaks without it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tests.model.world import BUDGETS, Setup


def world(name: str, **facts: Any) -> Setup:
    """A setup whose budgets are given as names: `crash=2, lost_answer=1`."""
    budgets = {name: facts.pop(name.replace(" ", "_"), 0) for name in BUDGETS}
    return Setup(
        name,
        budgets=tuple(each for each in budgets.items() if each[1]),
        asks_who_wrote=budgets["lost answer"] > 0,
        leases_fail=budgets["late worker"] > 0,
        **facts,
    )


WORLDS: Final = (
    world(
        "one job of two chunks: crashes, lost answers, a dead letter, a refusal, a continuation",
        chunks=2,
        workers=2,
        runs=2,
        max_receives=2,
        crash=2,
        sweep=1,
        time_up=1,
        refusal=1,
        lost_answer=1,
    ),
    world(
        "two lanes, two re-sends",
        chunks=2,
        workers=2,
        lanes=2,
        runs=2,
        max_receives=2,
        crash=1,
        sweep=2,
        time_up=1,
        refusal=1,
    ),
    world(
        "a worker that outlives its lease",
        chunks=2,
        workers=2,
        runs=2,
        late_worker=1,
        sweep=1,
        refusal=1,
        lost_answer=1,
    ),
    world(
        "two ticks and a repeated one: crashes, lost answers, a queue and a ledger that fail",
        jobs=2,
        runs=2,
        max_inflight=1,
        crash=1,
        duplicate_tick=1,
        lost_answer=1,
        unsent=1,
        unavailable=1,
    ),
    world(
        "a pacer that loses its lock and lives on",
        jobs=2,
        runs=2,
        max_inflight=1,
        grant=1,
        submits=1,
        slow_pacer=1,
        duplicate_tick=1,
        sweep=1,
    ),
    world(
        "live allowance, pause, resume, a resumed run",
        jobs=2,
        runs=2,
        max_inflight=1,
        grant=1,
        submits=1,
        pause=True,
        crash=1,
        duplicate_tick=1,
    ),
    world("a handover while the index lags", jobs=3, ordered=True, runs=2, max_inflight=1, index_lags=True),
    world(
        "spent allowance while the index lags",
        jobs=2,
        runs=2,
        max_inflight=1,
        grant=1,
        submits=0,
        index_lags=True,
        sweep=1,
    ),
    world(
        "three ordered jobs in two lanes",
        jobs=3,
        ordered=True,
        workers=2,
        lanes=2,
        crash=1,
        sweep=1,
        refusal=1,
    ),
    world(
        "an ordered match and a pause",
        jobs=2,
        ordered=True,
        workers=2,
        pause=True,
        crash=2,
        sweep=1,
    ),
    world(
        "a job submitted to a match that ends",
        jobs=2,
        ordered=True,
        submits=1,
        grant=1,
        workers=2,
        runs=2,
        max_inflight=2,
        crash=1,
        sweep=1,
    ),
    world(
        "two operators at one dead job",
        jobs=2,
        ordered=True,
        workers=2,
        runs=2,
        verbs=("retry", "skip"),
        starts_dead=True,
        operator=2,
        death=1,
        crash=1,
    ),
)


class Removal(NamedTuple):
    """Without `rule`, the search of `world` finds what `breaks`."""

    section: str
    rule: str
    breaks: str
    world: Setup


def without(section: str, rule: str, breaks: str, **facts: Any) -> Removal:
    return Removal(section, rule, breaks, world(rule, without=frozenset({rule}), **facts))


_ORDERED: Final[dict[str, Any]] = {"jobs": 2, "ordered": True}
_LIVE: Final[dict[str, Any]] = {"jobs": 2, "runs": 2, "max_inflight": 1, "submits": 1, "grant": 1}
_TICKS: Final[dict[str, Any]] = {"jobs": 2, "runs": 2, "max_inflight": 1}

REMOVALS: Final = (
    # 1. The row is the truth, the message is a hint.
    without("rule 1", "truth before message", "I3"),
    without("rule 1", "epoch rises", "I3", refusal=1, runs=2),
    without("rule 1", "stale messages do nothing", "I4", workers=2, runs=2, lanes=2, refusal=1, crash=1),
    # 2. Conditional writes, which know their own first attempt.
    without("rule 2", "writes are conditional", "I2", workers=2, chunks=2, late_worker=1),
    without("rule 2", "own writes are recognised", "I1", **_TICKS, lost_answer=1),
    without("rule 2", "a twin's win is not ours", "I2", workers=2, chunks=2, late_worker=1, lost_answer=1),
    without(
        "rule 2",
        "the reader believes the newest copy only",
        "I4",
        workers=2,
        runs=3,
        lanes=2,
        max_receives=1,
        crash=1,
        sweep=1,
    ),
    # 3. The sweep is the one repair.
    without("rule 3", "sweep", "I3", crash=1),
    without("rule 3", "copy in the id", "I3", max_receives=1, crash=2, sweep=1, runs=2),
    without("rule 3", "lane is stored", "I4", workers=2, runs=2, lanes=2, sweep=1),
    without("rule 3", "paused ticks sweep", "I10", crash=1, pause=True),
    # 4. Leases.
    without("rule 4", "worker stops before its lease ends", "I4", workers=2, chunks=2),
    without("rule 4", "pacer stops before its lock ends", "I1", **_TICKS, slow_pacer=1),
    # 5. One owner per tick.
    without("rule 5", "class lock", "I1", **_TICKS),
    without("rule 5", "lock and run in one transaction", "I1", **_TICKS, duplicate_tick=1),
    without("rule 5", "planned before the first claim", "I1", **_TICKS, crash=1, duplicate_tick=1),
    without("rule 5", "a resumed run only sweeps", "I1", **_TICKS, crash=1, duplicate_tick=1),
    without("rule 5", "planning is conditional on the owner", "I1", **_TICKS, slow_pacer=1),
    without("rule 5", "closing is conditional on the owner", "I1", **_TICKS, slow_pacer=1, duplicate_tick=1),
    without("rule 5", "dropping the lock is conditional on the owner", "I1", **_TICKS, slow_pacer=1, duplicate_tick=1),
    without("rule 5", "own run is left alone", "I6", **_TICKS, duplicate_tick=1),
    # In flight, allowance, pause (the ledger, the tick, the worker).
    without("the ledger", "recent admissions count", "I1", **_TICKS, index_lags=True),
    without("the tick", "allowance is withdrawn before counting", "I1", **_LIVE),
    without("the tick", "allowance is spent with the row", "I1", **_LIVE),
    without("the tick", "the grant is part of the close", "I1", **_LIVE, slow_pacer=1),
    without("the tick", "no grant while paused", "I10", **_LIVE, pause=True),
    without("the worker", "a pause waits for the tick", "I10", pause=True),
    without("the worker", "a pause zeroes the allowance", "I10", **_LIVE, pause=True),
    without("the worker", "a pause waits for handovers", "I10", **_ORDERED, pause=True),
    # Ordered matches (the ledger).
    without("the ledger", "only heads are eligible", "I5", **_ORDERED, lanes=2, workers=2),
    without("the ledger", "the match is a condition", "I3", **_ORDERED, submits=1),
    without("the ledger", "promotion is part of the end", "I3", **_ORDERED, crash=1),
    without(
        "the ledger",
        "a skip makes the next head wait",
        "I1",
        **_ORDERED,
        starts_dead=True,
        max_inflight=1,
        grant=1,
        verbs=("skip",),
        operator=1,
    ),
    without(
        "the ledger",
        "operators are conditional on (dead, epoch)",
        "I5",
        **_ORDERED,
        runs=2,
        workers=2,
        verbs=("retry", "skip"),
        operator=2,
        starts_dead=True,
        lanes=2,
    ),
)
