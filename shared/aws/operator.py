"""What only an operator's command asks of AWS: the mappings of a class's lanes, past metrics, and who the caller is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from shared.aws.clients import Clients, answered, code_of
from shared.aws.telemetry import DIMENSION
from shared.domain.job import Lane
from shared.errors import HistoryUnavailable, MappingMissing, MappingsUnavailable
from shared.operate.ports import LaneMapping

_SETTLED: Final = frozenset({"Enabled", "Disabled"})
"""The states of a mapping whose last change is in force."""

_BUSY: Final = "ResourceInUseException"
"""The mapping is being changed by somebody else."""


class LambdaMappings:
    """`queue_urls`: class -> lane -> URL. The mapping's id is asked for every time: a deployment may replace it."""

    def __init__(self, clients: Clients, queue_urls: Mapping[str, Mapping[Lane, str]]) -> None:
        self._clients = clients
        self._urls = queue_urls

    def read(self, job_class: str) -> dict[Lane, LaneMapping]:
        mappings = {lane: self._find(job_class, lane) for lane in Lane}
        return {
            lane: LaneMapping(
                slots=(mapping.get("ScalingConfig") or {}).get("MaximumConcurrency"),
                settled=mapping.get("State", "Enabled") in _SETTLED,
            )
            for lane, mapping in mappings.items()
        }

    def bound(self, job_class: str, lane: Lane, *, slots: int) -> None:
        uuid = self._find(job_class, lane)["UUID"]
        try:
            with answered(MappingsUnavailable):
                self._functions.update_event_source_mapping(UUID=uuid, ScalingConfig={"MaximumConcurrency": slots})
        except ClientError as error:
            if code_of(error) != _BUSY:
                raise
            raise MappingsUnavailable("busy") from error

    @property
    def _functions(self) -> Any:
        return self._clients.for_person("lambda")

    def _find(self, job_class: str, lane: Lane) -> dict[str, Any]:
        """The one mapping of the lane's queue."""
        url = self._urls.get(job_class, {}).get(lane)
        if url is None:
            raise MappingMissing(f"{job_class}, {lane}: its queue is not known")
        with answered(MappingsUnavailable):
            queue = self._clients.for_person("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
            answer = self._functions.list_event_source_mappings(EventSourceArn=queue["Attributes"]["QueueArn"])
        mappings: list[dict[str, Any]] = answer["EventSourceMappings"]
        if len(mappings) != 1:
            raise MappingMissing(f"{job_class}, {lane}: {len(mappings)} found")
        return mappings[0]


_HOUR_S: Final = 3600


class CloudWatchHistory:
    def __init__(self, clients: Clients, namespace: str) -> None:
        self._clients = clients
        self._namespace = namespace

    def maxima(self, job_class: str, metric: str, *, since_ms: int, until_ms: int) -> list[float]:
        """One value an hour, at most a day of them in one answer. Every failure is `HistoryUnavailable`: what asks for
        the past can do without it."""
        try:
            answer = self._clients.for_person("cloudwatch").get_metric_statistics(
                Namespace=self._namespace,
                MetricName=metric,
                Dimensions=[{"Name": DIMENSION, "Value": job_class}],
                StartTime=datetime.fromtimestamp(since_ms / 1000, tz=UTC),
                EndTime=datetime.fromtimestamp(until_ms / 1000, tz=UTC),
                Period=_HOUR_S,
                Statistics=["Maximum"],
            )
        except ClientError as error:
            raise HistoryUnavailable(code_of(error)) from error
        except BotoCoreError as error:
            raise HistoryUnavailable(type(error).__name__) from error
        points = sorted(answer["Datapoints"], key=lambda point: point["Timestamp"])
        return [float(point["Maximum"]) for point in points]


_NO_ACCOUNT: Final = "000000000000"
"""The account that emulators make up."""


def caller_arn(clients: Clients) -> str | None:
    """The ARN of the credentials in use, an assumed role's session name included. Needs no permission.

    None where AWS does not say: no credentials, no answer, or an emulator, to which everybody is the same.
    """
    try:
        identity = clients.identity.get_caller_identity()
    except (BotoCoreError, ClientError):
        return None
    return None if identity["Account"] == _NO_ACCOUNT else str(identity["Arn"])
