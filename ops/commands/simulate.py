"""`simulate`: run scenarios, policies, many seeds and the crash sweep in the virtual world."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from ops.commands.options import check_out, write_out
from ops.simulator.crash_sweep import sweep_once, sweep_pairs
from ops.simulator.ledger_drive import ExportedClass, LedgerDrive
from ops.simulator.ledger_file import read_class
from ops.simulator.policies import POLICIES, run_policy
from ops.simulator.result import Result
from ops.simulator.run import PACED
from ops.simulator.scenario import load_scenario, scenario_names
from ops.simulator.seeds import SeedReport, Spread, run_seeds, spreads
from ops.wording import aligned, cell
from shared.errors import InvalidInput

_SHOWN: Final = (
    *("jobs", "done", "dead", "unfinished", "lost", "duplicate_effects", "redone_chunks", "over_budget_ticks"),
    *("order_violations", "attempts_burned_by_refusals", "upstream_calls", "refusals_per_1000", "utilisation", "ticks"),
    *("drain_s", "ideal_drain_s", "eta_error_median", "eta_error_p95", "live_wait_p95_s", "cost_per_job_usd", "wall_s"),
)
"""The figures that a person is shown; `--json` has them all."""

_SHOWN_OF_A_CHANGE: Final = ("refusals_per_1000_changing", "ticks_to_90_percent", "steady_rate_low", "steady_rate_high")
"""And these where the true limit changes."""

_READS: Final[Mapping[str, frozenset[str]]] = {
    "listing": frozenset(),
    "sweep": frozenset({"as_json"}),
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
      python -m ops simulate --sweep pairs
      python -m ops simulate --ledger ledger.jsonl --scenario mixed-faults
    """
    _refuse_idle(ctx)
    check_out(out)
    policies = POLICIES if asked["policy"] == "all" else (asked["policy"],)
    if asked["listing"]:
        click.echo("\n".join(f"{known:20} {load_scenario(known).about}" for known in scenario_names()))
    elif asked["sweep"]:
        ctx.exit(_sweep(asked["sweep"], as_json=as_json))
    elif name is None:
        known = ", ".join(scenario_names())
        raise InvalidInput("--scenario", got="nothing", expected=f"a file or one of {known}")
    elif asked["ledger"]:
        exported = read_class(asked["ledger"], ctx.obj.settings(), asked["job_class"])
        ctx.exit(_ledger(name, exported, asked["seed"], as_json=as_json, out=out))
    elif asked["seeds"]:
        seeds = range(asked["seed"], asked["seed"] + asked["seeds"])
        ctx.exit(_seeds(name, seeds, policies, asked["state"], as_json=as_json))
    else:
        ctx.exit(_policies(name, asked["seed"], policies, as_json=as_json, out=out))


def _refuse_idle(ctx: click.Context) -> None:
    """An option that the chosen mode does not read would be taken for one that was obeyed."""
    given = {
        option.name: option.opts[0]
        for option in ctx.command.params
        if option.name and ctx.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    }
    if ctx.params["policy"] == POLICIES[0]:
        given.pop("policy", None)  # what every mode runs
    mode = next((mode for mode in _READS if mode in given), None)
    for name, option in given.items():
        if mode is not None and name != mode and name not in _READS[mode]:
            raise InvalidInput(option, got=f"the option beside {given[mode]}", expected="one or the other")


# -- one run, or one per policy


def _policies(name: str, seed: int, policies: Sequence[str], *, as_json: bool, out: Path | None) -> int:
    scenario = load_scenario(name)
    if not as_json:
        click.echo(f"{scenario.name}, seed {seed}: {scenario.about}", err=True)
    results = []
    for policy in policies:
        began_s = time.perf_counter()
        results.append(run_policy(scenario, seed, policy))
        results[-1].figures.wall_s = round(time.perf_counter() - began_s, 3)
    _show(results, as_json=as_json, out=out)
    # The others' policies are for comparison: only what is asked of ours can fail.
    failed = [result for result in results if not result.passed]
    _complain(failed)
    if failed:
        click.echo(f"replay: {_command_of(name, seed, failed[0].figures.policy)}", err=True)
    return 1 if failed else 0


def _ledger(name: str, exported: ExportedClass, seed: int, *, as_json: bool, out: Path | None) -> int:
    """One run; what the scenario expects is said of its own jobs, and not asked of others."""
    scenario, began_s = load_scenario(name), time.perf_counter()
    run = LedgerDrive(scenario, exported, seed)
    run.run()
    result = run.finish()
    result.figures.wall_s = round(time.perf_counter() - began_s, 3)
    _show([result], as_json=as_json, out=out)
    _complain([result])
    return 0 if result.passed else 1


