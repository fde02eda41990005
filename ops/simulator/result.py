"""What a run of the world amounts to, and which invariants it broke.

The result of a run: the stable keys (protocol: the figures), what the checkers found, and the series of its ticks.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from msgspec import Struct

from ops.simulator.kinds import ChunkStart
from ops.simulator.scenario import Scenario
from ops.simulator.upstream import SimUpstream
from ops.simulator.world import Outcome, World
from shared.domain.control import RunState
from shared.domain.job import State
from shared.memory.ledger import MemoryLedger, Step


class Report(Struct, frozen=True, kw_only=True):
    """Every figure is a function of the settings, the seed and the faults: two runs of one seed are equal."""

    seed: int
    jobs: int
    done: int
    dead: int
    open: int
    duplicate_effects: int
    redone_chunks: int
    over_budget_ticks: int
    max_in_flight: int
    upstream_calls: int
    refusals: int
    ticks: int
    port_calls: int
    crashes: int
    timeouts: int
    errors: int
    drain_s: float | None
    writes: dict[str, int]


def report_of(
    *, world: World, begun_ms: int, ledger: MemoryLedger, upstream: SimUpstream, starts: Sequence[ChunkStart]
) -> Report:
    outcomes = Counter(invocation.outcome for invocation in world.invocations)
    ended_ms = ledger.steps[-1].at_ms if ledger.steps and ledger.open_rows == 0 else None
    return Report(
        seed=world.seed,
        jobs=len(ledger.rows),
        done=ledger.states[State.DONE],
        dead=ledger.states[State.DEAD],
        open=ledger.open_rows,
        duplicate_effects=sum(count - 1 for count in upstream.effects.values()),
        redone_chunks=redone_chunks(ledger.steps, starts),
        over_budget_ticks=_over_budget(ledger),
        max_in_flight=_max_in_flight(ledger.steps),
        upstream_calls=len(upstream.calls),
        refusals=upstream.refusals,
        ticks=sum(bool(run.owner) and run.state in (RunState.CLOSED, RunState.SKIPPED) for run in ledger.runs),
        port_calls=world.calls,
        crashes=outcomes[Outcome.CRASHED],
        timeouts=outcomes[Outcome.TIMED_OUT],
        errors=outcomes[Outcome.RAISED],
        drain_s=None if ended_ms is None else (ended_ms - begun_ms) / 1000,
        writes=dict(sorted(ledger.writes.items())),
    )


def redone_chunks(steps: Iterable[Step], starts: Iterable[ChunkStart]) -> int:
    """I4: chunks that were begun after their commit. A twin that had read the row before it counts too, so zero is
    required only of runs without duplicate deliveries and stalls."""
    committed_ms: dict[tuple[str, str], int] = {}
    for step in steps:
        if step.after.cursor != step.before.cursor or step.after.state is State.DONE:
            committed_ms.setdefault((step.before.job_id, step.before.cursor), step.at_ms)
    return sum(start.at_ms > committed_ms.get((start.job_id, start.cursor), start.at_ms) for start in starts)


def _over_budget(ledger: MemoryLedger) -> int:
    """I1: runs that admitted more, by claims of whatever number of invocations and by allowance, than was planned."""
    claims = Counter(step.after.run_id for step in ledger.steps if step.name in ("claim", "admit"))
    budgets = {run.key.run_id: run.budget for run in ledger.runs}
    return sum(count > budgets.get(run_id, 0) for run_id, count in claims.items())


def _max_in_flight(steps: Iterable[Step]) -> int:
    now = most = 0
    for step in steps:
        now += (step.after.state is State.QUEUED) - (step.before.state is State.QUEUED)
        most = max(most, now)
    return most


STABLE: Final = (
    *("seed", "policy", "jobs", "done", "dead", "lost", "duplicate_effects", "redone_chunks", "over_budget_ticks"),
    *("order_violations", "upstream_calls", "refusals", "refusals_per_1000", "refusals_per_1000_worst", "utilisation"),
    *("ticks", "drain_s", "ideal_drain_s", "eta_error_median", "eta_error_p95", "live_wait_p95_s"),
    *("attempts_burned_by_refusals", "cost_per_job_usd", "wall_s"),
)


@dataclass(slots=True, kw_only=True)
class Figures:
    """Every figure is a function of the scenario, the policy and the seed, `wall_s` excepted. None: does not apply.

    `drain_ratio` is the drain less the two ticks that it waits, for its first one and for its last rows, over the
    ideal. How the rate follows a limit that changes is in `limit_change`. `*_at_word` count the rows that were left
    when an operator began to repair: dead ones, those that a dead one holds, and those that nothing holds.
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


FIGURES: Final = tuple(each.name for each in fields(Figures) if each.type != "str")
"""The numbers among them: what a scenario may expect something of."""


@dataclass(slots=True, kw_only=True)
class Result:
    """`violations`: how often each invariant broke; `failed`: the scenario's expectations that do not hold."""

    figures: Figures
    violations: dict[str, int] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    series: list[dict[str, Any]] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.violations and not self.failed

    def judge(self, scenario: Scenario) -> None:
        values = asdict(self.figures)
        for expectation in scenario.expect:
            value = values.get(expectation.figure)
            if not expectation.holds(value):
                shown = "nothing" if value is None else f"{value:g}"
                self.failed.append(f"{expectation}: got {shown}")

    def json(self, *, series: bool = False) -> dict[str, Any]:
        figures = {name: _rounded(value) for name, value in asdict(self.figures).items()}
        found: dict[str, Any] = figures | {"violations": self.violations, "said": self.said, "failed": self.failed}
        return found | ({"series": self.series} if series else {})

    def text(self) -> str:
        """The same run gives the same bytes: `wall_s` is left out."""
        found = self.json(series=True)
        del found["wall_s"]
        return json.dumps(found, sort_keys=True)


def _rounded(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return round(value, 4) if abs(value) >= 0.01 else float(f"{value:.4g}")
