"""Scenario files: their format, their faults in one line, their runs byte for byte, and the base assertions."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from ops.cli import main
from ops.simulator.drive import Drive
from ops.simulator.faults import CrashOn, When
from ops.simulator.policies import run_policy
from ops.simulator.result import STABLE, Result
from ops.simulator.scenario import Scenario, Source, load_scenario, parse_scenario, scenario_names
from ops.simulator.sluice_world import SimSluice
from shared.domain.job import NewJob
from shared.domain.settings import ClassSettings, Settings, UpstreamSettings
from shared.errors import ConfigError

NAMES = scenario_names()
THE_ELEVEN = {
    *("outage-40k", "planning-2400", "limit-drop", "kill-storm", "live-saturation", "tiny-rate"),
    *("poison-match", "double-tick", "missed-ticks", "long-jobs", "deep-matches"),
}
OF_SOME = {
    *("refusals_per_1000_changing", "ticks_to_90_percent", "steady_rate_low", "steady_rate_high"),
    *("unfinished", "drain_ratio", "dead_at_word", "held_at_word", "free_at_word"),
}
"""Figures beyond the stable ones that some scenarios expect something of."""

GOOD = """
about = "a test"
[upstream]
limit_per_s = 10.0
[[jobs]]
count = 5
"""


# -- the two base assertions, without a broker, in well under a second


def test_no_tick_admits_more_than_its_budget_and_a_killed_worker_resumes_at_the_stored_cursor() -> None:
    settings = Settings(
        upstreams={"api": UpstreamSettings(name="api", endpoint="http://api", limit_per_s=2.0)},
        classes={"work": ClassSettings(name="work", kind="sim", upstream="api", slots=8, declared_calls_per_job=3.0)},
    )
    # The 50th call that reaches the upstream is never answered: its worker dies in the middle of a chunk.
    sluice = SimSluice(settings, seed=7, crash=CrashOn("upstream.call", 50, When.AFTER))
    sluice.submit(
        [NewJob(job_id=f"j{n}", job_class="work", match_id=f"m{n}", payload='{"chunks": 3}') for n in range(60)]
    )
    assert sluice.drain(max_ms=3_600_000)
    report = sluice.report()
    claims = [step.after.run_id for step in sluice.ledger.steps if step.name == "claim"]
    for run in sluice.ledger.runs:
        assert claims.count(run.key.run_id) <= run.budget <= 40  # 2 calls/s, 3 calls a job, 60 s
    assert (report.crashes, report.done, report.duplicate_effects, report.redone_chunks) == (1, 60, 0, 0)
    assert all(len(sluice.ledger.outputs(job_id)) == 3 for job_id in sluice.rows)


# -- the scenarios that come with Sluice


def test_the_eleven_are_there() -> None:
    assert set(NAMES) >= THE_ELEVEN


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_scenario_is_valid_and_expects_only_figures_that_there_are(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.settings.classes["work"].declared_service_s > 0
    assert {expectation.figure for expectation in scenario.expect} <= {*STABLE, *OF_SOME}


@cache
def result(name: str, seed: int = 7) -> Result:
    return run_policy(load_scenario(name), seed)


@pytest.mark.parametrize("name", ["tiny-rate", "poison-match"])
def test_a_small_scenario_holds_what_it_expects(name: str) -> None:
    outcome = result(name)
    assert outcome.passed, (outcome.said, outcome.failed)
    assert outcome.json(series=True).keys() >= {*STABLE, "series", "violations", "failed"}


PROMISED = ("lost", "duplicate_effects", "redone_chunks", "over_budget_ticks", "order_violations")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "utilisation"),
    [
        ("outage-40k", 0.95),  # 43,000 jobs, an hour's pause, live traffic
        ("long-jobs", 0.85),  # 20 minutes each, on minute ticks
        ("deep-matches", 0.85),  # 100 jobs a match
    ],
)
def test_a_whole_scenario_keeps_what_is_promised_of_it(name: str, utilisation: float) -> None:
    outcome = run_policy(load_scenario(name), 7)
    figures = outcome.figures
    assert outcome.passed, (outcome.said, outcome.failed)
    assert [getattr(figures, figure) for figure in PROMISED] == [0] * len(PROMISED)
    assert (figures.attempts_burned_by_refusals, figures.refusals_per_1000 <= 5) == (0, True)
    assert figures.utilisation is not None
    assert figures.utilisation >= utilisation
    if name == "outage-40k":
        assert figures.eta_error_median is not None
        assert figures.eta_error_p95 is not None
        assert figures.live_wait_p95_s is not None
        assert (figures.eta_error_median <= 0.05, figures.eta_error_p95 <= 0.15) == (True, True)
        assert figures.live_wait_p95_s <= 1.5 * 60


@pytest.mark.slow
@pytest.mark.parametrize("name", ["known-bucket", "known-fixed-window", "known-sliding-window"])
def test_a_known_limit_is_used_and_hardly_ever_refused_in_a_quarter_of_an_hour(name: str) -> None:
    """All of it, and 20 seeds: `simulate --scenario known-sliding-window --seeds 20`."""
    scenario = load_scenario(name)
    backlog, live = scenario.sources
    outcome = run_policy(scenario.with_(sources=(replace(backlog, count=3200), live), expect=()), 3)
    assert (outcome.violations, outcome.figures.unfinished) == ({}, 0)
    assert outcome.figures.refusals_per_1000 <= 4  # the few that it learns by all come at its beginning
    assert outcome.figures.utilisation is not None
    assert outcome.figures.utilisation >= 0.9  # of 15 minutes the first tick and the last rows are waited for


def small_outage() -> Scenario:
    """The hour's pause in a tenth of its size."""
    scenario = load_scenario("outage-40k")
    backlog, live = scenario.sources
    events = tuple(replace(event, at_s=event.at_s / 10) for event in scenario.events)
    sources = (replace(backlog, count=4000, to_s=360.0), replace(live, from_s=360.0))
    return scenario.with_(sources=sources, events=events)


