"""The ways of every function to AWS: `drive` goes each of them and says what was asked for."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any, Final

import pytest
from botocore.exceptions import ClientError

from functions.dead_letter.handler import handler as dead_letter
from functions.intake.handler import handler as intake
from functions.pacer.handler import handler as pacer
from functions.producer.handler import handler as producer
from functions.rotation.handler import handler as rotation
from functions.webhook.handler import handler as webhook
from shared.aws.ledger import granted
from shared.domain.control import Grant, RunKey
from shared.domain.iso_week import first_day, week_before
from shared.domain.job import Flag, State
from tests.content.matches import match, utc
from tests.handlers.webhook_world import event_of
from tests.infra.calls import Permission
from tests.infra.driving import Drive, LittleTime, driving, iso

TOKEN: Final = "token-of-the-grants-test"
LARGE: Final = "x" * 5_000
"""A payload that is an object and not a part of its row."""


def drive(directory: Path, patch: pytest.MonkeyPatch) -> dict[str, set[Permission]]:
    """What each function asked for; a worker by its class. Its own stores are called `own`."""
    with driving(directory, patch) as here:
        own = here.site.world.aws.name
        for scenario in (_plain, _ordered, _asking, _dying, _tables, _live, _events, _door, _rotation, _stopping):
            scenario(here)
        return {
            name: {(action, resource.replace(own, "own")) for action, resource in asked}
            for name, asked in here.recorder.asked.items()
        }


def _plain(here: Drive) -> None:
    """Chunks with and without output, objects, continuations, failures, redeliveries, a sweep, a second tick."""
    does = ("nothing", "output", "pages", "objects", "outputs", "fail")
    here.submit("plain", *[{"does": each} for each in does], {"does": "nothing", "large": LARGE})
    here.tick("plain")
    here.work("plain")
    here.submit("plain", {"does": "pages"}, {"does": "nothing"})
    here.tick("plain")
    here.work("plain", context=LittleTime())
    here.work("plain", receives=2)
    event = {"job_class": "plain", "scheduled_at": "2026-11-30T12:00:00Z"}
    here.call("pacer", pacer, event)


def _ordered(here: Drive) -> None:
    """A match of three: the first hands its place on, the second dies, an operator is not there."""
    ids = here.submit("ordered", {"does": "nothing"}, {"does": "output"}, {"does": "fail"}, match_id="m-1")
    here.tick("ordered")
    for _ in ids:
        here.work("ordered")


def _asking(here: Drive) -> None:
    """Permits and an upstream that answers, refuses, is overloaded."""
    answer = {"output": {"message": {"content": [{"text": "{}"}]}}, "usage": {}}
    here.recorder.answers["Converse"] = lambda: answer
    here.submit("asking", {"does": "ask"})
    here.tick("asking")
    here.work("asking")


def _dying(here: Drive) -> None:
    here.submit("plain", {"does": "nothing"})
    here.submit("ordered", {"does": "nothing"}, match_id="m-2")
    for job_class in ("plain", "ordered"):
        here.tick(job_class)
        assert here.call("dead_letter", dead_letter, {"Records": here.site.records(job_class)})


def _tables(here: Drive) -> None:
    """The kinds that work on tables of the game's."""
    _table(here, "game-matches", "guild_id", "ended")
    _table(here, "game-guilds", "guild_id")
    _table(here, "game-sessions", "session_id")
    week = week_before(here.site.host.ports.clock.now_ms())
    monday = first_day(week)
    played = utc(monday.year, monday.month, monday.day)
    dynamodb = here.site.aws.dynamodb
    dynamodb.put_item(TableName="game-matches", Item=match("guild-1", 1, played))
    for guild in ("guild-1", "guild-2", "\x01" * 900):  # whose payload is large, so much of it is escaped
        dynamodb.put_item(TableName="game-guilds", Item={"guild_id": {"S": guild}})
    dynamodb.put_item(TableName="game-sessions", Item={"session_id": {"S": "s-1"}, "expires_s": {"N": "1"}})
    for job_class, payload in (("guild_weekly_report", {"guild_id": "guild-1", "week": week}), ("session_sweep", {})):
        (job_id,) = here.submit(job_class, payload)
        here.tick(job_class)
        here.work(job_class)
        assert here.state(job_id).state is State.DONE, here.state(job_id).last_error


