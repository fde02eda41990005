"""I12 at DEBUG: what users write reaches no log, metric, answer or error, whatever goes wrong on the way.

Every handler works a job, an event or a request that is full of canaries, and every part around it fails in turn. All
that is printed counts: standard output and error, every logger from DEBUG up, answers, errors with what caused them.
"""

from __future__ import annotations

import json
import logging
import sys
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from functions.dead_letter.handler import handler as dead_letter
from functions.intake.handler import handler as intake
from functions.pacer.handler import handler as pacer
from functions.producer.handler import handler as producer
from functions.rotation.handler import handler as rotation
from functions.webhook.handler import handler as webhook
from functions.worker.handler import handler as worker
from tests.handlers.canaries import (
    CANARIES,
    GUILD,
    MATCH,
    OBJECT,
    PATIENT,
    PAYLOAD,
    TOKEN,
    Site,
    asked,
    disguises,
    leaks,
    match_event,
)
from tests.handlers.webhook_world import event_of

MONDAY = "2027-01-04T03:00:00Z"


# -- the detector is awake


@pytest.mark.parametrize("word", CANARIES)
def test_a_leak_is_found_in_every_disguise(word: str) -> None:
    raw = word.encode()
    forms = [*disguises(word), repr({"x": word}), json.dumps({"x": [word]}), word.upper(), word.lower(), str(raw)]
    for form in forms:
        assert word in leaks(f"INFO something said {form} here"), form
    assert leaks("an innocent line about a canary, a patient and a guild") == []


def test_everything_that_is_printed_is_heard(said: Callable[[], str]) -> None:
    print("on standard output")
    sys.stderr.write("on standard error\n")
    logging.getLogger("a.library").debug("at debug")
    logging.getLogger("moto.dynamodb").debug("by the test's own cloud")
    everything = said()
    assert all(words in everything for words in ("on standard output", "on standard error", "a.library at debug"))
    assert "own cloud" not in everything


# -- producers, the dead letters, the pacer


ODD_EVENTS = [
    match_event(),
    match_event(match_id=[MATCH]),
    match_event(match_id=MATCH * 50),
    match_event(replays=OBJECT),
    match_event(replays=[[OBJECT]]),
    match_event(match_id=f"{MATCH}\0"),
    match_event(match_id=f"{MATCH}\ud800"),
    {**match_event(), "time": PAYLOAD},
    {**match_event(), "detail": PAYLOAD},
    PAYLOAD,
]


def test_events_of_a_match_that_cannot_all_be_read(site: Site) -> None:
    answers = [site.call(intake, event) for event in ODD_EVENTS]
    assert answers[0] == {"created": 2, "existing": 0}
    assert all(isinstance(answer, Exception) for answer in answers[1:])


def test_schedules_of_producers(site: Site) -> None:
    site.aws.dynamodb.create_table(
        TableName="game-guilds",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "guild_id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "guild_id", "AttributeType": "S"}],
    )
    for guild in (GUILD, GUILD * 60):  # the second one is too long for an id
        site.aws.dynamodb.put_item(TableName="game-guilds", Item={"guild_id": {"S": guild}, "name": {"S": GUILD}})
    for event in (
        {"producer": "guild_reports", "scheduled_at": MONDAY},
        {"producer": "guild_reports", "scheduled_at": PAYLOAD},
        {"producer": PAYLOAD, "scheduled_at": MONDAY},
        {"producer": "session_sweep", "scheduled_at": MONDAY},
    ):
        site.call(producer, event)
    assert site.world.job(f"guild-report/2026-W53/{GUILD}").match_id == GUILD


def broken(record: dict[str, Any], body: Any) -> dict[str, Any]:
    return {**record, "body": body if isinstance(body, str) else json.dumps(body)}


def test_messages_that_died_or_cannot_be_read(site: Site) -> None:
    site.submit("anything", {"note": PAYLOAD}, {"note": PAYLOAD})
    site.tick("anything")
    first, second = site.records("anything")
    body = json.loads(first["body"])
    odd = [
        broken(first, PAYLOAD),
        broken(first, {"job_id": PAYLOAD}),
        broken(first, {**body, "epoch": PAYLOAD}),
        broken(first, {**body, "job_class": PAYLOAD}),
        broken(first, {**body, "cursor": [PAYLOAD]}),
        {**first, "attributes": PAYLOAD},
        {**first, "eventSourceARN": f"arn:{PAYLOAD}"},
        {PAYLOAD: PAYLOAD},
        PAYLOAD,
    ]
    for handler in (worker, dead_letter):
        assert site.call(handler, {"Records": odd}) == {"batchItemFailures": []}
    assert site.call(dead_letter, {"Records": [first, second]}) == {"batchItemFailures": []}
    assert site.world.job(body["job_id"]).last_error == "transport"


def test_ticks_that_nobody_should_have_asked_for(site: Site) -> None:
    for event in (
        {"job_class": PAYLOAD},
        {"job_class": [PAYLOAD]},
        {"job_class": "anything", "scheduled_at": PAYLOAD},
        {"job_class": "anything", "scheduled_at": [PAYLOAD]},
        {"job_class": "anything", "source": PAYLOAD},
        {"job_class": "replay_summary", "source": PAYLOAD, "scheduled_at": "2026-11-30T12:00:00Z"},
        PAYLOAD,
    ):
        site.call(pacer, event)


# -- the webhook and its secret


def test_requests_and_rotations(site: Site) -> None:
    secret = site.aws.secrets
    secret.create_secret(Name="the-secret", SecretString=TOKEN)
    right = json.loads(asked(site)["body"])
    requests = [
        event_of(right, token=TOKEN),
        event_of(right, token=f"{TOKEN}x"),
        event_of(right, token=PATIENT),
        event_of({**right, "job_class": PAYLOAD}, token=TOKEN),
        event_of({**right, "run_id": PAYLOAD}, token=TOKEN),
        event_of({**right, PAYLOAD: TOKEN}, token=TOKEN),
        event_of(PAYLOAD, token=TOKEN),
        {
            **event_of(right, token=TOKEN),
            "rawPath": TOKEN,
            "rawQueryString": f"token={TOKEN}",
            "body": {TOKEN: PAYLOAD},
        },
    ]
    statuses = [site.call(webhook, event)["statusCode"] for event in requests]
    assert statuses == [202, 401, 401, 400, 400, 400, 400, 400]
    version = str(uuid.uuid4())
    secret.put_secret_value(
        SecretId="the-secret", ClientRequestToken=version, SecretString=f"{TOKEN}-2", VersionStages=["AWSPENDING"]
    )
    for step in ("createSecret", "setSecret", "testSecret", TOKEN, "finishSecret", "createSecret"):
        site.call(rotation, {"Step": step, "SecretId": TOKEN, "ClientRequestToken": version})
    site.call(rotation, {"Step": "createSecret", "ClientRequestToken": TOKEN})
    site.call(rotation, {"Step": TOKEN})
    now = secret.get_secret_value(SecretId="the-secret", VersionStage="AWSCURRENT")
    assert now["SecretString"] == f"{TOKEN}-2"
