"""The intake and the scheduled producer, as Lambda calls them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from functions.intake.handler import handler as intake
from functions.producer.handler import handler as producer
from shared.domain.job import Lane, State
from shared.errors import ConfigError, InvalidInput, JobsRefused
from shared.pacer.tick import TickRequest, run_tick
from tests.handlers.deployment import Deployment, deployed
from tests.submit.test_producers import MATCH, event

CLASSES = """
[classes.replay_summary]
kind = "replay_summary"
[classes.screenshot_thumbnails]
kind = "screenshot_thumbnails"
[classes.guild_weekly_report]
kind = "guild_weekly_report"
options.matches_table = "game-matches"
[classes.session_sweep]
kind = "session_sweep"
options.sessions_table = "game-sessions"
"""
PRODUCERS = """
[producers.match_ended]
replay_class = "replay_summary"
screenshot_class = "screenshot_thumbnails"
[producers.guild_reports]
job_class = "guild_weekly_report"
guilds_table = "game-guilds"
[producers.session_sweep]
job_class = "session_sweep"
"""
MONDAY = "2027-01-04T03:00:00Z"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    with deployed(CLASSES + PRODUCERS, tmp_path, monkeypatch) as world:
        yield world


@pytest.fixture
def without_producers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    with deployed(CLASSES, tmp_path, monkeypatch) as world:
        yield world


def create_guilds(world: Deployment, *guilds: str) -> None:
    dynamodb = world.aws.clients.dynamodb
    dynamodb.create_table(
        TableName="game-guilds",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "guild_id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "guild_id", "AttributeType": "S"}],
    )
    for guild in guilds:
        item = {"guild_id": {"S": guild}, "about": {"S": "x" * 300_000}}  # so that a page holds few of them
        dynamodb.put_item(TableName="game-guilds", Item=item)


def test_a_match_that_ended_becomes_its_jobs_and_a_redelivery_adds_none(world: Deployment) -> None:
    assert intake(event(), None) == {"created": 3, "existing": 0}
    assert intake(event(), None) == {"created": 0, "existing": 3}
    rows = [row for row in world.aws.clients.dynamodb.scan(TableName=world.aws.name)["Items"] if "job_class" in row]
    assert {row["match_id"]["S"] for row in rows} == {MATCH}
    assert len(rows) == 3


def test_the_jobs_of_a_match_that_has_just_ended_are_sent_at_once_where_a_tick_has_left_room(world: Deployment) -> None:
    ports, settings = world.host.ports, world.host.settings
    now_ms = ports.clock.now_ms()
    now = f"{datetime.fromtimestamp(now_ms // 1000, tz=UTC):%Y-%m-%dT%H:%M:%SZ}"
    intake(event(match_id="first", time=now), None)
    request = TickRequest(scheduled_ms=now_ms, source="test", nonce="tick-1", deadline_ms=now_ms + 50_000)
    assert run_tick(ports, settings.classes["replay_summary"], None, request).admitted == 2
    assert intake(event(match_id="next", time=now), None) == {"created": 3, "existing": 0}
    found = world.aws.clients.sqs.receive_message(QueueUrl=world.aws.urls[Lane.LIVE], MaxNumberOfMessages=10)
    rows = [world.job(json.loads(message["Body"])["job_id"]) for message in found["Messages"]]
    assert sorted(row.match_id for row in rows) == ["first", "first", "next", "next"]
    assert {(row.job_class, row.state, row.epoch) for row in rows} == {("replay_summary", State.QUEUED, 1)}
    assert intake(event(match_id="next", time=now), None) == {"created": 0, "existing": 3}


def test_an_event_that_cannot_be_taken_is_raised_so_that_lambda_sets_it_aside(
    world: Deployment, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for odd, error in ((event(match_id=["canary"]), InvalidInput), (event(match_id="canary" * 200), JobsRefused)):
        with pytest.raises(error) as raised:
            intake(odd, None)
        assert "canary" not in str(raised.value)
    shown = capfd.readouterr()
    assert "canary" not in shown.out + shown.err
    assert json.loads(shown.out.splitlines()[-1])["event"] == "jobs_produced"


@pytest.mark.parametrize("odd", [{}, {"producer": "match_ended"}, {"producer": 7}])
def test_a_producer_that_there_is_not_is_an_error(world: Deployment, odd: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="producer"):
        producer({**odd, "scheduled_at": MONDAY}, None)


def test_a_monday_submits_the_week_before_for_every_guild_of_every_page_once(world: Deployment) -> None:
    guilds = [f"guild-{number}" for number in range(8)]
    create_guilds(world, *guilds)
    asked = {"producer": "guild_reports", "scheduled_at": MONDAY}
    assert producer(asked, None) == {"created": 8, "existing": 0}
    for again in (MONDAY, "2027-01-04T05:30:00+01:00", "2027-01-05T03:00:00Z"):
        assert producer({**asked, "scheduled_at": again}, None) == {"created": 0, "existing": 8}
    row = world.job("guild-report/2026-W53/guild-3")
    assert json.loads(row.payload) == {"guild_id": "guild-3", "week": "2026-W53"}
    assert producer({**asked, "scheduled_at": "2027-01-11T03:00:00Z"}, None) == {"created": 8, "existing": 0}


def test_a_day_submits_one_sweep_by_its_scheduled_time(world: Deployment) -> None:
    asked = {"producer": "session_sweep", "scheduled_at": "2026-11-30T04:00:00Z"}
    assert producer(asked, None) == {"created": 1, "existing": 0}
    assert producer(asked, None) == {"created": 0, "existing": 1}
    row = world.job("session-sweep/2026-11-30")
    assert (row.job_class, row.due_ms) == ("session_sweep", 1_796_011_200_000)


def test_a_producer_that_is_not_configured_is_told(without_producers: Deployment) -> None:
    with pytest.raises(ConfigError, match=r"producers\.match_ended"):
        intake(event(), None)
    with pytest.raises(InvalidInput):
        producer({"producer": "session_sweep", "scheduled_at": MONDAY}, None)
