"""`simulate`: run scenarios, seeds, policies, the matrix and the crash sweep in the virtual world.

`simulate --seeds`: many seeds of a scenario, or of two classes on one upstream; the worst of them counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from msgspec import to_builtins

from ops.commands.out_file import check_out, write_out
from ops.simulator import scenario_file, shares
from ops.simulator.crash_sweep import SweepReport, sweep_once, sweep_pairs
from ops.simulator.drive import PACED
from ops.simulator.ledger_drive import ExportedClass, LedgerDrive
from ops.simulator.ledger_file import read_class
from ops.simulator.matrix import HEADINGS, row_of, run_matrix
from ops.simulator.policies import POLICIES, run_policy
from ops.simulator.result import Result
from ops.simulator.scenario import Scenario
from ops.simulator.seeds import SeedReport, Spread, run_seeds, spreads
from ops.wording import aligned, cell
from shared.errors import InvalidInput

_SHOWN: Final = (
    *("jobs", "done", "dead", "unfinished", "lost", "duplicate_effects", "redone_chunks", "over_budget_ticks"),
    *("order_violations", "attempts_burned_by_refusals", "upstream_calls", "refusals_per_1000", "utilisation", "ticks"),
    *("drain_s", "ideal_drain_s", "eta_error_median", "eta_error_p95", "live_wait_p95_s", "cost_per_job_usd", "wall_s"),
)

_SHOWN_OF_A_CHANGE: Final = ("refusals_per_1000_changing", "ticks_to_90_percent", "steady_rate_low", "steady_rate_high")
"""Where the true limit changes."""

_READS: Final[Mapping[str, frozenset[str]]] = {
    "listing": frozenset(),
    "matrix": frozenset({"seed", "out", "as_json"}),
    "sweep": frozenset({"as_json"}),
    "shares": frozenset({"seed", "seeds", "as_json"}),
    "seeds": frozenset({"name", "seed", "policy", "state", "as_json"}),
    "ledger": frozenset({"name", "job_class", "seed", "out", "as_json"}),
    "name": frozenset({"seed", "policy", "out", "as_json"}),
}
"""The options that choose what is run, the strongest first, and the others that each of them reads."""


@click.command(short_help="Prove or judge a policy in virtual time.")
@click.option("--scenario", "name", metavar="NAME|FILE", help="A scenario of Sluice's own, or a TOML file.")
@click.option(
    "--seed", type=click.IntRange(0, 2**31), default=1, show_default=True, help="The same seed, the same run."
)
@click.option("--seeds", type=click.IntRange(1, 10_000_000), help="So many seeds, from --seed on, over all processors.")
@click.option("--policy", type=click.Choice([*POLICIES, "all"]), default=POLICIES[0], show_default=True)
@click.option("--matrix", is_flag=True, help="Limiter x jitter x lateness x service tail, failures included.")
@click.option("--shares", is_flag=True, help="Two classes on one upstream, at shares of 0.7 and 0.3.")
@click.option("--sweep", type=click.Choice(["once", "pairs"]), help="Crash a small drain at every port call.")
@click.option("--ledger", metavar="FILE|-", help="Drain what `export` wrote, in the scenario's pool and troubles.")
@click.option("--class", "job_class", metavar="CLASS", help="With --ledger: which class of it, if it has several.")
@click.option("--state", type=click.Path(path_type=Path), help="With --seeds: remember here what is done, and go on.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the result with its ticks, for `report`.")
@click.option("--list", "listing", is_flag=True, help="Name the scenarios that come with Sluice.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.pass_context
def simulate(ctx: click.Context, /, *, name: str | None, as_json: bool, out: Path | None, **asked: Any) -> None:
    """Run the production code against simulated stores, queues, clocks and upstreams, checked after every event.

    The exit code is not 0 if an invariant broke or an expectation of the scenario does not hold.

    \b
    Examples
      python -m ops simulate --scenario outage-40k --seed 7 --json
      python -m ops simulate --scenario limit-drop --policy all
      python -m ops simulate --scenario limit-drop --seeds 20 --policy all
      python -m ops simulate --scenario mixed-faults --seeds 200
      python -m ops simulate --shares --seeds 20
      python -m ops simulate --matrix
      python -m ops simulate --sweep pairs
      python -m ops simulate --ledger ledger.jsonl --scenario mixed-faults
    """
    _refuse_idle(ctx)
    check_out(out)
    policies = POLICIES if asked["policy"] == "all" else (asked["policy"],)
    seeds = range(asked["seed"], asked["seed"] + (asked["seeds"] or 1))
    if asked["listing"]:
        click.echo("\n".join(f"{each:20} {scenario_file.load(each).about}" for each in scenario_file.names()))
    elif asked["matrix"]:
        ctx.exit(_matrix(asked["seed"], as_json=as_json, out=out))
    elif asked["shares"]:
        ctx.exit(simulate_shares(seeds, as_json=as_json))
    elif asked["sweep"]:
        ctx.exit(_sweep(asked["sweep"], as_json=as_json))
    elif name is None:
        known = ", ".join(scenario_file.names())
        raise InvalidInput("--scenario", got="nothing", expected=f"a file or one of {known}")
    elif asked["ledger"]:
        exported = read_class(asked["ledger"], ctx.obj.settings(), asked["job_class"])
        ctx.exit(_ledger(name, exported, asked["seed"], as_json=as_json, out=out))
    elif asked["seeds"]:
        ctx.exit(simulate_seeds(name, seeds, policies, asked["state"], as_json=as_json))
    else:
        ctx.exit(_policies(name, asked["seed"], policies, as_json=as_json, out=out))


def _refuse_idle(ctx: click.Context) -> None:
    """An option that the chosen mode does not read would be taken for one that was obeyed."""
    given = {
        each.name: each.opts[0]
        for each in ctx.command.params
        if each.name and ctx.get_parameter_source(each.name) is ParameterSource.COMMANDLINE
    }
    if ctx.params["policy"] == POLICIES[0]:
        given.pop("policy", None)  # what every mode runs
    mode = next((each for each in _READS if each in given), None)
    for name, option in given.items():
        if mode is not None and name != mode and name not in _READS[mode]:
            raise InvalidInput(option, got=f"the option beside {given[mode]}", expected="one or the other")


# -- one run, or one per policy


def _policies(name: str, seed: int, policies: Sequence[str], *, as_json: bool, out: Path | None) -> int:
    scenario = scenario_file.load(name)
    if not as_json:
        click.echo(f"{scenario.name}, seed {seed}: {scenario.about}", err=True)
    results = [_timed(scenario, seed, policy) for policy in policies]
    drawn = [result.json(series=True) for result in results]
    write_out(out, drawn[0] if len(drawn) == 1 else {"policies": drawn})
    if as_json:
        found = [result.json() for result in results]
        click.echo(json.dumps(found[0] if len(found) == 1 else {"policies": found}))
    else:
        click.echo(_table(results))
    return _judged(results, name, seed)


def _timed(scenario: Scenario, seed: int, policy: str) -> Result:
    began_s = time.perf_counter()
    result = run_policy(scenario, seed, policy)
    result.figures.wall_s = round(time.perf_counter() - began_s, 3)
    return result


def _judged(results: Iterable[Result], name: str, seed: int) -> int:
    """The others' policies are for comparison: only what is asked of ours can fail."""
    failed = [result for result in results if not result.passed]
    for result in failed:
        for line in (*result.said, *(f"expected {said}" for said in result.failed)):
            click.echo(f"error: {line}", err=True)
    if failed:
        click.echo(f"replay: {command_of(name, seed, failed[0].figures.policy)}", err=True)
    return 1 if failed else 0


