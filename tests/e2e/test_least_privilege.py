"""Every way through Sluice on an emulator that enforces IAM, each function under the role of its template."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shared.domain.control import RunKey, RunState
from shared.domain.job import State
from tests.e2e.least_privilege_site import Site, open_site

pytestmark = pytest.mark.e2e

REPLAY = "replays/one"
LARGE = "x" * 5_000
GIVE_UP_S = 180.0
ENDED = (RunState.CLOSED, RunState.SKIPPED)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("least-privilege")) as opened:
        opened.put(REPLAY, b"1. e4 e5 1-0\n")
        yield opened


def eventually(holds: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + GIVE_UP_S
    while time.monotonic() < deadline:
        if holds():
            return
        time.sleep(0.5)
    raise AssertionError(f"{what}: not within {GIVE_UP_S:g} s")


def done(site: Site, *job_ids: str) -> Callable[[], bool]:
    return lambda: all(site.job(each).state is State.DONE for each in job_ids)


def test_jobs_small_and_large_are_done_and_a_missing_object_is_their_own_failure(site: Site) -> None:
    jobs = [site.submit(f"small-{number}", replay_key=REPLAY) for number in range(3)]
    jobs.append(site.submit("large", replay_key=REPLAY, note=LARGE))
    gone = site.submit("gone", replay_key="replays/gone")
    site.tick("replay_summary")
    eventually(done(site, *jobs), "jobs")
    eventually(lambda: site.job(gone).last_error == "object_missing", "the missing object")


def test_a_match_that_ended_becomes_jobs_that_are_done(site: Site) -> None:
    detail = {"match_id": "m-1", "replays": [REPLAY]}
    created = site.invoke("intake", {"detail-type": "match.ended", "time": "2026-11-30T12:00:00Z", "detail": detail})
    assert created == {"created": 1, "existing": 0}
    site.tick("replay_summary")
    eventually(lambda: states_of(site, match_id="m-1") == ["done"], "the match's job")


def states_of(site: Site, *, match_id: str) -> list[str]:
    items = site.client("dynamodb").scan(
        TableName=site.outputs["TableName"],
        FilterExpression="match_id = :match",
        ExpressionAttributeValues={":match": {"S": match_id}},
    )["Items"]
    return [item["state"]["S"] for item in items]


def test_a_sweep_works_on_its_own_table(site: Site) -> None:
    dynamodb = site.client("dynamodb")
    dynamodb.create_table(
        TableName="game-sessions",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "session_id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "session_id", "AttributeType": "S"}],
    )
    dynamodb.put_item(TableName="game-sessions", Item={"session_id": {"S": "s-1"}, "expires_s": {"N": "1"}})
    site.invoke("producer", {"producer": "session_sweep", "scheduled_at": "2026-11-30T04:00:00Z"})
    site.tick("session_sweep")
    eventually(lambda: not dynamodb.scan(TableName="game-sessions")["Items"], "the sweep")


def test_a_dead_letter_is_told_to_its_row(site: Site) -> None:
    functions, queues = site.client("lambda"), json.loads(site.outputs["QueueUrls"])["replay_summary"]
    names = {url.rpartition("/")[2] for url in queues.values()}
    mappings = [
        each
        for each in functions.list_event_source_mappings()["EventSourceMappings"]
        if each["EventSourceArn"].rpartition(":")[2] in names
    ]
    for mapping in mappings:
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    job_id = site.submit("dies", replay_key=REPLAY)
    site.tick("replay_summary")
    eventually(lambda: site.job(job_id).state is State.QUEUED, "the claim")
    job = site.job(job_id)
    body = {"job_id": job_id, "job_class": job.job_class, "cursor": job.cursor, "epoch": job.epoch, "copy": job.copy}
    assert job.lane is not None
    site.client("sqs").send_message(
        QueueUrl=dead_letters_of(site, queues[job.lane.value]),
        MessageBody=json.dumps(body),
        MessageGroupId="m",
        MessageDeduplicationId="d",
    )
    eventually(lambda: site.job(job_id).last_error == "transport", "the dead letter")
    for mapping in mappings:
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)


def dead_letters_of(site: Site, queue_url: str) -> str:
    sqs = site.client("sqs")
    attributes = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["RedrivePolicy"])["Attributes"]
    name = json.loads(attributes["RedrivePolicy"])["deadLetterTargetArn"].rpartition(":")[2]
    return str(sqs.get_queue_url(QueueName=name)["QueueUrl"])


def test_the_webhook_admits_a_run_and_the_pacer_executes_it(site: Site) -> None:
    key = RunKey.of("replay_summary", site.ports.clock.now_ms())
    minute = key.run_id.partition("@")[2].replace("Z", ":00Z")
    request = {"run_id": key.run_id, "scheduled_at": minute, "job_class": key.job_class}
    secret = site.client("secretsmanager").get_secret_value(SecretId=site.outputs["WebhookSecret"])["SecretString"]
    # On a busy machine the door may not get its secret within its second, and answers 503: ask again.
    eventually(lambda: ask(site, request, token=secret) == 202, "the webhook")
    eventually(lambda: getattr(site.ports.ledger.read_run(key), "state", None) in ENDED, "the run")


def ask(site: Site, request: dict[str, str], *, token: str) -> int:
    """The status that the webhook answers, through the emulator's own form of its URL."""
    api = site.outputs["WebhookUrl"].partition("://")[2].partition(".")[0]
    connection = http.client.HTTPConnection("127.0.0.1", site.emulator.port, timeout=60)
    headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    try:
        connection.request("POST", f"/_aws/execute-api/{api}/$default/drain-runs", json.dumps(request), headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_secret_is_rotated(site: Site) -> None:
    secrets, name = site.client("secretsmanager"), site.outputs["WebhookSecret"]
    version = "11111111-2222-4333-8444-555555555555"
    secrets.put_secret_value(
        SecretId=name, ClientRequestToken=version, SecretString="t" * 48, VersionStages=["AWSPENDING"]
    )
    for step in ("createSecret", "setSecret", "testSecret", "finishSecret"):
        site.invoke("rotation", {"Step": step, "SecretId": name, "ClientRequestToken": version})
    assert secrets.get_secret_value(SecretId=name)["SecretString"] == "t" * 48


def test_nobody_was_denied_anything(site: Site) -> None:
    said = site.logs()
    assert "tick_closed" in said
    assert "AccessDenied" not in said
    assert "not authorized" not in said


def test_a_worker_without_one_of_its_actions_is_denied(site: Site) -> None:
    """The control: the run above could not have passed without its grants."""
    role = site.function("worker", job_class="replay_summary")["Role"].rpartition("/")[2]
    iam = site.client("iam")
    (policy,) = iam.list_role_policies(RoleName=role)["PolicyNames"]
    document = iam.get_role_policy(RoleName=role, PolicyName=policy)["PolicyDocument"]
    for statement in document["Statement"]:
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        statement["Action"] = [each for each in actions if each != "dynamodb:GetItem"]
    document["Statement"] = [each for each in document["Statement"] if each["Action"]]
    iam.put_role_policy(RoleName=role, PolicyName=policy, PolicyDocument=json.dumps(document))
    job_id = site.submit("denied", replay_key=REPLAY)
    site.tick("replay_summary")
    eventually(lambda: "AccessDenied" in site.logs(), "the denial")
    assert site.job(job_id).state is not State.DONE
