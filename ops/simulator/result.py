"""What a run came to: its figures, the invariants that it broke, and the series of its ticks.

This is the one place where a figure is named, typed and computed. docs/simulation.md says what each one means.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from ops.simulator import limit_change
from ops.simulator.checks.rows import Attempts, OneEffect, Order
from ops.simulator.checks.ticks import Budget
from ops.simulator.measure import Truths, median, quantile
from ops.simulator.sluice_world import redone_chunks
from ops.simulator.world import START_MS, Outcome
from shared.domain.job import State
from shared.pacer.cost import wasted

if TYPE_CHECKING:  # a scenario's expectations name figures, and a run has a scenario
    from ops.simulator.drive import Drive
    from ops.simulator.run import Run
    from ops.simulator.scenario import Scenario

STABLE: Final = (
    *("seed", "policy", "jobs", "done", "dead", "lost", "duplicate_effects", "redone_chunks", "over_budget_ticks"),
    *("order_violations", "upstream_calls", "refusals", "refusals_per_1000", "refusals_per_1000_worst", "utilisation"),
    *("ticks", "drain_s", "ideal_drain_s", "eta_error_median", "eta_error_p95", "live_wait_p95_s"),
    *("attempts_burned_by_refusals", "cost_per_job_usd", "wall_s"),
)
"""The figures that every version prints under these names: who reads `--json` may rely on them."""

WAITED_TICKS: Final = 2
"""What any drain waits for beyond its work: its first tick, and the one that admits its last rows."""


@dataclass(slots=True, kw_only=True)
class Figures:
    """Every figure is a function of the scenario, the policy and the seed, `wall_s` excepted. None: does not apply.

    `drain_ratio` is the drain less the two ticks that it waits, over the ideal. How the rate follows a limit that
    changes is in `limit_change`. `*_at_word` count the rows that were left when an operator's rounds began: dead ones,
    those that a dead one holds, and those that nothing holds.
    """

    scenario: str
    seed: int
    policy: str
    jobs: int = 0
    done: int = 0
    dead: int = 0
    unfinished: int = 0
    lost: int = 0
    duplicate_effects: int = 0
    redone_chunks: int = 0
    over_budget_ticks: int = 0
    order_violations: int = 0
    dead_at_word: int | None = None
    held_at_word: int | None = None
    free_at_word: int | None = None
    upstream_calls: int = 0
    refusals: int = 0
    refusals_per_1000: float = 0.0
    refusals_per_1000_worst: float = 0.0
    refusals_per_1000_changing: float | None = None
    ticks_to_90_percent: int | None = None
    steady_rate_low: float | None = None
    steady_rate_high: float | None = None
    utilisation: float | None = None
    ticks: int = 0
    drain_s: float | None = None
    ideal_drain_s: float | None = None
    drain_ratio: float | None = None
    eta_error_median: float | None = None
    eta_error_p95: float | None = None
    eta_silent_ticks: int = 0
    live_wait_p95_s: float | None = None
    attempts_burned_by_refusals: int = 0
    cost_per_job_usd: float | None = None
    waste_per_job_usd: float | None = None
    max_in_flight: int = 0
    crashes: int = 0
    timeouts: int = 0
    wall_s: float = 0.0


FIGURES: Final = tuple(figure.name for figure in fields(Figures) if figure.type != "str")
"""The numbers among them: what a scenario may expect something of."""


def figures_of(run: Run) -> Figures:
    """What can be measured under any policy."""
    figures = Figures(scenario=run.scenario.name, seed=run.world.seed, policy=run.policy)
    figures.jobs, figures.done, figures.dead = len(run.lives.created_ms), run.done, run.dead
    figures.unfinished = run.open_jobs
    figures.upstream_calls, figures.refusals = len(run.upstream.calls), run.upstream.refusals
    figures.refusals_per_1000 = run.traffic.per_1000
    figures.refusals_per_1000_worst = run.traffic.worst_per_1000
    limit, interval_s, from_ms = run.truth.limit, run.job_class.tick_interval_s, run.demand.from_ms
    figures.refusals_per_1000_changing = limit_change.refused_per_1000(limit, run.upstream.calls, interval_s=interval_s)
    figures.utilisation = run.demand.utilisation(run.world.now_ms)
    calls_per_s = run.job_class.slots / run.scenario.service_s * run.scenario.calls_per_job
    figures.ideal_drain_s = run.lives.ideal_drain_s(limit, from_ms=from_ms, calls_per_s=calls_per_s)
    if run.backlog_ended_ms is not None:
        figures.drain_s = (run.backlog_ended_ms - from_ms) / 1000
        if figures.ideal_drain_s:
            figures.drain_ratio = (figures.drain_s - WAITED_TICKS * interval_s) / figures.ideal_drain_s
    wait_ms = quantile(run.lives.live_waits_ms, 0.95)
    figures.live_wait_p95_s = None if wait_ms is None else wait_ms / 1000
    figures.cost_per_job_usd = run.usage.usd() / run.done if run.done else None
    return figures


def checked_figures(run: Drive) -> Figures:
    """Ours has a ledger, checkers, ticks and an operator besides."""
    figures, suite, lines = figures_of(run), run.suite, run.meter.lines
    ledger, outcomes = run.sluice.ledger, Counter(one.outcome for one in run.world.invocations)
    figures.lost = figures.jobs - len(ledger.rows) + suite.findings.counts.get("I3", 0)
    repeated_calls = sum(count - 1 for count in run.upstream.effects.values())
    figures.duplicate_effects = repeated_calls + suite.of(OneEffect).repeats
    figures.redone_chunks = redone_chunks(ledger.steps, run.sluice.starts)
    figures.over_budget_ticks = len(suite.of(Budget).over_budget)
    figures.max_in_flight = suite.of(Budget).most_in_flight
    figures.order_violations = suite.findings.counts.get(Order.invariant, 0)
    figures.attempts_burned_by_refusals = suite.of(Attempts).burned_by_others
    figures.crashes, figures.timeouts = outcomes[Outcome.CRASHED], outcomes[Outcome.TIMED_OUT]
    if run.rounds.met is not None and run.mix is None:
        met = run.rounds.met
        figures.dead_at_word, figures.held_at_word, figures.free_at_word = met.dead, met.held, met.free
    if figures.done:
        waste = wasted(run.windows, run.job_class).at_most(run.usage)
        figures.waste_per_job_usd = waste.usd() / figures.done
    figures.ticks = len(lines)
    figures.ticks_to_90_percent = limit_change.ticks_to_90_percent(run.truth.limit, lines)
    steady = limit_change.steady_rates(run.truth.limit, lines)
    figures.steady_rate_low, figures.steady_rate_high = steady or (None, None)
    errors, figures.eta_silent_ticks = truths_of(run).errors(lines, interval_s=run.job_class.tick_interval_s)
    figures.eta_error_median, figures.eta_error_p95 = median(errors), quantile(errors, 0.95)
    return figures


def truths_of(run: Drive) -> Truths:
    return Truths(run.lives, {job_id for job_id, job in run.sluice.rows.items() if job.state is State.DONE})


def series_of(run: Drive) -> list[dict[str, Any]]:
    """One entry per closed tick, for `report`; calls and refusals since the one before."""
    series: list[dict[str, Any]] = []
    truths, calls, refusals = truths_of(run), 0, 0
    for line, (calls_now, refusals_now) in zip(run.meter.lines, run.meter.marks, strict=True):
        learned_per_s = limit_change.learned_per_s(line)
        entry = {
            "t_s": (line.at_ms - START_MS) / 1000,
            "waiting_live": line.waiting.live,
            "waiting_recovery": line.waiting.recovery,
            "later": line.later,
            "behind": line.behind,
            "dead": line.dead,
            "in_flight": line.in_flight,
            "budget": line.budget,
            "admitted": line.admitted,
            "rate_per_s": round(line.rate_per_s * run.scenario.calls_per_job, 4),
            "learned_per_s": None if learned_per_s is None else round(learned_per_s, 4),
            "true_limit_per_s": run.truth.limit.at(line.at_ms),
            "refusals": refusals_now - refusals,
            "calls": calls_now - calls,
            "eta_said_s": None if line.eta_s is None else round(line.eta_s, 1),
            "eta_true_s": round(truths.remaining_s(line.at_ms), 1),
            "paused": line.paused,
            "staged": line.staged,
        }
        series.append(entry)
        calls, refusals = calls_now, refusals_now
    return series


@dataclass(slots=True, kw_only=True)
class Result:
    """`violations`: how often each invariant broke, `said`: the first few in words; `failed`: the scenario's
    expectations that do not hold."""

    figures: Figures
    violations: dict[str, int] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    series: list[dict[str, Any]] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.violations and not self.failed

    def judge(self, scenario: Scenario) -> None:
        values: Mapping[str, Any] = asdict(self.figures)
        for expectation in scenario.expect:
            value = values.get(expectation.figure)
            if not expectation.holds(value):
                shown = "nothing" if value is None else f"{value:g}"
                self.failed.append(f"{expectation}: got {shown}")

    def json(self, *, series: bool = False) -> dict[str, Any]:
        figures = {name: _rounded(value) for name, value in asdict(self.figures).items()}
        judged = {"violations": self.violations, "said": self.said, "failed": self.failed}
        return figures | judged | ({"series": self.series} if series else {})

    def text(self) -> str:
        """The same run gives the same bytes: `wall_s` is left out."""
        return json.dumps(self.json(series=True) | {"wall_s": None}, sort_keys=True)


def _rounded(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return round(value, 4) if abs(value) >= 0.01 else float(f"{value:.4g}")