@pytest.mark.slow
def test_a_tenth_of_the_outage_breaks_nothing_and_wastes_nothing() -> None:
    outcome = run_policy(small_outage(), 7)
    assert (outcome.violations, outcome.figures.refusals, outcome.figures.unfinished) == ({}, 0, 0)
    assert outcome.figures.utilisation is not None
    assert outcome.figures.utilisation >= 0.8  # six minutes, of which the first tick's wait is a tenth


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not() -> None:
    scenario = parse_scenario(GOOD.replace("count = 5", "count = 200\nage_s = 600"), path=Path("small.toml"))
    first, again, other = (run_policy(scenario, seed).text() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_an_endless_source_stops_when_the_backlog_is_done() -> None:
    scenario = parse_scenario(GOOD, path=Path("small.toml"))
    drive = Drive(scenario.with_(sources=(*scenario.sources, Source(per_s=0.2, live=True))), 1)
    drive.run()
    figures = drive.finish().figures
    assert figures.done == figures.jobs > 5
    assert figures.drain_s is not None
    assert figures.drain_s < 120


# -- bad files: one line, naming file, line or key, what was there and what was expected


BAD = [
    ("about = oops\n", "bad.toml, line 1, column 9: not TOML: Invalid value"),
    (GOOD + "\n[[jobs", "bad.toml, end of document: not TOML: "),
    (GOOD.replace('"a test"', "3"), "bad.toml: about: got a whole number, expected one sentence"),
    (GOOD + "[trouble]\nmixx = true", "bad.toml: trouble.mixx: got an unknown key, expected one of kills_per_minute"),
    (GOOD.replace("10.0", "-1"), "bad.toml: upstream.limit_per_s: got -1, expected a number above 0"),
    (GOOD.replace("limit_per_s = 10.0", ""), "bad.toml: upstream.limit_per_s: got nothing"),
    (GOOD.replace("count = 5", "count = 5\nper_s = 1"), "bad.toml: jobs[1]: got both, expected either count or per_s"),
    (GOOD.replace("count = 5", "per_s = 1"), "bad.toml: jobs: got no source that ends"),
    (GOOD.replace("count = 5", "count = true"), "bad.toml: jobs[1].count: got a boolean, expected a whole number"),
    (
        GOOD.replace("count = 5", "count = 5\nfrom_s = 9\nto_s = 3"),
        "bad.toml: jobs[1].to_s: got 3.0, expected at least",
    ),
    (GOOD + "[truth]\nlatency_ms = [5, 1]", "bad.toml: truth.latency_ms: got an array, expected [least, most]"),
    (GOOD + "[truth]\nlimiter = 'leaky'", 'bad.toml: truth.limiter: got "leaky", expected one of token_bucket'),
    (GOOD + "[truth]\nchanges = [[9, 1], [3, 1]]", "bad.toml: truth.changes: got an array, expected [[second,"),
    (GOOD + "[class]\nkind = 'x'", "bad.toml: class.kind: got an unknown key, expected one of"),
    (GOOD + "[class]\nslots = 2", "bad.toml: class.slots: got 2, expected a whole number from 4"),
    (GOOD + "[class]\nfunction_timeout_s = 5", "bad.toml: class.chunk_margin_s: got 10.0, expected less than"),
    (
        GOOD + "[class.abort]\ndead_share = 3",
        "bad.toml: class.abort.dead_share: got 3, expected a number from 0 to 1, or false to switch the rule off",
    ),
    (
        GOOD + "[class.abort]\ndead = false",
        "bad.toml: class.abort.dead: got an unknown key, expected one of age_windows",
    ),
    (GOOD + "poison_share = 2", "bad.toml: jobs[1].poison_share: got 2, expected a number from 0 to 1"),
    (GOOD + "[ticks]\nmiss = nan", "bad.toml: ticks.miss: got nan, expected a number from 0 to 0.9"),
    (GOOD + "[[events]]\nat_s = 3", "bad.toml: events[1].do: got nothing, expected one of pause, resume, repair"),
    ('expect = ["speed"]' + GOOD, 'bad.toml: expect[1]: got "speed", expected a string like'),
    (GOOD.replace("[[jobs]]", "[jobs]"), "bad.toml: jobs: got a table, expected [[jobs]] tables"),
]


@pytest.mark.parametrize(("text", "says"), BAD)
def test_a_bad_scenario_is_one_line_that_names_the_place(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_scenario(str(path))
    (fault,) = caught.value.faults
    assert says in fault
    assert "\n" not in fault
    assert fault.startswith(str(path))
    ran = CliRunner().invoke(main, ["simulate", "--scenario", str(path)])
    assert ran.exit_code == 2
    assert ran.stderr.count("\n") == 1
    assert "Traceback" not in ran.output


def test_an_unknown_scenario_lists_the_known_ones() -> None:
    ran = CliRunner().invoke(main, ["simulate", "--scenario", "outage-41k"])
    assert ran.exit_code == 2
    assert "outage-40k" in ran.stderr


# -- the command


def test_json_has_the_stable_keys_and_out_has_the_series(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    ran = CliRunner().invoke(main, ["simulate", "--scenario", "tiny-rate", "--json", "--out", str(out)])
    assert ran.exit_code == 0
    printed = json.loads(ran.stdout)
    assert printed.keys() >= set(STABLE)
    assert "series" not in printed
    series = json.loads(out.read_text(encoding="utf-8"))["series"]
    assert len(series) == printed["ticks"]
    assert series[0].keys() >= {
        *("t_s", "waiting_live", "waiting_recovery", "later", "in_flight", "budget", "admitted", "rate_per_s"),
        *("true_limit_per_s", "refusals", "calls", "eta_said_s", "eta_true_s"),
    }


def test_an_expectation_that_does_not_hold_fails_and_prints_the_replay(tmp_path: Path) -> None:
    path = tmp_path / "strict.toml"
    path.write_text('expect = ["drain_s <= 1"]' + GOOD, encoding="utf-8")
    ran = CliRunner().invoke(main, ["simulate", "--scenario", str(path), "--seed", "5"])
    assert ran.exit_code == 1
    assert "error: expected drain_s <= 1: got " in ran.stderr
    assert f"replay: python -m ops simulate --scenario {path} --seed 5" in ran.stderr
