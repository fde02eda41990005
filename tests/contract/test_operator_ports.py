"""What only operators ask of AWS: the lanes' mappings, who the caller is, and what the metrics said yesterday."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from shared.aws.clients import Clients
from shared.aws.operator import CloudWatchHistory, LambdaMappings, caller_arn
from shared.domain.job import Lane
from shared.errors import HistoryUnavailable, MappingMissing, MappingsUnavailable
from shared.operate.ports import LaneMapping, Mappings
from tests.commands.memory import MemoryMappings
from tests.contract.worlds import CLASS, NOW_MS, SETTINGS, AwsWorld

DEPLOYED = {lane: SETTINGS.classes[CLASS].lane_slots(lane) for lane in Lane}


def deploy(world: AwsWorld) -> None:
    """A worker and a mapping per lane, as infra/job_class.py has them."""
    role = world.clients.for_person("iam").create_role(
        RoleName=world.name, AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": []})
    )
    functions = world.clients.for_person("lambda")
    functions.create_function(
        FunctionName=world.name,
        Runtime="python3.11",
        Role=role["Role"]["Arn"],
        Handler="content.handler",
        Code={"ZipFile": _zip()},
    )
    for lane, url in world.urls.items():
        asked = world.clients.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        functions.create_event_source_mapping(
            FunctionName=world.name,
            EventSourceArn=asked["Attributes"]["QueueArn"],
            ScalingConfig={"MaximumConcurrency": DEPLOYED[lane]},
        )


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("content.py", "def handler(event, context):\n    return {'batchItemFailures': []}\n")
    return buffer.getvalue()


@pytest.fixture(params=["memory", "moto", pytest.param("emulator", marks=pytest.mark.e2e)])
def mappings(request: pytest.FixtureRequest) -> Mappings:
    if request.param == "memory":
        made = MemoryMappings()
        made.deploy(SETTINGS)
        return made
    world: AwsWorld = request.getfixturevalue(f"{request.param}_world")
    deploy(world)
    return LambdaMappings(world.clients, {CLASS: world.urls})


def allowed(lanes: Mapping[Lane, LaneMapping]) -> dict[Lane, int | None]:
    return {lane: each.slots for lane, each in lanes.items()}


def test_each_lane_is_bounded_by_itself_and_read_back(mappings: Mappings) -> None:
    assert allowed(mappings.read(CLASS)) == DEPLOYED
    mappings.bound(CLASS, Lane.RECOVERY, slots=4)
    assert allowed(mappings.read(CLASS)) == DEPLOYED | {Lane.RECOVERY: 4}
    mappings.bound(CLASS, Lane.LIVE, slots=2)
    assert allowed(mappings.read(CLASS)) == {Lane.LIVE: 2, Lane.RECOVERY: 4}


def test_a_class_that_is_not_deployed_has_no_mapping(mappings: Mappings) -> None:
    with pytest.raises(MappingMissing):
        mappings.read("other")


def test_a_queue_without_a_mapping_is_named(moto_world: AwsWorld) -> None:
    with pytest.raises(MappingMissing, match="replay, live: 0 found"):
        LambdaMappings(moto_world.clients, {CLASS: moto_world.urls}).read(CLASS)


@dataclass(slots=True)
class Answers:
    """A client whose every call answers this, or raises it."""

    answer: dict[str, Any] | Exception

    def __getattr__(self, name: str) -> Any:
        def call(**request: Any) -> Any:
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return call


def clients(answer: dict[str, Any] | Exception) -> Clients:
    def make(service: str, config: Config) -> Any:
        return Answers(answer)

    return Clients(make)


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "Any")


MAPPED = {"Attributes": {"QueueArn": "arn"}, "EventSourceMappings": [{"UUID": "u", "State": "Updating"}]}
URLS = {CLASS: dict.fromkeys(Lane, "https://sqs/q")}


def test_a_mapping_that_is_being_changed_is_not_settled_and_one_without_a_bound_has_none() -> None:
    found = LambdaMappings(clients(MAPPED), URLS).read(CLASS)

    assert found == dict.fromkeys(Lane, LaneMapping(slots=None, settled=False))


def test_of_two_mappings_of_one_queue_none_is_guessed() -> None:
    twice = MAPPED | {"EventSourceMappings": [{"UUID": "u"}, {"UUID": "v"}]}
    with pytest.raises(MappingMissing, match="live: 2 found"):
        LambdaMappings(clients(twice), URLS).read(CLASS)


@pytest.mark.parametrize("code", ["ResourceInUseException", "TooManyRequestsException"])
def test_a_change_that_must_wait_can_be_tried_again(code: str) -> None:
    busy = Clients(lambda service, config: _Busy(refused(code)))

    with pytest.raises(MappingsUnavailable):
        LambdaMappings(busy, URLS).bound(CLASS, Lane.LIVE, slots=2)


class _Busy(Answers):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("update"):
            return Answers.__getattr__(self, name)
        return lambda **_: MAPPED


# -- who


def test_the_identity_is_the_arn_of_the_credentials(moto_world: AwsWorld) -> None:
    assert caller_arn(moto_world.clients) == "arn:aws:sts::123456789012:user/moto"


def test_an_assumed_role_keeps_the_name_of_its_session() -> None:
    arn = "arn:aws:sts::123456789012:assumed-role/Operators/ada@studio.example"

    assert caller_arn(clients({"Account": "123456789012", "Arn": arn})) == arn


@pytest.mark.parametrize("error", [refused("ExpiredToken"), ClientError({}, "GetCallerIdentity")])
def test_where_aws_does_not_say_who_it_is_nobody_knows(error: Exception) -> None:
    assert caller_arn(clients(error)) is None


def test_without_credentials_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")

    assert caller_arn(Clients()) is None


@pytest.mark.e2e
def test_to_an_emulator_everybody_is_the_same_and_so_nobody(emulator_world: AwsWorld) -> None:
    assert caller_arn(emulator_world.clients) is None


# -- yesterday

HOUR_MS = 3_600_000


@pytest.mark.parametrize("where", ["moto", pytest.param("emulator", marks=pytest.mark.e2e)])
def test_the_history_has_the_largest_value_of_each_hour_of_this_class(
    where: str, request: pytest.FixtureRequest
) -> None:
    world: AwsWorld = request.getfixturevalue(f"{where}_world")
    now_ms = int(datetime.now(tz=UTC).timestamp() * 1000)  # CloudWatch keeps what is recent
    start_ms = now_ms // HOUR_MS * HOUR_MS - 3 * HOUR_MS
    for minute, value, job_class in ((1, 3, CLASS), (2, 5, CLASS), (61, 0, CLASS), (62, 99, "other")):
        world.clients.for_person("cloudwatch").put_metric_data(
            Namespace=world.name,
            MetricData=[
                {
                    "MetricName": "DeferredRows",
                    "Dimensions": [{"Name": "JobClass", "Value": job_class}],
                    "Timestamp": datetime.fromtimestamp(start_ms / 1000 + minute * 60, tz=UTC),
                    "Value": value,
                }
            ],
        )
    history = CloudWatchHistory(world.clients, world.name)

    assert history.maxima(CLASS, "DeferredRows", since_ms=start_ms, until_ms=now_ms) == [5.0, 0.0]
    assert history.maxima(CLASS, "AdmittedRows", since_ms=start_ms, until_ms=now_ms) == []


def test_a_history_that_may_not_be_read_says_so() -> None:
    with pytest.raises(HistoryUnavailable, match="AccessDenied"):
        CloudWatchHistory(clients(refused("AccessDenied")), "Sluice").maxima(
            CLASS, "DeferredRows", since_ms=NOW_MS - HOUR_MS, until_ms=NOW_MS
        )
