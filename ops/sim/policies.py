"""The policies side by side: the same scenario and seed, the same arrivals, work and limiter."""

from __future__ import annotations

from typing import Final

from ops.sim.baselines import ENQUEUE_ALL, FIXED_CONCURRENCY, Baseline
from ops.sim.cost import Usage
from ops.sim.figures import PACED, run_paced
from ops.sim.measure import quantile
from ops.sim.result import Figures, Result
from ops.sim.scenario import Scenario

POLICIES: Final = (PACED, ENQUEUE_ALL, FIXED_CONCURRENCY)

_REQUESTS_PER_ATTEMPT: Final = 3
"""A send, a receive and a delete or a change of visibility."""


def run_policy(scenario: Scenario, seed: int, policy: str) -> Result:
    if policy == PACED:
        return run_paced(scenario, seed)
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
    wait_ms = quantile(lives.live_waits_ms, 0.95)
    figures.live_wait_p95_s = None if wait_ms is None else wait_ms / 1000
    figures.attempts_burned_by_refusals = run.refused_attempts
    figures.cost_per_job_usd = _usage(run).usd / run.done if run.done else None
    return figures


def _usage(run: Baseline) -> Usage:
    spent_ms = sum(one.ended_ms - one.at_ms for one in run.world.invocations if one.ended_ms is not None)
    return Usage(
        writes={},
        reads={},
        queue_requests=run.attempts * _REQUESTS_PER_ATTEMPT,
        invocations=run.attempts,
        compute_s=spent_ms / 1000,
        memory_mb=run.job_class.memory_mb,
    )
