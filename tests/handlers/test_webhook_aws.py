"""The webhook's adapters and the rotation's handler, on moto: Secrets Manager, DynamoDB, and what Lambda is asked."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError

from functions.pacer import handler as pacer
from functions.rotation import handler as rotation
from functions.webhook import handler as entry
from shared.aws import wiring
from shared.aws.clients import Clients
from shared.aws.ledger import DynamoLedger
from shared.aws.runtime import SystemClock
from shared.aws.secrets import SecretsManagerSecret
from shared.aws.table import Table
from shared.aws.telemetry import JsonLog
from shared.aws.wiring import Environment, open_webhook, read_environment
from shared.domain.control import WEBHOOK, RunKey, RunState
from shared.domain.job import Flag
from shared.errors import RotationRefused, SecretUnavailable
from shared.webhook.tokens import CURRENT, PENDING
from tests.contract.moto_world import moto_aws
from tests.contract.worlds import aws_client, create_table
from tests.handlers.webhook_world import CLASS, SETTINGS, event_of

SECRET = "sluice-webhook"
TOKEN = "first-canary-token-0001"


class PacerFunction:
    """Lambda's Invoke, recorded: moto would want Docker."""

    def __init__(self) -> None:
        self.invoked: list[dict[str, Any]] = []
        self.error: Exception | None = None

    def invoke(self, **request: Any) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        self.invoked.append(request)
        return {"StatusCode": 202}


class Aws:
    """One deployment in one moto account."""

    def __init__(self) -> None:
        self.function = PacerFunction()
        self.clients = Clients(self._make)
        create_table(self.clients.dynamodb, "ledger")
        self.secrets = self.clients.secrets
        self.secrets.create_secret(Name=SECRET, SecretString=f"{TOKEN}\n")
        variables = {"SLUICE_TABLE": "ledger", "SLUICE_BUCKET": "b", "SLUICE_QUEUES": "{}"}
        self.environment: Environment = read_environment(
            variables | {"SLUICE_SECRET": SECRET, "SLUICE_PACER": "the-pacer"}
        )
        self.ledger = DynamoLedger(Table(self.clients, "ledger", sleep=lambda _: None))

    def _make(self, service: str, config: Config) -> Any:
        return self.function if service == "lambda" else aws_client()(service, config)

    def open(self) -> Any:
        return open_webhook(self.environment, SETTINGS, clients=self.clients)

    def rotated(self, *steps: str, version: str | None = None) -> str:
        """Secrets Manager's part of a rotation: it makes the version's label, then calls the steps."""
        version = version or str(uuid.uuid4())
        for step in steps:
            rotation.handler({"Step": step, "SecretId": "another", "ClientRequestToken": version}, None)
        return version

    def labelled(self) -> str:
        """A version that Secrets Manager has labelled AWSPENDING. moto has none without a value: it gets a bad one."""
        version = str(uuid.uuid4())
        self.secrets.put_secret_value(
            SecretId=SECRET, ClientRequestToken=version, SecretString="short", VersionStages=[PENDING]
        )
        return version


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", SETTINGS.namespace)  # as the stack sets it
    with moto_aws():
        made = Aws()
        webhook = made.open()
        monkeypatch.setattr(entry, "webhook", lambda: webhook)
        secret = SecretsManagerSecret(made.clients, SECRET)
        monkeypatch.setattr(rotation, "rotation", lambda: (secret, webhook.ports.log))
        yield made


def ask(minute_ms: int, *, token: str = TOKEN, job_class: str = CLASS) -> tuple[int, dict[str, Any]]:
    key = RunKey.of(job_class, minute_ms)
    minute = key.run_id.partition("@")[2]
    body = {"run_id": key.run_id, "scheduled_at": minute.replace("Z", ":00Z"), "job_class": job_class}
    raw: Any = entry.handler(event_of(body, token=token), None)
    return raw["statusCode"], json.loads(raw["body"])


@pytest.fixture
def now_ms() -> int:
    return SystemClock().now_ms()


