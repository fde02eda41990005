"""A class that does more harm than good pauses itself: one world for each rule. And what must not stop it."""

from __future__ import annotations

from typing import Any

import pytest

from ops.simulator.upstream import UpstreamTruth
from ops.simulator.world import START_MS
from shared.domain import stats
from shared.domain.job import Job
from shared.domain.settings import AbortRules, RetrySettings
from shared.errors import JobFailure
from shared.kind import Chunk, ChunkContext
from tests.worlds import CLASS, MINUTE_MS, Bench, FunctionKind, jobs, settings


def bench(rows: int = 2_000, *, limit_per_s: float = 2.0, rules: AbortRules | None = None, **options: Any) -> Bench:
    """120 rows a minute."""
    changes = {name: options.pop(name) for name in ("retry", "declared_calls_per_job") if name in options}
    made = settings(limit_per_s=limit_per_s, abort=rules or AbortRules(), **changes)
    truths = {"inference": options.pop("truth", UpstreamTruth(limit_per_s=100.0))}
    sluice = Bench(made, ticks=True, workers=options.pop("workers", True), keep_trace=False, truths=truths, **options)
    sluice.submit(jobs(rows, chunk_ms=200))
    return sluice


def aborted(sluice: Bench) -> list[Any]:
    return [line.fields["reason"] for line in sluice.log.lines if line.name == "aborted"]


def stopped(sluice: Bench, reason: str, *, minutes: int) -> str:
    """Let it run, expect that it stopped for this reason and told everybody, and return the pause's reason."""
    sluice.run(minutes * MINUTE_MS)
    assert aborted(sluice) == [reason]
    pause = sluice.control.pause
    assert pause is not None
    assert pause.by == "sluice"
    fired = [one.values["AbortFired"] for one in sluice.metrics.sets]
    assert sum(fired) == 1
    (tick,) = [one for one in sluice.metrics.sets if one.values["AbortFired"]]
    assert (tick.values["Paused"], tick.values["AdmittedRows"]) == (1, 0)
    last_claim_ms = max(step.at_ms for step in sluice.steps("claim"))
    assert last_claim_ms < tick.at_ms
    return pause.why


def failing(_job: Job, _cursor: str, _context: ChunkContext) -> Chunk:
    raise JobFailure("canary")


# -- one world for each rule


def test_dead_rows_above_their_share_stop_it_and_nothing_is_deleted() -> None:
    sluice = bench(retry=RetrySettings(max_attempts=1), kinds={"sim": FunctionKind(failing)})
    why = stopped(sluice, "dead_ratio", minutes=8)

    assert why.startswith("dead_ratio: ")
    assert "canary" not in why
    assert len(sluice.rows) == 2_000


def test_a_backlog_that_ages_while_nothing_ends_stops_it() -> None:
    """Every job comes back without an end, and more arrive: the workers are busy for nothing."""
    sluice = bench(
        rules=AbortRules(retry_share=None),
        retry=RetrySettings(max_attempts=100, base_delay_s=1.0),
        kinds={"sim": FunctionKind(failing)},
    )

    assert "nothing drained" in stopped(sluice, "age_rising", minutes=8)


def test_growing_retries_that_eat_the_margin_stop_it() -> None:
    """The share of jobs that fail grows by a fifth each minute."""
    world: list[Bench] = []

    def worse(job: Job, cursor: str, context: ChunkContext) -> Chunk:
        minute = (world[0].world.now_ms - START_MS) // MINUTE_MS
        if int(job.job_id[1:]) % 5 < minute - 2:
            raise JobFailure("canary")
        return Chunk(next_cursor=None, output={})

    rules = AbortRules(age_windows=None, dead_share=None, retry_share=0.5)
    sluice = bench(4_000, rules=rules, retry=RetrySettings(max_attempts=100), kinds={"sim": FunctionKind(worse)})
    world.append(sluice)

    assert "recovery margin" in stopped(sluice, "retry_growth", minutes=14)


def test_calls_above_the_allowance_stop_it() -> None:
    """Somebody's counters say that 300 calls were made in a minute that allows 120 and the burst."""
    sluice = bench()
    sluice.until(179)
    sluice.ledger.add_stats(CLASS, window_ms=START_MS + 2 * MINUTE_MS, shard=0, counters={stats.CALLS: 300})

    assert "allowed" in stopped(sluice, "over_allowance", minutes=3)


def test_spending_above_its_bound_stops_it() -> None:
    assert "USD spent" in stopped(bench(rules=AbortRules(spend_usd=0.001)), "spend", minutes=8)


# -- and what must not


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a healthy drain", {}),
        ("slots that are slower than the upstream", {"limit_per_s": 500.0}),
        ("an upstream that refuses more and more", {"truth": UpstreamTruth(limit_per_s=1.0)}),
        ("a rate of three rows an hour", {"limit_per_s": 0.001}),
        ("an upstream that is overloaded now and then", {"truth": UpstreamTruth(limit_per_s=9.0, overloaded=0.2)}),
    ],
)
def test_what_is_slow_or_large_goes_on(name: str, options: dict[str, Any]) -> None:
    sluice = bench(3_000, **options)
    sluice.run(20 * MINUTE_MS)

    assert aborted(sluice) == [], name
    assert sluice.control.pause is None


def test_more_arrivals_than_the_capacity_age_the_backlog_and_stop_nothing() -> None:
    sluice = bench(100)
    for minute in range(15):
        sluice.submit(jobs(240, name=f"a{minute}-", chunk_ms=200))
        sluice.until((minute + 1) * 60 + 30)
    assert sluice.history[-1].oldest_age_s > sluice.history[-3].oldest_age_s
    assert sluice.history[-1].pending > sluice.history[-3].pending

    assert aborted(sluice) == []


def test_the_end_of_a_drain_where_only_the_failing_rows_are_left_goes_on() -> None:
    def some(job: Job, _cursor: str, _context: ChunkContext) -> Chunk:
        if int(job.job_id[1:]) % 20 == 0:
            raise JobFailure("canary")
        return Chunk(next_cursor=None, output={})

    sluice = bench(600, retry=RetrySettings(max_attempts=2, base_delay_s=60.0), kinds={"sim": FunctionKind(some)})

    assert sluice.drain(max_ms=60 * MINUTE_MS)
    assert aborted(sluice) == []


def test_every_rule_can_be_switched_off() -> None:
    sluice = bench(rules=AbortRules.off(), retry=RetrySettings(max_attempts=1), kinds={"sim": FunctionKind(failing)})
    sluice.run(8 * MINUTE_MS)

    assert aborted(sluice) == []


def test_after_a_resume_it_is_judged_anew_and_stops_again_if_nothing_was_mended() -> None:
    sluice = bench(retry=RetrySettings(max_attempts=1), kinds={"sim": FunctionKind(failing)})
    stopped(sluice, "dead_ratio", minutes=6)
    sluice.run(5_000)  # the tick of the sixth minute has read control
    sluice.resume(CLASS)
    sluice.run(MINUTE_MS)
    assert aborted(sluice) == ["dead_ratio"], "its old windows are not held against it"
    sluice.run(6 * MINUTE_MS)

    assert aborted(sluice) == ["dead_ratio", "dead_ratio"]


def test_an_operators_pause_is_not_replaced() -> None:
    sluice = bench(retry=RetrySettings(max_attempts=1), kinds={"sim": FunctionKind(failing)})
    sluice.run(MINUTE_MS + 30_000)
    sluice.pause(CLASS)
    sluice.run(5 * MINUTE_MS)

    assert aborted(sluice) == []
    assert sluice.control.pause is not None
    assert sluice.control.pause.by == "operator"