def _show(results: Sequence[Result], *, as_json: bool, out: Path | None) -> None:
    def document(*, series: bool) -> dict[str, Any]:
        plain = [result.json(series=series) for result in results]
        return plain[0] if len(plain) == 1 else {"policies": plain}

    write_out(out, document(series=True))
    click.echo(json.dumps(document(series=False)) if as_json else _table(results))


def _table(results: Sequence[Result]) -> str:
    columns = [result.json() for result in results]
    changing = [name for name in _SHOWN_OF_A_CHANGE if any(column[name] is not None for column in columns)]
    rows = [(name, *(cell(column[name]) for column in columns)) for name in (*_SHOWN, *changing)]
    return aligned([("", *(column["policy"] for column in columns)), *rows])


def _complain(results: Iterable[Result]) -> None:
    for result in results:
        for sentence in (*result.said, *(f"expected {missed}" for missed in result.failed)):
            click.echo(f"error: {sentence}", err=True)


# -- many runs


def _sweep(kind: str, *, as_json: bool) -> int:
    began_s = time.perf_counter()
    report = sweep_once() if kind == "once" else sweep_pairs()
    points, runs, failed, wall_s = report.points, report.runs, report.failures, time.perf_counter() - began_s
    if as_json:
        summary = {"sweep": kind, "points": points, "runs": runs, "failed": failed, "wall_s": round(wall_s, 3)}
        click.echo(json.dumps(summary))
    else:
        click.echo(f"{points} crash points, {runs} runs, {len(failed)} failed; {wall_s:.1f} s")
    for failure in failed:
        click.echo(f"error: {failure}", err=True)
    return 1 if failed else 0


def _seeds(name: str, seeds: range, policies: Sequence[str], state: Path | None, *, as_json: bool) -> int:
    """The worst seed counts; a figure of each expectation of the scenario is shown, the policies side by side."""
    if state is not None and tuple(policies) != (PACED,):
        raise InvalidInput("--state", got="the option beside --policy", expected="one or the other")
    scenario = load_scenario(name)
    began_s = time.perf_counter()

    def told(report: SeedReport) -> None:
        click.echo(f"{len(report.results)} of {len(seeds)} seeds, {len(report.failed)} failed", err=True)

    reports = {policy: run_seeds(scenario, seeds, policy=policy, state=state, told=told) for policy in policies}
    spread = {policy: spreads(scenario.expect, run.figures) for policy, run in reports.items() if run.figures}
    failed = [(policy, seed, said) for policy, report in reports.items() for seed, said in report.failed.items()]
    summary = {
        "scenario": scenario.name,
        "seed": seeds[0],
        "seeds": min(len(report.results) for report in reports.values()),
        "failed": sorted({seed for _, seed, _ in failed}),
        "port_calls": sum(report.port_calls for report in reports.values()),
        "wall_s": round(time.perf_counter() - began_s, 3),
    }
    if as_json:
        click.echo(json.dumps(summary | {"policies": {policy: _spread_json(of) for policy, of in spread.items()}}))
    else:
        calls = f"{summary['port_calls']:,} port calls, each a point of interleaving and of crash"
        click.echo(
            f"{scenario.name}: {summary['seeds']} seeds, {len(failed)} failed; {calls}; {summary['wall_s']:.1f} s"
        )
        if scenario.expect:
            click.echo(_spread_table(spread))
    for policy, seed, said in failed:
        click.echo(f"error: seed {seed}: {said}\nreplay: {_command_of(name, seed, policy)}", err=True)
    return 1 if failed else 0


def _spread_json(spread: Sequence[Spread]) -> dict[str, Any]:
    return {of.expectation.figure: {"worst": of.worst, "seed": of.seed, "median": of.median} for of in spread}


def _spread_table(spread: Mapping[str, Sequence[Spread]]) -> str:
    rows = [("expected", *(heading for policy in spread for heading in (policy, "seed", "median")))]
    for side_by_side in zip(*spread.values(), strict=True):
        cells = [text for of in side_by_side for text in (cell(of.worst), str(of.seed), cell(of.median))]
        rows.append((str(side_by_side[0].expectation), *cells))
    return aligned(rows)


def _command_of(name: str, seed: int, policy: str) -> str:
    chosen = "" if policy == PACED else f" --policy {policy}"
    return f"python -m ops simulate --scenario {name} --seed {seed}{chosen}"
