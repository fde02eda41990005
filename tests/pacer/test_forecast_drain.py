"""What the ticks say of the end of the drain: within 15 %, always a finite number, and "never" is a state (I11)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ops.simulator.faults import Call, Die, Fail, Fault, Stall, When
from ops.simulator.hosts import MappingFaults, ScheduleFaults
from ops.simulator.ports import MetricSet
from ops.simulator.upstream import UpstreamTruth
from ops.simulator.world import World
from shared.errors import LedgerUnavailable, QueueUnavailable
from shared.memory.ledger import Staleness
from tests.worlds import CLASS, HOUR_MS, TWENTY_A_TICK, Bench, jobs, settings

SIGNED = ("DrainEtaChangeMinutes", "DrainEtaAccelerationMinutes")
"""What moves towards the end is negative."""


def bench(rows: int, *, steady: bool = False, **options: Any) -> Bench:
    """20 rows a minute: by what the slots are declared to do, or `steady`, by an upstream that takes a call in 3 s."""
    made = settings(limit_per_s=1 / 3) if steady else settings(**TWENTY_A_TICK)
    truths = {"inference": UpstreamTruth(limit_per_s=100.0)}
    sluice = Bench(made, ticks=True, workers=True, keep_trace=False, truths=truths, **options)
    sluice.submit(jobs(rows, chunk_ms=200))
    return sluice


def eta_errors(sluice: Bench) -> list[float]:
    """|said - true| / max(true, one tick) of every tick's ETA, the world having drained by now."""
    ended_ms = sluice.ledger.steps[-1].at_ms
    errors = []
    for line in sluice.history:
        if line.eta_s is not None and line.pending:
            true_s = (ended_ms - line.at_ms) / 1000
            errors.append(abs(line.eta_s - true_s) / max(true_s, 60.0))
    return errors


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "schedule_faults",
    [
        None,
        ScheduleFaults(late_ms=(0, 10_000), double=0.2),
    ],
)
def test_in_a_steady_drain_the_eta_is_right_within_15_percent_from_the_third_tick_on(
    seed: int, schedule_faults: ScheduleFaults | None
) -> None:
    sluice = bench(280, steady=True, seed=seed, schedule_faults=schedule_faults)
    assert sluice.drain(max_ms=HOUR_MS)
    lines = sluice.history
    assert len(lines) in (14, 15)  # all of them are in control's history
    assert lines[0].eta_s is None
    errors = eta_errors(sluice)
    assert len(errors) >= len(lines) - 2
    assert max(errors[1:]) <= 0.15  # the first of them is the second tick's


def minutes_of_arrivals(sluice: Bench, minutes: int, rows_a_minute: int) -> list[MetricSet]:
    for minute in range(minutes):
        if rows_a_minute:
            sluice.submit(jobs(rows_a_minute, name=f"a{minute}-", chunk_ms=200))
        sluice.until((minute + 1) * 60 + 30)
    return sluice.metrics.sets


def test_a_growing_backlog_is_a_state_with_its_own_metric_and_no_number() -> None:
    sets = minutes_of_arrivals(bench(100), 8, rows_a_minute=40)  # 20 of them leave
    for values in (one.values for one in sets[2:]):
        assert values["DrainStalled"] == 1
        assert "DrainEtaMinutes" not in values
    assert len(sets) == 8


def test_a_backlog_that_shrinks_slowly_has_an_eta_at_the_net_rate() -> None:
    sets = minutes_of_arrivals(bench(200), 8, rows_a_minute=15)  # 20 leave: 5 a minute net
    values = sets[-1].values
    assert values["DrainStalled"] == 0
    assert values["DrainEtaMinutes"] == pytest.approx(values["PendingRows"] / 5, rel=0.15)


def test_a_class_whose_workers_do_nothing_is_stalled() -> None:
    sluice = bench(100)
    sluice.switch(False)
    sluice.until(10 * 60)
    values = sluice.metrics.sets[-1].values
    assert (values["DrainStalled"], values["PendingRows"]) == (1, 100)


def test_paused_time_does_not_count_as_working_time() -> None:
    sluice = bench(400)
    sluice.until(5 * 60 + 30)
    before = sluice.metrics.sets[-1].values["DrainEtaMinutes"]
    sluice.pause(CLASS)
    sluice.until(35 * 60 + 30)
    assert all("DrainEtaMinutes" not in one.values for one in sluice.metrics.sets[-29:])
    sluice.resume(CLASS)
    sluice.until(38 * 60 + 30)
    after = sluice.metrics.sets[-1].values["DrainEtaMinutes"]
    assert after == pytest.approx(before - 2, rel=0.15)  # 40 rows fewer: two ticks of work, half an hour of pause


def test_an_idle_class_drains_in_no_time() -> None:
    sluice = bench(0)
    sluice.until(200)
    values = sluice.metrics.sets[-1].values
    assert (values["DrainEtaMinutes"], values["DrainStalled"], values["PendingRows"]) == (0, 0, 0)


class Chaos:
    """Any port call may die, stall or fail, with these chances in a thousand."""

    def __init__(self, seed: int) -> None:
        self._rng = World(seed).random("chaos")

    def __call__(self, call: Call, when: When) -> Fault | None:
        if self._rng.random() > 0.003:
            return None
        if call.point.startswith("ledger."):
            faults: list[Fault] = [Die(), Stall(20_000), Fail(LedgerUnavailable())]
            return self._rng.choice(faults)
        return Fail(QueueUnavailable()) if call.point == "queue.send_batch" else Die()


@pytest.mark.parametrize("seed", range(4))
def test_every_metric_is_finite_and_not_negative_whatever_goes_wrong(seed: int) -> None:
    sluice = bench(
        60,
        seed=seed,
        faults=[Chaos(seed)],
        staleness=Staleness.fixed(2_000, gap_ms=1_000),
        schedule_faults=ScheduleFaults(late_ms=(0, 59_000), double=0.3, miss=0.2),
        mapping_faults=MappingFaults(duplicate=0.1, throttled=0.05),
    )
    sluice.run(20 * 60_000)
    sluice.world.faults.clear()
    assert sluice.drain(max_ms=3 * HOUR_MS)
    assert len(sluice.metrics.sets) > 5
    for one in sluice.metrics.sets:
        assert all(math.isfinite(value) for value in one.values.values())
        assert all(value >= 0 for name, value in one.values.items() if name not in SIGNED)
    report = sluice.report()
    assert (report.done, report.over_budget_ticks, report.duplicate_effects) == (60, 0, 0)
    assert all(isinstance(error, LedgerUnavailable) for error in sluice.errors)
