"""Many seeds of one scenario, over all processors: of each figure the worst seed counts.

What was done is remembered in a file, so that an interrupted run goes on where it was.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from ops.simulator.drive import Drive
from ops.simulator.measure import median
from ops.simulator.policies import run_policy
from ops.simulator.result import Result
from ops.simulator.run import PACED
from ops.simulator.scenario import Expectation, Scenario

_ROOT: Final = Path(__file__).resolve().parent.parent.parent

_SAVE_EVERY: Final = 50
"""After so many seeds the state is saved, and the progress told."""

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


class SeedReport(Struct, frozen=True, kw_only=True):
    """The seeds so far, of one version of the code and the scenario: it is also what the state file holds."""

    fingerprint: str
    results: dict[int, SeedResult] = {}

    @property
    def port_calls(self) -> int:
        return sum(result.port_calls for result in self.results.values())

    @property
    def failed(self) -> dict[int, str]:
        """Seed -> what broke first."""
        return {seed: result.said[0] for seed, result in sorted(self.results.items()) if result.said}

    @property
    def figures(self) -> dict[int, dict[str, float | None]]:
        return {seed: result.figures for seed, result in self.results.items() if result.figures}


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
    report = _load(state, fingerprint(scenario))
    left = [seed for seed in seeds if seed not in report.results]
    one = partial(run_seed, scenario) if policy == PACED else partial(_run_other, scenario, policy)
    for number, result in enumerate(_results(one, left, processes or os.cpu_count() or 1), 1):
        report.results[result.seed] = result
        if number % _SAVE_EVERY == 0:
            _save(state, report)
            told(report)
    _save(state, report)
    return report


def _results(one: Callable[[int], SeedResult], seeds: Sequence[int], processes: int) -> Iterator[SeedResult]:
    if processes == 1 or len(seeds) < 2:
        yield from map(one, seeds)
        return
    # Not forked: a greenlet hub and an inherited heap have no business in a child.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(one, seeds, chunksize=1 if len(seeds) <= _FEW else 8)


def run_seed(scenario: Scenario, seed: int) -> SeedResult:
    """A seed that breaks something stops there; one that raises has found a fault too."""
    drive = Drive(scenario, seed, stop_at_once=True)
    try:
        drive.run()
    except Exception as error:  # noqa: BLE001 - whatever it is, the seed is what the reader needs
        said: tuple[str, ...] = (f"{type(error).__name__}: {error}",)
        return SeedResult(seed=seed, said=said, port_calls=drive.world.calls)
    result = drive.finish()
    missed = (f"expected {expectation}" for expectation in result.failed)
    said = (*result.said, *sorted(set(_raised(drive))), *missed)
    return SeedResult(seed=seed, said=said, port_calls=drive.world.calls, figures=_expected(scenario, result))


def _run_other(scenario: Scenario, policy: str, seed: int) -> SeedResult:
    """Another policy on the same seed, to compare: it fails where it breaks an invariant, which is ours to keep."""
    result = run_policy(scenario, seed, policy)
    return SeedResult(seed=seed, said=tuple(result.said), port_calls=0, figures=_expected(scenario, result))


def _expected(scenario: Scenario, result: Result) -> dict[str, float | None]:
    return {expectation.figure: getattr(result.figures, expectation.figure) for expectation in scenario.expect}


def _raised(drive: Drive) -> Iterator[str]:
    """What an invocation may raise is the declared unavailability of a port, and nothing else."""
    for error in drive.sluice.errors:
        if type(error).__module__ != "shared.errors":
            yield f"an invocation raised {type(error).__name__}: {error}"


# -- the worst of them


class Spread(Struct, frozen=True, kw_only=True):
    """`worst` was measured at `seed`, as the expectation counts; None is a run in which the figure does not apply, or
    what was waited for never came, and counts as worse than any number. `median` is of those that have one."""

    expectation: Expectation
    worst: float | None
    seed: int
    median: float | None


def spreads(expect: Sequence[Expectation], figures: Mapping[int, Mapping[str, float | None]]) -> list[Spread]:
    """One for each expectation. `figures` maps a seed to its run's figures; there is at least one."""
    return [
        _spread(expectation, {seed: figures[seed][expectation.figure] for seed in sorted(figures)})
        for expectation in expect
    ]


def _spread(expectation: Expectation, values: Mapping[int, float | None]) -> Spread:
    worst = max(values, key=lambda seed: _badness(expectation, values[seed]))
    known = [value for value in values.values() if value is not None]
    return Spread(expectation=expectation, worst=values[worst], seed=worst, median=median(known))


def _badness(expectation: Expectation, value: float | None) -> float:
    if value is None:
        return inf
    distance = value - expectation.number
    return {"<=": distance, ">=": -distance, "==": abs(distance)}[expectation.compare]


# -- the state file


def fingerprint(scenario: Scenario) -> str:
    """Of the scenario and of all code that a seed runs: what another version did says nothing of this one."""
    digest = hashlib.sha256(repr(scenario).encode())
    for folder in ("shared", "ops/simulator"):
        for path in sorted((_ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _load(state: Path | None, now: str) -> SeedReport:
    if state is not None:
        try:
            report = msgspec.json.decode(state.read_bytes(), type=SeedReport)
        except (OSError, msgspec.DecodeError):
            pass  # no state, or a broken one: begin anew
        else:
            if report.fingerprint == now:
                return report
    return SeedReport(fingerprint=now)


def _save(state: Path | None, report: SeedReport) -> None:
    """Beside itself first: a run that is interrupted here must not leave half a file."""
    if state is not None:
        state.parent.mkdir(parents=True, exist_ok=True)
        draft = state.with_suffix(".draft")
        draft.write_bytes(msgspec.json.encode(report))
        draft.replace(state)
