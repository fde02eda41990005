"""`simulate --seeds`: many seeds of a scenario, or of two classes on one upstream; the worst of them counts."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ops.commands.tables import aligned, cell
from ops.sim import scenario_file, shares
from ops.sim.figures import PACED
from ops.sim.seeds import SeedReport, run_seeds
from ops.sim.spread import Spread, spreads
from shared.errors import InvalidInput


def simulate_seeds(name: str, seeds: range, policies: Sequence[str], state: Path | None, *, as_json: bool) -> int:
    """The worst seed counts; a figure of each expectation of the scenario is shown, the policies side by side."""
    if state is not None and tuple(policies) != (PACED,):
        raise InvalidInput("--state", got="the option beside --policy", expected="one or the other")
    scenario = scenario_file.load(name)
    began_s = time.perf_counter()

    def told(report: SeedReport) -> None:
        click.echo(f"{len(report.done)} of {len(seeds)} seeds, {len(report.failed)} failed", err=True)

    reports = {each: run_seeds(scenario, seeds, policy=each, state=state, told=told) for each in policies}
    found = {each: spreads(scenario.expect, report.figures) for each, report in reports.items() if report.figures}
    failed = {(each, seed): said for each, report in reports.items() for seed, said in sorted(report.failed.items())}
    summary = {
        "scenario": scenario.name,
        "seed": seeds[0],
        "seeds": min(len(report.done) for report in reports.values()),
        "failed": sorted({seed for _, seed in failed}),
        "port_calls": sum(report.port_calls for report in reports.values()),
        "wall_s": round(time.perf_counter() - began_s, 3),
    }
    if as_json:
        click.echo(json.dumps(summary | {"policies": {each: _spread_json(spread) for each, spread in found.items()}}))
    else:
        calls = f"{summary['port_calls']:,} port calls, each a point of interleaving and of crash"
        click.echo(
            f"{scenario.name}: {summary['seeds']} seeds, {len(failed)} failed; {calls}; {summary['wall_s']:.1f} s"
        )
        if scenario.expect:
            click.echo(_spread_table(found))
    for (policy, seed), said in failed.items():
        click.echo(f"error: seed {seed}: {said}\nreplay: {command_of(name, seed, policy)}", err=True)
    return 1 if failed else 0


def simulate_shares(seeds: range, *, as_json: bool) -> int:
    found = {seed: shares.measure(seed) for seed in seeds}
    missed = [(seed, said) for seed, figures in found.items() for said in figures.missed]
    spread = spreads(shares.EXPECT, {seed: asdict(figures) for seed, figures in found.items()})
    failed = sorted({seed for seed, _ in missed})
    if as_json:
        summary = {"seed": seeds[0], "seeds": len(seeds), "failed": failed}
        click.echo(json.dumps(summary | {"figures": _spread_json(spread)}))
    else:
        said = " and ".join(f"{share:g}" for share in shares.SHARES.values())
        click.echo(f"shares of {said}: {len(seeds)} seeds, {len(failed)} failed")
        click.echo(_spread_table({"worst": spread}))
    for seed, said in missed:
        click.echo(f"error: seed {seed}: {said}\nreplay: python -m ops simulate --shares --seed {seed}", err=True)
    return 1 if missed else 0


def _spread_json(found: Sequence[Spread]) -> dict[str, Any]:
    return {each.expectation.figure: {"worst": each.worst, "seed": each.seed, "median": each.median} for each in found}


def _spread_table(found: Mapping[str, Sequence[Spread]]) -> str:
    rows = [("expected", *(part for policy in found for part in (policy, "seed", "median")))]
    for side_by_side in zip(*found.values(), strict=True):
        cells = [(cell(each.worst), str(each.seed), cell(each.median)) for each in side_by_side]
        rows.append((str(side_by_side[0].expectation), *(part for cell in cells for part in cell)))
    return aligned(rows)


def command_of(name: str, seed: int, policy: str = PACED) -> str:
    chosen = "" if policy == PACED else f" --policy {policy}"
    return f"python -m ops simulate --scenario {name} --seed {seed}{chosen}"
