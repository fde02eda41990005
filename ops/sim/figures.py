"""What a run of our own policy amounts to: the figures, the series of its ticks, and the scenario's judgement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from ops.sim import limit_change
from ops.sim.checks.rows import Attempts, OneEffect, Order
from ops.sim.checks.ticks import Budget
from ops.sim.cost import port_counts
from ops.sim.drive import Drive
from ops.sim.invocations import Outcome
from ops.sim.measure import Truths, median, quantile
from ops.sim.report import redone_chunks
from ops.sim.result import Figures, Result
from ops.sim.scenario import CLASS, Scenario
from ops.sim.world import START_MS
from shared.core import stats
from shared.core.model import State
from shared.core.stats import StatsWindow
from shared.core.usage import wasted

PACED: Final = "paced"

WAITED_TICKS: Final = 2
"""What any drain waits for beyond its work: its first tick, and the one that admits its last rows."""


def run_paced(scenario: Scenario, seed: int) -> Result:
    """One run to its end, judged by the scenario's own expectations."""
    drive = Drive(scenario, seed)
    drive.run()
    return result_of(drive)


def result_of(drive: Drive) -> Result:
    world = drive.sluice.world
    figures = Figures(scenario=drive.scenario.name, seed=world.seed, policy=PACED)
    _count(drive, figures)
    truths = Truths(drive.measure.lives, _done(drive))
    _time(drive, figures, truths)
    _follow(drive, figures)
    found = drive.suite.findings
    result = Result(
        figures=figures,
        violations=dict(sorted(found.counts.items())),
        said=[str(violation) for violation in found.first],
        series=list(_series(drive, truths)),
    )
    if drive.mix is None:
        result.judge(drive.scenario)
    return result


def _done(drive: Drive) -> set[str]:
    return {job_id for job_id, row in drive.sluice.ledger.rows.items() if row.job.state is State.DONE}


def _count(drive: Drive, figures: Figures) -> None:
    sluice, measure, suite = drive.sluice, drive.measure, drive.suite
    ledger, outcomes = sluice.ledger, Counter(one.outcome for one in sluice.world.invocations)
    figures.jobs = len(measure.lives.created_ms)
    figures.done, figures.dead = ledger.states[State.DONE], ledger.states[State.DEAD]
    figures.unfinished = ledger.open_rows
    figures.lost = figures.jobs - len(ledger.rows) + suite.findings.counts.get("I3", 0)
    repeated_calls = sum(count - 1 for count in sluice.upstream.effects.values())
    figures.duplicate_effects = repeated_calls + suite.of(OneEffect).repeats
    figures.redone_chunks = redone_chunks(
        ledger.steps, [start for kind in sluice.kinds.values() for start in kind.starts]
    )
    figures.over_budget_ticks = len(suite.of(Budget).over_budget)
    figures.max_in_flight = suite.of(Budget).most_in_flight
    figures.order_violations = suite.findings.counts.get(Order.invariant, 0)
    if (found := drive.repairs.found) is not None and drive.mix is None:
        figures.dead_at_word, figures.held_at_word, figures.free_at_word = found.dead, found.held, found.free
    figures.upstream_calls, figures.refusals = len(sluice.upstream.calls), sluice.upstream.refusals
    figures.refusals_per_1000 = measure.traffic.per_1000
    figures.refusals_per_1000_worst = measure.traffic.worst_per_1000
    figures.ticks = len(measure.lines)
    figures.attempts_burned_by_refusals = suite.of(Attempts).burned_by_others
    figures.crashes, figures.timeouts = outcomes[Outcome.CRASHED], outcomes[Outcome.TIMED_OUT]
    if figures.done:
        job_class = drive.settings.classes[CLASS]
        used = port_counts(sluice, job_class).usage
        figures.cost_per_job_usd = used.usd() / figures.done
        figures.waste_per_job_usd = wasted(_windows(drive), job_class).at_most(used).usd() / figures.done


def _windows(drive: Drive) -> list[StatsWindow]:
    """What the workers counted, minute by minute."""
    minutes_ms = range(stats.window_of(START_MS), drive.sluice.world.now_ms + 1, stats.WINDOW_MS)
    return drive.sluice.ledger.read_stats(CLASS, windows_ms=list(minutes_ms))


def _time(drive: Drive, figures: Figures, truths: Truths) -> None:
    measure, scenario, job_class = drive.measure, drive.scenario, drive.settings.classes[CLASS]
    from_ms = measure.demand.from_ms
    figures.utilisation = measure.demand.utilisation(drive.sluice.world.now_ms)
    if drive.backlog_ended_ms is not None:
        figures.drain_s = (drive.backlog_ended_ms - from_ms) / 1000
    calls_per_s = job_class.slots / scenario.service_s * scenario.calls_per_job
    figures.ideal_drain_s = measure.lives.ideal_drain_s(drive.truth.limit, from_ms=from_ms, calls_per_s=calls_per_s)
    figures.drain_ratio = drain_ratio(figures, job_class.tick_interval_s)
    errors, figures.eta_silent_ticks = truths.errors(measure.lines, interval_s=job_class.tick_interval_s)
    figures.eta_error_median, figures.eta_error_p95 = median(errors), quantile(errors, 0.95)
    wait_ms = quantile(measure.lives.live_waits_ms, 0.95)
    figures.live_wait_p95_s = None if wait_ms is None else wait_ms / 1000


def drain_ratio(figures: Figures, interval_s: float) -> float | None:
    if figures.drain_s is None or not figures.ideal_drain_s:
        return None
    return (figures.drain_s - WAITED_TICKS * interval_s) / figures.ideal_drain_s


def _follow(drive: Drive, figures: Figures) -> None:
    limit, lines = drive.truth.limit, drive.measure.lines
    interval_s = drive.settings.classes[CLASS].tick_interval_s
    figures.refusals_per_1000_changing = limit_change.refused_per_1000(
        limit, drive.sluice.upstream.calls, interval_s=interval_s
    )
    figures.ticks_to_90_percent = limit_change.ticks_to_90_percent(limit, lines)
    steady = limit_change.steady_rates(limit, lines)
    figures.steady_rate_low, figures.steady_rate_high = steady or (None, None)


def _series(drive: Drive, truths: Truths) -> Iterator[dict[str, Any]]:
    """One entry per closed tick; calls and refusals since the one before."""
    calls = refusals = 0
    for line, (calls_now, refusals_now) in zip(drive.measure.lines, drive.measure.marks, strict=True):
        learned_per_s = limit_change.learned_per_s(line)
        yield {
            "t_s": (line.at_ms - START_MS) / 1000,
            "waiting_live": line.waiting.live,
            "waiting_recovery": line.waiting.recovery,
            "later": line.later,
            "behind": line.behind,
            "dead": line.dead,
            "in_flight": line.in_flight,
            "budget": line.budget,
            "admitted": line.admitted,
            "rate_per_s": round(line.rate_per_s * drive.scenario.calls_per_job, 4),
            "learned_per_s": None if learned_per_s is None else round(learned_per_s, 4),
            "true_limit_per_s": drive.truth.limit.at(line.at_ms),
            "refusals": refusals_now - refusals,
            "calls": calls_now - calls,
            "eta_said_s": None if line.eta_s is None else round(line.eta_s, 1),
            "eta_true_s": round(truths.remaining_s(line.at_ms), 1),
            "paused": line.paused,
            "staged": line.staged,
        }
        calls, refusals = calls_now, refusals_now