def _table(results: Sequence[Result]) -> str:
    found = [result.json() for result in results]
    lines = [("", *(each["policy"] for each in found))]
    changing = [name for name in _SHOWN_OF_A_CHANGE if any(each[name] is not None for each in found)]
    lines += [(name, *(cell(each[name]) for each in found)) for name in (*_SHOWN, *changing)]
    return aligned(lines)


def _ledger(name: str, exported: ExportedClass, seed: int, *, as_json: bool, out: Path | None) -> int:
    """One run; what the scenario expects is said of its own jobs, and not asked of others."""
    scenario, began_s = scenario_file.load(name), time.perf_counter()
    run = LedgerDrive(scenario, exported, seed)
    run.run()
    result = run.finish()
    result.figures.wall_s = round(time.perf_counter() - began_s, 3)
    write_out(out, result.json(series=True))
    click.echo(json.dumps(result.json()) if as_json else _table([result]))
    for line in result.said:
        click.echo(f"error: {line}", err=True)
    return 0 if result.passed else 1


# -- many runs


def _matrix(seed: int, *, as_json: bool, out: Path | None) -> int:
    """The whole table is published; its exit code speaks of the invariants only."""
    rows: list[tuple[str, ...]] = [(*HEADINGS, "misses")]
    found, broken = [], 0
    for combination, result in run_matrix(seed):
        misses = ", ".join(said.partition(" ")[0] for said in result.failed)
        rows.append((*row_of(combination, result), misses or "-"))
        found.append(result.json())
        broken += bool(result.violations)
    write_out(out, {"cells": found})
    click.echo(json.dumps({"seed": seed, "cells": found}) if as_json else aligned(rows))
    return 1 if broken else 0


def _sweep(kind: str, *, as_json: bool) -> int:
    began_s = time.perf_counter()
    report: SweepReport = sweep_once() if kind == "once" else sweep_pairs()
    failures = report.failures or []
    wall_s = round(time.perf_counter() - began_s, 3)
    if as_json:
        found = {"sweep": kind, "points": report.points, "runs": report.runs, "failed": failures, "wall_s": wall_s}
        click.echo(json.dumps(found))
    else:
        click.echo(f"{report.points} crash points, {report.runs} runs, {len(failures)} failed; {wall_s:.1f} s")
    for failure in failures:
        click.echo(f"error: {failure}", err=True)
    return 1 if failures else 0


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
    spread = spreads(shares.EXPECT, {seed: to_builtins(figures) for seed, figures in found.items()})
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
