"""The deployed webhook on the emulator: real HTTP, real functions, real races, and the client as it is documented."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

from ops.local.emulator import ROOT
from shared.domain.control import WEBHOOK, RunKey, RunState
from shared.domain.job import State
from shared.steps.counting import count_inflight
from tests.e2e.webhook_site import ALONE, BOTH, ROWS, Site, body_of, fresh_minute, open_site

pytestmark = pytest.mark.e2e

RACERS = 50


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("webhook") / "sluice.toml") as opened:
        yield opened


def test_the_status_table(site: Site) -> None:
    key = fresh_minute(site, ALONE)
    right, now_ms = body_of(key), time.time_ns() // 1_000_000
    late, early = (body_of(RunKey.of(ALONE, now_ms + shift_ms)) for shift_ms in (-600_000, 600_000))
    table = [
        ("first", 202, site.ask(right)),
        ("again", 202, site.ask(right)),
        ("not JSON", 400, site.ask("{")),
        ("another field", 400, site.ask(right | {"limit": 9})),
        ("another's run id", 400, site.ask(right | {"run_id": "mine"})),
        ("a closed class", 400, site.ask(right | {"job_class": "session_sweep"})),
        ("wrong token", 401, site.ask(right, token="x" * 48)),
        ("non-ASCII token", 401, site.ask(right, token="schl\u00fcssel")),
        ("GET", 405, site.ask("", method="GET")),
        ("ten minutes old", 409, site.ask(late)),
        ("ten minutes ahead", 409, site.ask(early)),
        ("4,097 bytes", 413, site.ask("x" * 4097)),
        ("text/plain", 415, site.ask(right, content_type="text/plain")),
    ]
    for name, _, (status, answer, headers) in table:
        extra = {each: headers[each] for each in ("allow", "www-authenticate") if each in headers}
        print(f"{name:18} {status} {json.dumps(answer)} {extra or ''}")
    assert [(name, status) for name, _, (status, _, _) in table] == [(name, expected) for name, expected, _ in table]
    assert [answer[1].get("created") for _, _, answer in table[:2]] == [True, False]
    assert all(headers["content-type"] == "application/json" for _, _, (_, _, headers) in table)
    assert table[8][2][2]["allow"] == "POST"


def test_fifty_at_once_are_one_run_that_is_executed_once(site: Site) -> None:
    token = site.secret()
    with ThreadPoolExecutor(RACERS) as pool:
        # A process per request at once has to be there first and have met the ledger, or the starts would race. A few
        # more each time: fifty cold starts on one laptop outlive the function's timeout.
        warmed = set()
        for width in range(4, RACERS + 4, 4):
            warm = RunKey.of(ALONE, time.time_ns() // 1_000_000)
            list(pool.map(lambda body: site.ask(body, token=token)[0], [body_of(warm)] * min(width, RACERS)))
            warmed.add(warm)
        for each in warmed:
            site.ended(each)
        site.submit(ALONE, [f"raced-{number}" for number in range(ROWS)])
        key = fresh_minute(site, ALONE)
        began = time.monotonic()
        answers = list(pool.map(lambda _: site.ask(body_of(key), token=token), range(RACERS)))
    took_s = time.monotonic() - began
    statuses = Counter(status for status, _, _ in answers)
    created = sum(answer.get("created") is True for _, answer, _ in answers)
    run = site.ended(key)
    ticks = [line for line in site.ledger.read_control(ALONE).history if line.run_id == key.run_id]
    print(
        f"{RACERS} at once in {took_s:.1f} s: {dict(statuses)}, {created} created, run {run.state}, {len(ticks)} tick,"
        f" {[tick.admitted for tick in ticks]} of {ROWS} rows admitted"
    )
    assert statuses == {202: RACERS}
    assert created == 1
    assert {answer["run_id"] for _, answer, _ in answers} == {key.run_id}
    assert (run.source, run.state, len(ticks)) == (WEBHOOK, RunState.CLOSED, 1)
    assert 1 <= ticks[0].admitted <= ROWS


def test_the_same_minute_from_schedule_and_webhook_is_one_run(site: Site) -> None:
    key, token = fresh_minute(site, BOTH), site.secret()
    with ThreadPoolExecutor(2) as pool:
        scheduled = pool.submit(site.tick, BOTH, key.minute_ms)
        asked = pool.submit(site.ask, body_of(key), token=token)
    assert asked.result()[0] == 202
    assert scheduled.result()["run_id"] == key.run_id
    run = site.ended(key)
    ticks = [line for line in site.ledger.read_control(BOTH).history if line.run_id == key.run_id]
    print(f"schedule and webhook: {run.source} created it, {run.state}, {len(ticks)} tick")
    assert len(ticks) == 1


def test_a_run_whose_webhook_died_is_executed_by_the_repair_tick(site: Site) -> None:
    key = fresh_minute(site, ALONE)
    assert site.ledger.admit_run(key, source=WEBHOOK, now_ms=key.minute_ms)  # and nobody is asked for its tick
    report = site.tick(ALONE, key.minute_ms)
    print(f"repair: {report}")
    assert report["run_id"] == f"{key.run_id}+repair"
    assert site.ended(key).owner


def test_the_secret_rotates_and_both_tokens_are_good(site: Site) -> None:
    old, version = site.secret(), str(uuid.uuid4())
    name, secrets = site.outputs["WebhookSecret"], site.emulator.client("secretsmanager")
    # The emulator announces no version of its own accord; with a value there, the first step has nothing to do.
    new = uuid.uuid4().hex
    secrets.put_secret_value(SecretId=name, ClientRequestToken=version, SecretString=new, VersionStages=["AWSPENDING"])
    functions = site.emulator.client("lambda")
    (rotation,) = [
        each["FunctionName"]
        for each in functions.list_functions()["Functions"]
        if each["Handler"] == "functions.rotation.handler.handler"
    ]
    for step in ("createSecret", "setSecret", "testSecret", "finishSecret"):
        event = {"Step": step, "SecretId": name, "ClientRequestToken": version}
        answer = functions.invoke(FunctionName=rotation, Payload=json.dumps(event).encode())
        assert "FunctionError" not in answer, answer["Payload"].read()
    assert (site.secret(), site.secret("AWSPREVIOUS")) == (new, old)
    key = fresh_minute(site, ALONE)
    time.sleep(10)  # the one look at the store in ten seconds
    assert [site.ask(body_of(key), token=token)[0] for token in (new, old, "x" * 48)] == [202, 202, 401]


@pytest.mark.skipif(not shutil.which("node"), reason="Node.js is not on the path")
def test_the_documented_client_gets_its_run(site: Site, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(site.secret() + "\n")
    environment = {
        "PATH": os.environ["PATH"],
        "SLUICE_WEBHOOK_URL": site.url,
        "SLUICE_JOB_CLASS": ALONE,
        "SLUICE_WEBHOOK_TOKEN_FILE": str(tmp_path / "token"),
    }
    command = ["node", str(ROOT / "docs" / "clients" / "drain-run.mjs")]
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        for _ in range(2)
    )
    print(first.stdout + second.stdout, end="")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    run_id = first.stdout.partition(" ")[0]
    minute = datetime.fromisoformat(run_id.partition("@")[2])
    site.ended(RunKey.of(ALONE, round(minute.timestamp() * 1000)))


def test_an_operator_closes_the_door_and_opens_it(site: Site, tmp_path: Path) -> None:
    key, outputs = fresh_minute(site, ALONE), tmp_path / "outputs.json"
    outputs.write_text(json.dumps({"Sluice": site.outputs}))

    def ops(verb: str) -> None:
        command = [sys.executable, "-m", "ops", "--config", str(site.config), "--outputs", str(outputs)]
        environment = {**os.environ, **site.emulator.environment()}
        subprocess.run([*command, "webhook", verb, "--reason", "test"], cwd=ROOT, env=environment, check=True)

    ops("close")
    status, answer, _ = site.ask(body_of(key))
    ops("open")
    assert (status, answer) == (409, {"accepted": False, "reason": "closed"})
    assert site.ask(body_of(key))[0] == 202


def test_with_the_schedulers_identity_disabled_no_run_appears_and_what_is_in_flight_is_acknowledged(site: Site) -> None:
    site.answering.clear()  # so that what is claimed stays in flight
    names = site.submit(ALONE, [f"in-flight-{number}" for number in range(8)])
    while not queued_of(site, names):  # a run of the test before may still be at work, and this one an overlap
        key = fresh_minute(site, ALONE)
        assert site.ask(body_of(key))[0] == 202
        site.ended(key)
    disable_schedules(site)
    time.sleep(5)  # what had started by then
    before, in_flight = runs(site), queued_of(site, names)
    counted = count_inflight(site.ports, site.settings.classes[ALONE])
    queued = sum(sum(messages(site, url)) for url in urls(site))
    site.answering.set()
    began = time.monotonic()
    while queued_of(site, in_flight) and time.monotonic() - began < 120:
        time.sleep(0.5)
    took_s = time.monotonic() - began
    time.sleep(max(0, 70 - took_s))  # a whole interval, and some
    print(
        f"{len(in_flight)} in flight when the schedules went, done {took_s:.0f} s after their upstream answered again;"
        f" {len(runs(site)) - len(before)} new runs in {max(70, took_s):.0f} s"
    )
    assert in_flight
    assert counted >= len(in_flight)
    assert queued >= len(in_flight)
    assert {site.state(name) for name in in_flight} == {State.DONE}
    assert runs(site) == before
    assert {url: messages(site, url) for url in urls(site)} == dict.fromkeys(urls(site), (0, 0))


def queued_of(site: Site, names: list[str]) -> list[str]:
    return [name for name in names if site.state(name) is State.QUEUED]


def disable_schedules(site: Site) -> None:
    scheduler = site.emulator.client("scheduler")
    for schedule in scheduler.list_schedules()["Schedules"]:
        found = scheduler.get_schedule(Name=schedule["Name"])
        wanted = {name: found[name] for name in ("Name", "ScheduleExpression", "FlexibleTimeWindow", "Target")}
        scheduler.update_schedule(**wanted, State="DISABLED")


def urls(site: Site) -> list[str]:
    return [url for lanes in json.loads(site.outputs["QueueUrls"]).values() for url in lanes.values()]


def messages(site: Site, url: str) -> tuple[int, int]:
    """Visible, and received but not acknowledged."""
    attributes = site.emulator.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    counted = [int(attributes[f"ApproximateNumberOfMessages{kind}"]) for kind in ("", "NotVisible")]
    return counted[0], counted[1]


def runs(site: Site) -> set[str]:
    pages = site.emulator.client("dynamodb").get_paginator("scan").paginate(TableName=site.outputs["TableName"])
    return {item["pk"]["S"] for page in pages for item in page["Items"] if item["sk"]["S"] in ("RUN", "REPAIR")}


def test_no_log_of_the_deployment_holds_a_token(site: Site) -> None:
    logs, tokens = site.emulator.client("logs"), {site.secret(), site.secret("AWSPREVIOUS"), "x" * 48}
    lines = [
        event["message"]
        for group in logs.describe_log_groups()["logGroups"]
        for event in logs.filter_log_events(logGroupName=group["logGroupName"])["events"]
    ]
    assert any("webhook_accepted" in line for line in lines)
    assert not [line for line in lines if any(token in line for token in tokens)]
