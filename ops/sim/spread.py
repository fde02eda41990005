"""One figure over many seeds: the worst of them counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from ops.sim.measure import median
from ops.sim.scenario import Expectation


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """`worst` was measured at `seed`, as the expectation counts; None is a run in which the figure does not apply, or
    what was waited for never came, and counts as worse than any number. `median` is of those that have one."""

    expectation: Expectation
    worst: float | None
    seed: int
    median: float | None


def spreads(expect: tuple[Expectation, ...], figures: Mapping[int, Mapping[str, float | None]]) -> list[Spread]:
    """One for each expectation. `figures` maps a seed to its run's figures; there is at least one."""
    return [_spread(each, {seed: found[each.figure] for seed, found in sorted(figures.items())}) for each in expect]


def _spread(expectation: Expectation, values: Mapping[int, float | None]) -> Spread:
    seed = max(values, key=lambda each: _badness(expectation, values[each]))
    known = [value for value in values.values() if value is not None]
    return Spread(expectation=expectation, worst=values[seed], seed=seed, median=median(known))


def _badness(expectation: Expectation, value: float | None) -> float:
    if value is None:
        return inf
    distance = value - expectation.number
    return {"<=": distance, ">=": -distance, "==": abs(distance)}[expectation.compare]
