"""The policies side by side: the same arrivals and limiter, and figures that can be compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from ops.cli import main
from ops.simulator.matrix import HEADINGS, JITTERS_MS, LATE_MS, TAILS, cells, row_of
from ops.simulator.policies import POLICIES, run_policy
from ops.simulator.result import STABLE, Figures, Result
from ops.simulator.scenario_file import parse
from ops.simulator.upstream import LimiterKind

SMALL = parse(
    """
about = "too much at once"
[class]
slots = 20
function_timeout_s = 30
[upstream]
limit_per_s = 5.0
[truth]
burst_calls = 10
[work]
chunk_ms = [1500, 2500]
[trouble]
kills_per_minute = 6
[[jobs]]
count = 400
chunks = 3
jobs_per_match = 2
age_s = 600
""",
    path=Path("small.toml"),
)


def test_what_a_pacer_saves_shows_in_the_figures() -> None:
    paced, halving, everything, fixed = (run_policy(SMALL, 3, policy).figures for policy in POLICIES)
    assert (paced.policy, halving.policy, everything.policy, fixed.policy) == POLICIES
    assert replace(halving, policy="paced") == paced  # nothing was refused, so nothing was learned
    assert paced.jobs == everything.jobs == fixed.jobs == paced.done == 400
    assert (paced.refusals, paced.redone_chunks, paced.duplicate_effects) == (0, 0, 0)
    assert everything.refusals_per_1000 > 100
    assert 0 <= everything.refusals - everything.attempts_burned_by_refusals < 10  # killed before it was told
    assert fixed.redone_chunks > 0  # a killed job without a cursor starts anew
    assert everything.redone_chunks > 0


def test_the_same_policy_and_seed_give_the_same_figures() -> None:
    for policy in POLICIES[1:]:
        assert run_policy(SMALL, 3, policy).text() == run_policy(SMALL, 3, policy).text()


def test_all_policies_are_printed_side_by_side() -> None:
    ran = CliRunner().invoke(main, ["simulate", "--scenario", "tiny-rate", "--policy", "all"])
    assert ran.exit_code == 0
    assert ran.stdout.splitlines()[0].split() == list(POLICIES)
    as_json = CliRunner().invoke(main, ["simulate", "--scenario", "tiny-rate", "--policy", "all", "--json"])
    found = json.loads(as_json.stdout)["policies"]
    assert [each["policy"] for each in found] == list(POLICIES)
    assert all(each.keys() >= set(STABLE) for each in found)


def test_the_matrix_is_the_whole_product_and_its_strictest_cell_is_in_it() -> None:
    assert len(cells()) == len(LimiterKind) * len(JITTERS_MS) * len(LATE_MS) * len(TAILS)
    strictest = [cell for cell in cells() if cell.limiter is LimiterKind.SLIDING_WINDOW and cell.jitter_ms == 200]
    assert strictest
    truth = strictest[0].scenario.upstream_truth
    assert (truth.window_ms, truth.bucket_calls) == (1000, None)


def test_a_cell_that_has_no_figure_shows_a_dash() -> None:
    row = row_of(cells()[0], Result(figures=Figures(scenario="cell", seed=1, policy="paced")))
    assert len(row) == len(HEADINGS)
    assert row[4] == "-"
