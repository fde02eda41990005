"""Scenario files take the keys of `sluice.toml`: `[class]` and `[upstream]` are tables of the same one table."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.simulator.policies import run_policy
from ops.simulator.scenario import CLASS, UPSTREAM, Scenario, parse_scenario
from shared.domain import keys
from shared.domain.settings import AbortRules, Consequence, RetrySettings, UpstreamApi
from shared.errors import ConfigError

JOBS = "[[jobs]]\ncount = 200\nage_s = 600\n"
"""A backlog of two minutes at 10 calls/s, whose drain begins after a pause."""


def parsed(*lines: str) -> Scenario:
    return parse_scenario("\n".join(['about = "a test"', *lines, JOBS]), path=Path("small.toml"))


def test_staged_recovery_objectives_and_token_prices_are_accepted_and_take_effect() -> None:
    settings = parsed(
        *("[class]", "staged_recovery = false", "eta_objective_s = 900", "age_objective_s = 60"),
        *("[upstream]", "limit_per_s = 10.0", "usd_per_million_input_tokens = 3", "usd_per_million_output_tokens = 15"),
    ).settings
    work, upstream = settings.classes[CLASS], settings.upstreams[UPSTREAM]
    assert (work.staged_recovery, work.eta_objective_s, work.age_objective_s) == (False, 900.0, 60.0)
    assert (upstream.usd_per_million_input_tokens, upstream.usd_per_million_output_tokens) == (3.0, 15.0)


def test_without_staged_recovery_a_drain_after_a_pause_is_shorter() -> None:
    pause = ("[[events]]", "at_s = 0", 'do = "pause"', "[[events]]", "at_s = 600", 'do = "resume"')
    drains_s = [
        run_policy(parsed(*line, "[upstream]", "limit_per_s = 2.0", *pause), 1, "paced").figures.drain_s
        for line in (("[class]", "staged_recovery = false"), ("[class]", "staged_recovery = true"))
    ]
    at_once_s, staged_s = drains_s
    assert at_once_s is not None
    assert staged_s is not None
    assert at_once_s < staged_s


def test_the_tables_inside_take_effect_too() -> None:
    settings = parsed(
        *("[class.retry]", "max_attempts = 2", "[class.abort]", "dead_share = false", "spend_usd = 5"),
        *("[class.options]", 'table = "sessions"'),
        *("[upstream]", "limit_per_s = 10.0", "[upstream.errors]", '402 = "exhausted"'),
    ).settings
    work, upstream = settings.classes[CLASS], settings.upstreams[UPSTREAM]
    assert work.retry == RetrySettings(max_attempts=2)
    assert work.abort == AbortRules(dead_share=None, spend_usd=5.0)
    assert work.options == {"table": "sessions"}
    assert (upstream.errors[402], upstream.errors[429]) == (Consequence.EXHAUSTED, Consequence.REFUSE)


def test_a_model_of_bedrock_can_be_declared() -> None:
    upstream = parsed(
        "[upstream]", "limit_per_s = 1", 'api = "bedrock-converse"', 'model = "eu.some.model-v1:0"', "max_tokens = 9"
    ).settings.upstreams[UPSTREAM]
    assert (upstream.api, upstream.max_tokens) == (UpstreamApi.CONVERSE, 9)


@pytest.mark.parametrize("key", [key for key in keys.CLASS.keys if key not in ("kind", "upstream")])
def test_every_key_of_a_class_is_known(key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parsed("[class]", f"{key} = []", "[upstream]", "limit_per_s = 10.0")
    assert [f"small.toml: class.{key}: got an array" in fault for fault in raised.value.faults] == [True]


@pytest.mark.parametrize("key", [key for key in keys.UPSTREAM.keys if key != "endpoint"])
def test_every_key_of_an_upstream_but_its_address_is_known(key: str) -> None:
    limit = () if key == "limit_per_s" else ("limit_per_s = 10.0",)
    with pytest.raises(ConfigError) as raised:
        parsed("[upstream]", *limit, f"{key} = []")
    assert [f"small.toml: upstream.{key}: got an array" in fault for fault in raised.value.faults] == [True]


def test_the_laws_between_keys_hold_in_a_scenario_as_well() -> None:
    with pytest.raises(ConfigError) as raised:
        parsed("[class]", 'schedule = "repair"', "[upstream]", "limit_per_s = 501")
    assert [fault.partition(", expected")[0] for fault in raised.value.faults] == [
        'small.toml: class.schedule: got "repair"',
        "small.toml: upstream.burst_calls: got 1",
    ]


def test_every_fault_of_a_scenario_is_named_at_once_with_the_file() -> None:
    text = 'abuot = "x"\nmax_hours = 0\n[class]\nslots = 1\n[upstream]\n[truth]\nmiss = 1\n[[jobs]]\ncount = 0\n'
    with pytest.raises(ConfigError) as raised:
        parse_scenario(text, path=Path("bad.toml"))
    assert [fault.partition(": got")[0] for fault in raised.value.faults] == [
        "bad.toml: abuot",
        "bad.toml: about",
        "bad.toml: max_hours",
        "bad.toml: truth.miss",
        "bad.toml: class.slots",
        "bad.toml: upstream.limit_per_s",
        "bad.toml: jobs[1].count",
    ]
    assert "did you mean about?" in raised.value.faults[0]


def test_a_syntax_error_in_a_scenario_names_the_file_and_the_place() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_scenario("about = oops\n", path=Path("scenarios/bad.toml"))
    assert raised.value.faults == ["scenarios/bad.toml, line 1, column 9: not TOML: Invalid value"]
