"""What the counters say a drain has cost is what its port calls cost, counted one by one; and where it is shown."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ops.simulator.measure import port_counts
from ops.simulator.upstream import UpstreamTruth
from ops.simulator.world import START_MS
from shared.domain import stats
from shared.domain.job import Job
from shared.domain.settings import AbortRules, ClassSettings, RetrySettings, Settings
from shared.domain.stats import StatsWindow, window_of
from shared.errors import JobFailure
from shared.kind import Chunk, ChunkContext, count_tokens
from shared.pacer.cost import spending, summed, unpacked, used_by_ticks, used_by_workers, wasted
from tests.worlds import CLASS, HOUR_MS, MINUTE_MS, Bench, FunctionKind, jobs, settings

AGREES = 0.05
"""Of the dollars. Counters do not know exactly how full a tick's send batches were, and how long the pacer ran."""

SLOWER_THAN_SAID = {"inference": UpstreamTruth(limit_per_s=4.0, bucket_calls=1)}


def drained(made: Settings, rows: int, *, options: dict[str, Any] | None = None, **payload: Any) -> Bench:
    """A drain to its end, and the two minutes in which its last counters are settled."""
    sluice = Bench(made, ticks=True, workers=True, keep_trace=False, **(options or {}))
    sluice.submit(jobs(rows, **payload))
    assert sluice.drain(max_ms=5 * HOUR_MS)
    sluice.run(2 * MINUTE_MS + 30_000)
    return sluice


def windows(sluice: Bench) -> list[StatsWindow]:
    minutes_ms = range(START_MS, window_of(sluice.world.now_ms) + 1, MINUTE_MS)
    return sluice.ledger.read_stats(CLASS, windows_ms=list(minutes_ms))


def own(sluice: Bench) -> ClassSettings:
    return sluice.settings.classes[CLASS]


@pytest.mark.parametrize(
    ("made", "rows", "options", "payload"),
    [
        pytest.param(settings(), 600, {}, {}, id="one chunk a job"),
        pytest.param(settings(), 200, {}, {"chunks": 5}, id="five chunks"),
        pytest.param(settings(ordered=True), 300, {}, {"matches": 60}, id="lines of five, handed over"),
        pytest.param(settings(limit_per_s=8.0), 400, {"truths": SLOWER_THAN_SAID}, {}, id="refused"),
        pytest.param(
            settings(function_timeout_s=60, chunk_margin_s=5.0), 40, {}, {"chunks": 10, "chunk_ms": 10_000}, id="long"
        ),
    ],
)
def test_counters_and_port_calls_agree_on_the_dollars(
    made: Settings, rows: int, options: dict[str, Any], payload: dict[str, Any]
) -> None:
    sluice = drained(made, rows, options=options, **payload)
    counted = spending(port_counts(sluice, own(sluice)).usage)
    mean_rows = sum(line.pending + line.dead for line in sluice.history) / len(sluice.history)
    ticks = used_by_ticks(sluice.ledger.writes["take_run"], own(sluice), rows=mean_rows)
    derived = spending(used_by_workers(windows(sluice), own(sluice)) + ticks)

    assert derived.total_usd == pytest.approx(counted.total_usd, rel=AGREES)
    assert derived.dynamodb_usd == pytest.approx(counted.dynamodb_usd, rel=AGREES)
    assert derived.sqs_usd == pytest.approx(counted.sqs_usd, rel=AGREES)
    assert derived.lambda_usd == pytest.approx(counted.lambda_usd, rel=AGREES)


def test_the_costs_of_all_ticks_are_the_cost_of_the_drain() -> None:
    sluice = drained(settings(), 300)
    ticks = [cost for line in sluice.history if (cost := unpacked(line.cost)) is not None]
    found = summed(ticks)
    workers = spending(used_by_workers(windows(sluice), own(sluice)))

    assert len(ticks) == len(sluice.history)
    assert found.jobs == 300
    pacer_usd = sum(used_by_ticks(1, own(sluice), rows=line.pending + line.dead).usd() for line in sluice.history)
    assert found.total_usd == pytest.approx(workers.total_usd + pacer_usd, rel=1e-3)


def test_a_tick_emits_what_it_kept() -> None:
    sluice = drained(settings(), 300)

    for line, one in zip(sluice.history, sluice.metrics.sets, strict=True):
        cost = unpacked(line.cost)
        assert cost is not None
        assert one.values["CostUsd"] == pytest.approx(cost.total_usd, abs=1e-8)
        assert one.values["WasteUsd"] <= one.values["CostUsd"]
        assert ("CostPerJobUsd" in one.values) == (cost.jobs > 0)