def _table(here: Drive, name: str, *keys: str) -> None:
    here.site.aws.dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, ("HASH", "RANGE"), strict=False)],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
    )


def _events(here: Drive) -> None:
    """What submits by itself: one job and several, large ones, ordered ones, the same again, a guild of the table's."""
    for replays, screenshots in (
        (["r-1"], ["s-1"]),
        (["r-1", "r-2"], [f"{number}/{LARGE[:500]}" for number in range(9)]),
    ):
        detail = {"match_id": f"ended-{len(replays)}", "replays": replays, "screenshots": screenshots}
        event = {"detail-type": "match.ended", "time": "2026-11-30T12:00:00Z", "detail": detail}
        for _ in range(2):
            here.call("intake", intake, event)
    for name in ("guild_reports", "session_sweep"):
        for _ in range(2):
            here.call("producer", producer, {"producer": name, "scheduled_at": "2027-01-04T03:00:00Z"})


def _live(here: Drive) -> None:
    """What is due now, with a live allowance left: it is claimed and sent at once."""
    now_ms = here.site.host.ports.clock.now_ms()
    for job_class in ("plain", "ordered", "guild_weekly_report", "session_sweep"):
        grant = Grant(rows=9, run_id="r", at_ms=now_ms, hand_until_ms=now_ms + 60_000, slice_ms=60_000)
        here.site.aws.dynamodb.update_item(TableName=here.site.world.aws.name, **granted(job_class, grant))
    now = iso(now_ms)
    detail = {"match_id": "ended-live", "replays": ["r-1"], "screenshots": ["s-1"]}
    here.call("intake", intake, {"detail-type": "match.ended", "time": now, "detail": detail})
    for name in ("guild_reports", "session_sweep"):
        here.call("producer", producer, {"producer": name, "scheduled_at": now})


def _door(here: Drive) -> None:
    here.site.aws.secrets.create_secret(Name="the-secret", SecretString=TOKEN)
    here.recorder.answers["Invoke"] = lambda: {"StatusCode": 202}
    here.submit("called", {"does": "nothing"})
    key = RunKey.of("called", here.site.host.ports.clock.now_ms())
    minute = key.run_id.partition("@")[2]
    request = {"run_id": key.run_id, "scheduled_at": minute.replace("Z", ":00Z"), "job_class": key.job_class}
    assert here.call("webhook", webhook, event_of(request, token=TOKEN))["statusCode"] == 202
    here.call("pacer", pacer, {"job_class": "called", "scheduled_at": request["scheduled_at"], "source": "webhook"})
    here.work("called")


def _rotation(here: Drive) -> None:
    """moto has no version that is pending and empty, as Secrets Manager begins with."""
    version = str(uuid.uuid4())
    here.site.aws.secrets.put_secret_value(
        SecretId="the-secret", ClientRequestToken=version, SecretString=f"{TOKEN}-2", VersionStages=["AWSPENDING"]
    )
    event = {"SecretId": "the-secret", "ClientRequestToken": version}
    here.recorder.answers |= {"GetSecretValue": _no_value, "PutSecretValue": dict}
    here.call("rotation", rotation, {"Step": "createSecret", **event})
    del here.recorder.answers["GetSecretValue"]
    for step in ("setSecret", "testSecret", "finishSecret"):
        here.call("rotation", rotation, {"Step": step, **event})


def _no_value() -> Any:
    raise ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "GetSecretValue")


def _stopping(here: Drive) -> None:
    """A halted class gives its jobs back; a paused one is swept all the same."""
    ports = here.site.host.ports
    here.submit("plain", {"does": "nothing"})
    here.tick("plain")
    ports.ledger.set_halt("plain", Flag(by="test", why="grants", at_ms=ports.clock.now_ms()))
    here.work("plain")
    here.tick("plain")