# -- admission


def test_one_put_admits_the_run_and_lambda_is_asked_without_waiting(aws: Aws, now_ms: int) -> None:
    key = RunKey.of(CLASS, now_ms)
    assert ask(now_ms) == (202, {"accepted": True, "created": True, "run_id": key.run_id})
    assert ask(now_ms) == (202, {"accepted": True, "created": False, "run_id": key.run_id})
    run = aws.ledger.read_run(key)
    assert run is not None
    assert (run.state, run.source) == (RunState.OPEN, WEBHOOK)
    (request,) = aws.function.invoked
    assert (request["FunctionName"], request["InvocationType"]) == ("the-pacer", "Event")
    event = json.loads(request["Payload"])
    assert event == {
        "job_class": CLASS,
        "scheduled_at": key.run_id.partition("@")[2].replace("Z", ":00Z"),
        "source": WEBHOOK,
    }


def test_the_pacer_takes_what_the_webhook_sends(aws: Aws, now_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(now_ms)
    here = wiring.wire(aws.environment, SETTINGS, clients=aws.clients)
    monkeypatch.setattr(pacer, "host", lambda: here)
    here.ports.parallel._threads = 1  # type: ignore[attr-defined]  # moto is not thread-safe (fact F34)

    class Context:
        def get_remaining_time_in_millis(self) -> int:
            return 50_000

    event = json.loads(aws.function.invoked[0]["Payload"])
    assert pacer.handler(event, Context())["outcome"] == "closed"
    assert pacer.handler(event, Context())["outcome"] == "duplicate"
    run = aws.ledger.read_run(RunKey.of(CLASS, now_ms))
    assert run is not None
    assert (run.state, run.reason) == (RunState.SKIPPED, "nothing_to_do")
    schedule = {"job_class": CLASS, "scheduled_at": None}
    assert pacer.handler(schedule, Context())["run_id"].endswith("+repair")


@pytest.mark.parametrize(
    "error",
    [
        ReadTimeoutError(endpoint_url="lambda"),
        ClientError({"Error": {"Code": "TooManyRequestsException"}}, "Invoke"),
        ClientError({"Error": {"Code": "AccessDeniedException"}}, "Invoke"),
    ],
)
def test_a_pacer_that_cannot_be_asked_changes_nothing_for_the_caller(aws: Aws, now_ms: int, error: Exception) -> None:
    aws.function.error = error
    assert ask(now_ms)[1]["created"] is True
    (run,) = aws.ledger.open_runs(CLASS, minutes_ms=[RunKey.of(CLASS, now_ms).minute_ms])
    assert run.source == WEBHOOK


def test_the_switch_is_read_with_every_request(aws: Aws, now_ms: int) -> None:
    flag = Flag(by="ada", why="test", at_ms=now_ms)
    aws.ledger.switch_webhook(CLASS, flag, closed=True)
    assert ask(now_ms) == (409, {"accepted": False, "reason": "closed"})
    assert aws.ledger.read_control(CLASS).webhook_switched == flag
    aws.ledger.switch_webhook(CLASS, flag, closed=False)
    assert ask(now_ms)[0] == 202


def test_an_unreachable_table_is_a_503(aws: Aws, now_ms: int) -> None:
    aws.clients.dynamodb.delete_table(TableName="ledger")
    assert ask(now_ms)[0] == 503


# -- the secret


def test_a_secret_that_is_gone_or_not_ours_to_read_opens_nothing(aws: Aws, now_ms: int) -> None:
    aws.secrets.delete_secret(SecretId=SECRET, ForceDeleteWithoutRecovery=True)
    assert ask(now_ms) == (503, {"accepted": False, "reason": "secret_unusable"})


def test_a_store_that_does_not_answer_is_said_so(aws: Aws, now_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "GetSecretValue")

    monkeypatch.setattr(aws.secrets, "get_secret_value", refuse)
    assert ask(now_ms) == (503, {"accepted": False, "reason": "secret_unavailable"})


# -- its rotation


def value(aws: Aws, stage: str) -> str:
    return str(aws.secrets.get_secret_value(SecretId=SECRET, VersionStage=stage)["SecretString"])


def test_a_rotation_makes_a_new_token_and_the_old_one_is_good_for_one_more(aws: Aws, now_ms: int) -> None:
    version = aws.labelled()
    aws.secrets.put_secret_value(
        SecretId=SECRET, ClientRequestToken=version, SecretString="rotated-canary-token-02", VersionStages=[PENDING]
    )
    aws.rotated("createSecret", "setSecret", "testSecret", "finishSecret", version=version)
    assert (value(aws, CURRENT), value(aws, "AWSPREVIOUS")) == ("rotated-canary-token-02", f"{TOKEN}\n")
    assert [ask(now_ms, token=token)[0] for token in ("rotated-canary-token-02", TOKEN)] == [202, 202]
    aws.rotated("finishSecret", version=version)  # Secrets Manager repeats a step whose answer was lost
    assert value(aws, CURRENT) == "rotated-canary-token-02"


def test_a_pending_value_that_the_webhook_would_refuse_never_becomes_current(aws: Aws) -> None:
    version = aws.labelled()
    with pytest.raises(RotationRefused, match="unusable"):
        aws.rotated("testSecret", version=version)
    assert value(aws, CURRENT) == f"{TOKEN}\n"


def test_a_pending_value_that_is_the_old_one_again_is_no_rotation(aws: Aws) -> None:
    version = str(uuid.uuid4())
    aws.secrets.put_secret_value(
        SecretId=SECRET, ClientRequestToken=version, SecretString=TOKEN, VersionStages=[PENDING]
    )
    aws.rotated("testSecret", version=version)  # what a new schedule runs, alone, on the present value
    with pytest.raises(RotationRefused, match="unchanged"):
        aws.rotated("finishSecret", version=version)


@pytest.mark.parametrize("step", ["createSecret", "finishSecret"])
def test_a_version_that_secrets_manager_did_not_announce_is_refused(aws: Aws, step: str) -> None:
    with pytest.raises(RotationRefused, match="unknown_version"):
        aws.rotated(step)


def test_a_step_that_nobody_knows_is_refused(aws: Aws) -> None:
    with pytest.raises(RotationRefused, match="unknown_step"):
        aws.rotated("dropSecret", version=aws.labelled())


class Versions:
    """A version that is announced and has no value yet, which moto cannot say."""

    def __init__(self) -> None:
        self.pending: list[str] = []

    def stages(self) -> dict[str, tuple[str, ...]]:
        return {"old": (CURRENT,), "new": (PENDING,)}

    def value(self, version: str, _stage: str) -> bytes | None:
        return TOKEN.encode() if version == "old" else (self.pending[-1].encode() if self.pending else None)

    def put_pending(self, version: str, value: str) -> None:
        assert version == "new"
        self.pending.append(value)

    def make_current(self, version: str, *, instead_of: str | None) -> None:
        assert (version, instead_of) == ("new", "old")


def test_a_new_token_is_made_once_long_and_fit_for_a_header(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    versions = Versions()
    monkeypatch.setattr(rotation, "rotation", lambda: (versions, JsonLog("rotation")))
    for step in ("createSecret", "createSecret", "setSecret", "testSecret", "finishSecret"):
        rotation.handler({"Step": step, "SecretId": "x", "ClientRequestToken": "new"}, None)
    (made,) = versions.pending
    assert len(made) == 48
    assert made.replace("-", "").replace("_", "").isalnum()
    assert made not in "".join(capfd.readouterr())


def test_a_rotation_that_cannot_reach_the_store_says_so(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise ReadTimeoutError(endpoint_url="secrets")

    monkeypatch.setattr(aws.secrets, "describe_secret", refuse)
    with pytest.raises(SecretUnavailable):
        aws.rotated("createSecret")
