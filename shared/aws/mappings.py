"""The event source mappings of a class's lanes, found by the queues that they read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from botocore.exceptions import ClientError

from shared.aws.clients import Clients, answered, code_of
from shared.core.exchange import LaneMapping
from shared.core.model import Lane
from shared.errors import MappingMissing, MappingsUnavailable

_SETTLED: Final = frozenset({"Enabled", "Disabled"})
_BUSY: Final = "ResourceInUseException"


class LambdaMappings:
    """`queue_urls`: class -> lane -> URL. The mapping's id is asked for every time: a deployment may replace it."""

    def __init__(self, clients: Clients, queue_urls: Mapping[str, Mapping[Lane, str]]) -> None:
        self._clients = clients
        self._urls = queue_urls

    def read(self, job_class: str) -> dict[Lane, LaneMapping]:
        found = {lane: self._find(job_class, lane) for lane in Lane}
        return {
            lane: LaneMapping(
                slots=(each.get("ScalingConfig") or {}).get("MaximumConcurrency"),
                settled=each.get("State", "Enabled") in _SETTLED,
            )
            for lane, each in found.items()
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
            asked = self._clients.for_person("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
            arn = asked["Attributes"]["QueueArn"]
            found: list[dict[str, Any]] = self._functions.list_event_source_mappings(EventSourceArn=arn)[
                "EventSourceMappings"
            ]
        if len(found) != 1:
            raise MappingMissing(f"{job_class}, {lane}: {len(found)} found")
        return found[0]
