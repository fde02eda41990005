"""The policies side by side: the same scenario and seed, the same arrivals, work and limiter."""

from __future__ import annotations

from typing import Final

from ops.simulator import limit_change
from ops.simulator.baselines import ENQUEUE_ALL, FIXED_CONCURRENCY, Baseline
from ops.simulator.drive import PACED, drain_ratio, run_paced
from ops.simulator.measure import PortCounts, quantile
from ops.simulator.result import Figures, Result
from ops.simulator.scenario import Scenario
from shared.domain.settings import RatePolicy

HALVING: Final = "halving"
"""Ours, with a rate that a refused window halves: it differs only where something is refused."""

POLICIES: Final = (PACED, HALVING, ENQUEUE_ALL, FIXED_CONCURRENCY)

_REQUESTS_PER_ATTEMPT: Final = 3
"""A send, a receive and a delete or a change of visibility."""


def run_policy(scenario: Scenario, seed: int, policy: str) -> Result:
    if policy == PACED:
        return run_paced(scenario, seed)
    if policy == HALVING:
        halving = run_paced(scenario.with_(upstream={**scenario.upstream, "rate_policy": RatePolicy.HALVING}), seed)
        halving.figures.policy = HALVING
        halving.failed.clear()  # what a scenario expects, it expects of ours
        return halving
    baseline = Baseline(scenario, seed, policy)
    baseline.run()
    return Result(figures=_figures(baseline))


def _figures(run: Baseline) -> Figures:
    world, lives = run.world, run.lives
    figures = Figures(scenario=run.scenario.name, seed=world.seed, policy=run.policy)
    figures.jobs = len(lives.created_ms)
    figures.done, figures.dead = run.done, run.dead
    figures.unfinished = figures.jobs - run.done - run.dead
    figures.duplicate_effects = sum(count - 1 for count in run.effects.values())
    figures.redone_chunks = figures.duplicate_effects
    figures.upstream_calls, figures.refusals = len(run.upstream.calls), run.upstream.refusals
    figures.refusals_per_1000 = run.traffic.per_1000
    figures.refusals_per_1000_worst = run.traffic.worst_per_1000
    figures.utilisation = run.demand.utilisation(world.now_ms)
    if run.backlog_ended_ms is not None:
        figures.drain_s = (run.backlog_ended_ms - run.demand.from_ms) / 1000
    calls_per_s = run.job_class.slots / run.scenario.service_s * run.scenario.calls_per_job
    figures.ideal_drain_s = lives.ideal_drain_s(run.truth.limit, from_ms=run.demand.from_ms, calls_per_s=calls_per_s)
    interval_s = run.job_class.tick_interval_s
    figures.drain_ratio = drain_ratio(figures, interval_s)
    figures.refusals_per_1000_changing = limit_change.refused_per_1000(
        run.truth.limit, run.upstream.calls, interval_s=interval_s
    )
    wait_ms = quantile(lives.live_waits_ms, 0.95)
    figures.live_wait_p95_s = None if wait_ms is None else wait_ms / 1000
    figures.attempts_burned_by_refusals = run.refused_attempts
    figures.cost_per_job_usd = _counted(run).usd / run.done if run.done else None
    return figures


def _counted(run: Baseline) -> PortCounts:
    spent_ms = sum(one.ended_ms - one.at_ms for one in run.world.invocations if one.ended_ms is not None)
    return PortCounts(
        writes={},
        reads={},
        queue_requests=run.attempts * _REQUESTS_PER_ATTEMPT,
        invocations=run.attempts,
        compute_s=spent_ms / 1000,
        memory_mb=run.job_class.memory_mb,
    )
