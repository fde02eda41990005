"""One figure over many seeds: the worst of them counts.

Many seeds of one scenario, over processes; what was done is remembered, so that an interrupted run goes on.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from ops.simulator.drive import PACED, Drive, result_of
from ops.simulator.measure import median
from ops.simulator.policies import run_policy
from ops.simulator.result import Result
from ops.simulator.scenario import Expectation, Scenario


class Spread(Struct, frozen=True, kw_only=True):
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


_ROOT: Final = Path(__file__).resolve().parent.parent.parent

_SAVE_EVERY: Final = 50

_FEW: Final = 200
"""So many seeds are dealt out one by one: a run may take half a minute, and no processor should wait for another."""


class SeedResult(Struct, frozen=True, kw_only=True):
    """One seed: what broke, in words, how many port calls were judged, and the figures that something is expected of.

    A run that raised has no figures.
    """

    seed: int
    said: tuple[str, ...]
    port_calls: int
    figures: dict[str, float | None] = {}


@dataclass(slots=True, kw_only=True)
class SeedReport:
    """All seeds so far; `failed` maps a seed to what broke first, `figures` to what it came to."""

    first: int
    done: set[int] = field(default_factory=set)
    port_calls: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    figures: dict[int, dict[str, float | None]] = field(default_factory=dict)

    def add(self, result: SeedResult) -> None:
        self.done.add(result.seed)
        self.port_calls += result.port_calls
        if result.said:
            self.failed[result.seed] = result.said[0]
        if result.figures:
            self.figures[result.seed] = result.figures


def run_seed(scenario: Scenario, seed: int) -> SeedResult:
    """A seed that breaks something stops there; one that raises has found a fault too."""
    drive, figures = Drive(scenario, seed, stop_at_once=True), {}
    try:
        drive.run()
    except Exception as error:  # noqa: BLE001 - whatever it is, the seed is what the reader needs
        said: tuple[str, ...] = (f"{type(error).__name__}: {error}",)
    else:
        result = result_of(drive)
        missed = (f"expected {each}" for each in result.failed)
        said, figures = (*result.said, *sorted(set(_raised(drive))), *missed), _expected(scenario, result)
    return SeedResult(seed=seed, said=said, port_calls=drive.sluice.world.calls, figures=figures)


def run_other(scenario: Scenario, policy: str, seed: int) -> SeedResult:
    """Another policy on the same seed, to compare: it fails where it breaks an invariant, which is ours to keep."""
    result = run_policy(scenario, seed, policy)
    return SeedResult(seed=seed, said=tuple(result.said), port_calls=0, figures=_expected(scenario, result))


def _expected(scenario: Scenario, result: Result) -> dict[str, float | None]:
    return {each.figure: getattr(result.figures, each.figure) for each in scenario.expect}


def _raised(drive: Drive) -> Iterator[str]:
    """What an invocation may raise is the declared unavailability of a port, and nothing else."""
    for error in drive.sluice.errors:
        if type(error).__module__ != "shared.errors":
            yield f"an invocation raised {type(error).__name__}: {error}"


def run_seeds(
    scenario: Scenario,
    seeds: Sequence[int],
    *,
    policy: str = PACED,
    state: Path | None = None,
    processes: int | None = None,
    told: Callable[[SeedReport], None] = lambda _: None,
) -> SeedReport:
    """Every seed that the state file, which is of our own policy, does not know of. `told` hears of the progress."""
    report = _load(state, scenario, first=seeds[0])
    left = [seed for seed in seeds if seed not in report.done]
    one = partial(run_seed, scenario) if policy == PACED else partial(run_other, scenario, policy)
    for number, result in enumerate(_results(one, left, processes or os.cpu_count() or 1), 1):
        report.add(result)
        if number % _SAVE_EVERY == 0:
            _save(state, scenario, report)
            told(report)
    _save(state, scenario, report)
    return report


def _results(one: Callable[[int], SeedResult], seeds: Sequence[int], processes: int) -> Iterator[SeedResult]:
    if processes == 1 or len(seeds) < 2:
        yield from map(one, seeds)
        return
    # Not forked: a greenlet hub and an inherited heap have no business in a child.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(one, seeds, chunksize=1 if len(seeds) <= _FEW else 8)


# -- the state file


def fingerprint(scenario: Scenario) -> str:
    """Of the scenario and of all code that a seed runs: what another version did says nothing of this one."""
    digest = hashlib.sha256(repr(scenario).encode())
    for folder in ("shared", "ops/simulator"):
        for path in sorted((_ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _load(state: Path | None, scenario: Scenario, *, first: int) -> SeedReport:
    report = SeedReport(first=first)
    try:
        found: dict[str, Any] = json.loads((state or Path()).read_text(encoding="utf-8"))
        if found["fingerprint"] == fingerprint(scenario):
            report.done = {seed for low, high in found["done"] for seed in range(low, high + 1)}
            report.port_calls = int(found["port_calls"])
            report.failed = {int(seed): str(said) for seed, said in found["failed"].items()}
            report.figures = {int(seed): dict(figures) for seed, figures in found["figures"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return SeedReport(first=first)  # no state, or a broken one: begin anew
    return report


def _save(state: Path | None, scenario: Scenario, report: SeedReport) -> None:
    """Beside itself first: a run that is interrupted here must not leave half a file."""
    if state is None:
        return
    found = {
        "fingerprint": fingerprint(scenario),
        "done": _spans(report.done),
        "port_calls": report.port_calls,
        "failed": report.failed,
        "figures": report.figures,
    }
    state.parent.mkdir(parents=True, exist_ok=True)
    draft = state.with_suffix(".draft")
    draft.write_text(json.dumps(found), encoding="utf-8")
    draft.replace(state)


def _spans(seeds: set[int]) -> list[list[int]]:
    spans: list[list[int]] = []
    for seed in sorted(seeds):
        if spans and spans[-1][1] == seed - 1:
            spans[-1][1] = seed
        else:
            spans.append([seed, seed])
    return spans
