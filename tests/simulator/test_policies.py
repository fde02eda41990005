"""The policies side by side: the same arrivals and limiter, and figures that can be compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from ops.cli import main
from ops.simulator.policies import POLICIES, run_policy
from ops.simulator.result import STABLE
from ops.simulator.scenario import parse_scenario

SMALL = parse_scenario(
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
    results = json.loads(as_json.stdout)["policies"]
    assert [result["policy"] for result in results] == list(POLICIES)
    assert all(result.keys() >= set(STABLE) for result in results)
