"""The result of a run: the stable keys of DESIGN section 10, what the checkers found, and the series of its ticks."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from ops.sim.scenario import Scenario

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