def test_a_healthy_drain_wastes_nothing_and_a_refused_one_says_what() -> None:
    healthy, refused = (
        drained(settings(), 100),
        drained(settings(limit_per_s=8.0), 200, options={"truths": SLOWER_THAN_SAID}),
    )

    assert wasted(windows(healthy), own(healthy)).usd() == 0
    assert refused.counters()[stats.REFUSALS] > 10
    lost = wasted(windows(refused), own(refused))
    assert lost.write_units >= 6 * refused.counters()[stats.REFUSALS]
    assert lost.gb_seconds > 0


def test_calls_of_a_chunk_that_came_to_nothing_are_wasted_and_others_are_not() -> None:
    failed: list[str] = []

    def chunk(job: Job, _cursor: str, context: ChunkContext) -> Chunk:
        count_tokens({"usage": {"input_tokens": 100, "output_tokens": 10}}, context)
        for number in range(2):
            context.call_upstream({"call": number})
        if job.job_id in ("j1", "j2") and job.job_id not in failed:
            failed.append(job.job_id)
            raise JobFailure("canary")
        return Chunk(next_cursor=None, output={})

    made = settings(limit_per_s=50.0, retry=RetrySettings(base_delay_s=1.0))
    sluice = drained(made, 10, options={"kinds": {"sim": FunctionKind(chunk, calls_per_chunk=2)}})
    counters = sluice.counters()

    assert counters[stats.CALLS] == 2 * 12
    assert counters[stats.WASTED_CALLS] == 2 * 2
    assert counters[stats.INPUT_TOKENS] == 1200
    assert wasted(windows(sluice), own(sluice)).input_tokens == pytest.approx(200)


def test_a_redelivered_chunk_repeats_calls_that_may_have_been_made() -> None:
    sluice = Bench(settings(limit_per_s=50.0))
    sluice.submit(jobs(1))
    sluice.ticked(1, at_s=60)
    (first,) = sluice.receive()
    sluice.worked([replace(first, receive_count=2)])
    counters = sluice.counters()

    assert (counters[stats.REDELIVERIES], counters[stats.WASTED_CALLS], counters[stats.COMPLETIONS]) == (1, 1, 1)


def test_a_class_stops_at_its_bound_and_the_upstream_s_tokens_count() -> None:
    """A dollar a call: its table, queue and workers alone would be far from the bound."""

    def chunk(_job: Job, _cursor: str, context: ChunkContext) -> Chunk:
        context.call_upstream({})
        count_tokens({"usage": {"input_tokens": 1_000_000}}, context)
        return Chunk(next_cursor=None)

    def run(price_usd: float | None) -> Bench:
        made = settings(limit_per_s=2.0, abort=replace(AbortRules.off(), spend_usd=300.0))
        priced = replace(made.upstreams["inference"], usd_per_million_input_tokens=price_usd)
        kinds = {"sim": FunctionKind(chunk, calls_per_chunk=1)}
        sluice = Bench(
            replace(made, upstreams={"inference": priced}), ticks=True, workers=True, keep_trace=False, kinds=kinds
        )
        sluice.submit(jobs(2_000))
        sluice.run(8 * MINUTE_MS)
        return sluice

    stopped, unpriced = run(1.0), run(None)

    assert stopped.control.pause is not None
    assert stopped.control.pause.why.startswith("spend: ")
    assert len(stopped.rows) == 2_000, "nothing is deleted"
    assert unpriced.control.pause is None
    last = [one.values["SpendUsd"] for one in stopped.metrics.sets if "SpendUsd" in one.values][-1]
    assert 300 < last < 700


@pytest.mark.parametrize("interval_s", [60, 1800, 7200])
def test_ticks_that_are_rare_say_all_of_their_minutes_or_nothing(interval_s: int) -> None:
    sluice = Bench(settings(tick_interval_s=interval_s), ticks=True, workers=True, keep_trace=False)
    sluice.submit(jobs(50))
    sluice.run(3 * interval_s * 1000 + 30_000)
    costs = [unpacked(line.cost) for line in sluice.history][1:]

    if interval_s > HOUR_MS / 1000:
        assert costs == [None] * len(costs)
    else:
        assert sum(cost.jobs for cost in costs if cost is not None) == 50
