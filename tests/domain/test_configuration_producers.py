"""`sluice.toml`: what submits jobs by itself."""

from __future__ import annotations

import dataclasses

import pytest

from shared.domain.config_producers import PRODUCERS
from shared.domain.configuration import parse_settings
from shared.domain.settings import GuildReportsSettings, MatchEndedSettings, ProducerSettings, SessionSweepSettings
from tests.domain.test_configuration import a_class, faults

CLASSES = a_class(name="summary") + a_class(name="reports") + a_class(name="sweep")


def test_nothing_submits_jobs_by_itself_unless_it_is_said() -> None:
    assert parse_settings(CLASSES).producers == ProducerSettings()


def test_every_producer_is_read_with_its_defaults() -> None:
    found = parse_settings(
        CLASSES
        + '[producers.match_ended]\nreplay_class = "summary"\n'
        + '[producers.guild_reports]\njob_class = "reports"\nguilds_table = "game-guilds"\nat = "23:59"\n'
        + '[producers.session_sweep]\njob_class = "sweep"\n'
    )
    assert found.producers == ProducerSettings(
        match_ended=MatchEndedSettings(replay_class="summary"),
        guild_reports=GuildReportsSettings(job_class="reports", guilds_table="game-guilds", at="23:59"),
        session_sweep=SessionSweepSettings(job_class="sweep", at="04:00"),
    )


@pytest.mark.parametrize("name", PRODUCERS)
def test_every_field_of_a_producer_has_a_rule_and_every_rule_a_field(name: str) -> None:
    section = PRODUCERS[name]
    assert {field.name for field in dataclasses.fields(section.target)} == set(section.rules)
    assert set(PRODUCERS) == {field.name for field in dataclasses.fields(ProducerSettings)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("producers = 5", "producers: got a whole number, expected a table"),
        ("producers.match_ended = 5", "producers.match_ended: got a whole number, expected a table"),
        ("[producers.match_end]", "producers.match_end: unknown key; did you mean match_ended?"),
        ("[producers.match_ended]", "producers.match_ended.replay_class: got nothing, expected a class here or in"),
        (
            '[producers.match_ended]\nreplay_class = "summaries"',
            'producers.match_ended.replay_class: got "summaries", expected the name of a [classes.<name>] table;'
            " did you mean summary?",
        ),
        (
            '[producers.match_ended]\nreplay_class = "summary"\nbus = "my bus"',
            'producers.match_ended.bus: got "my bus", expected the name of an EventBridge bus',
        ),
        ('[producers.session_sweep]\njob_class = "sweep"\nat = "24:00"', 'producers.session_sweep.at: got "24:00"'),
        ('[producers.session_sweep]\njob_class = "sweep"\nat = 4', "producers.session_sweep.at: got a whole number"),
        ("[producers.session_sweep]", "producers.session_sweep.job_class: got nothing, expected a name like"),
        (
            '[producers.guild_reports]\njob_class = "reports"\nguilds_table = "a b"',
            'producers.guild_reports.guilds_table: got "a b", expected a DynamoDB table\'s name',
        ),
    ],
)
def test_a_fault_of_a_producer_is_named_like_any_other(text: str, expected: str) -> None:
    (fault,) = faults(f"{text}\n{CLASSES}")
    assert fault.startswith(expected)
