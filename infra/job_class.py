"""What one job class gets: a queue, a dead-letter queue and a mapping per lane, a worker with what its kind and its
upstream need, and a schedule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.function import Schedules, Shipment, SluiceFunction
from infra.nag import Trigger
from infra.stores import AtRest, fifo_queue
from shared.domain.job import Lane
from shared.domain.settings import MIN_LANE_SLOTS, ClassSettings, UpstreamApi, UpstreamSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class KindTable:
    """Which of a class's options names the table, and what its worker does with the table's items."""

    option: str
    actions: tuple[str, ...]


KIND_TABLES: Final[Mapping[str, KindTable]] = {
    "guild_weekly_report": KindTable(option="matches_table", actions=("dynamodb:Query",)),
    "session_sweep": KindTable(option="sessions_table", actions=("dynamodb:Scan", "dynamodb:DeleteItem")),
}
"""The tables of others that a kind works on: its class's options name them, its worker alone is granted them. A kind
that has such a table has an entry here, and this is all that its file cannot say for itself."""


ANY_REGION: Final = (
    "An inference profile calls its model in whichever region of its geography has room; the grant is on this model"
    " alone."
)

_GEOGRAPHY: Final = re.compile(r"(?:us|us-gov|eu|apac|jp|au|ca|global)\.(?=[^.]+\.)")
"""Begins the id of an inference profile, which calls the model behind it in a region of its own choice."""


def models(stack: cdk.Stack, upstream: UpstreamSettings | None) -> tuple[list[str], dict[str, str]]:
    """The models of Bedrock that a worker may ask, by ARN: exactly the one that its upstream names. And what cdk-nag is
    told of them: the wildcard in the grant, if there is one, with its reason."""
    if upstream is None or upstream.api is not UpstreamApi.CONVERSE:
        return [], {}
    if upstream.model.startswith("arn:"):
        return [upstream.model], {}
    model, profiles = _GEOGRAPHY.subn("", upstream.model, count=1)
    region = "*" if profiles else stack.region
    arns = [
        stack.format_arn(service="bedrock", region=region, account="", resource="foundation-model", resource_name=model)
    ]
    if not profiles:
        return arns, {}
    arns.append(stack.format_arn(service="bedrock", resource="inference-profile", resource_name=upstream.model))
    return arns, {f"AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:bedrock:*::foundation-model/{model}]": ANY_REGION}


DEAD_LETTER_TIMEOUT_S: Final = 30
DEAD_LETTER_VISIBILITY_S: Final = DEAD_LETTER_TIMEOUT_S + 10
"""A message stays out of sight for longer than its reader can work on it."""

SCHEDULE_RETRIES: Final = 3
_SCHEDULE_MIN_AGE_S: Final = 60
_SCHEDULE_MAX_AGE_S: Final = 86_400


class LaneQueue(Construct):
    """One lane's FIFO queue and the FIFO queue that its dead messages go to."""

    def __init__(
        self, scope: Construct, construct_id: str, *, prefix: str, visibility_s: int, max_receives: int, at_rest: AtRest
    ) -> None:
        super().__init__(scope, construct_id)
        self.dead_letters = fifo_queue(
            self, "DeadLetters", f"{prefix}DeadLetters", visibility_s=DEAD_LETTER_VISIBILITY_S, at_rest=at_rest
        )
        self.queue = fifo_queue(
            self,
            "Queue",
            f"{prefix}Queue",
            visibility_s=visibility_s,
            at_rest=at_rest,
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=max_receives),
        )


class JobClass(Construct):
    """One job class: the unit of pacing, and so of queues, worker and schedule."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: ClassSettings, at_rest: AtRest) -> None:
        super().__init__(scope, construct_id)
        self.settings = settings
        self.lanes: Mapping[Lane, LaneQueue] = {
            lane: LaneQueue(
                self,
                lane.capitalize(),
                prefix=f"{construct_id}{lane.capitalize()}",
                visibility_s=settings.visibility_s,
                max_receives=settings.max_receives,
                at_rest=at_rest,
            )
            for lane in Lane
        }

    @property
    def queue_urls(self) -> dict[str, str]:
        return {lane.value: lane_queue.queue.queue_url for lane, lane_queue in self.lanes.items()}

    @property
    def queue_arns(self) -> list[str]:
        return [lane_queue.queue.queue_arn for lane_queue in self.lanes.values()]

    @property
    def dead_letter_arns(self) -> list[str]:
        return [lane_queue.dead_letters.queue_arn for lane_queue in self.lanes.values()]

    def worker(self, shipment: Shipment, *, environment: Mapping[str, str]) -> SluiceFunction:
        """Lambda stops a worker -> queue -> worker chain at about 16 hops unless told that it is meant (fact F15)."""
        return SluiceFunction(
            self,
            "Worker",
            room="worker",
            trigger=Trigger.QUEUE,
            timeout_s=self.settings.function_timeout_s,
            memory_mb=self.settings.memory_mb,
            shipment=shipment,
            environment=environment,
            kind=self.settings.kind,
            recursive=True,
        )

    def feed(self, worker: SluiceFunction) -> None:
        """Map each lane to the worker, with the lane's share of the slots."""
        for lane, lane_queue in self.lanes.items():
            map_queue(
                lane_queue.queue,
                worker,
                batch_size=self.settings.batch_size,
                max_concurrency=self.settings.lane_slots(lane),
            )

    def feed_dead_letters(self, reader: SluiceFunction) -> None:
        for lane_queue in self.lanes.values():
            map_queue(lane_queue.dead_letters, reader, batch_size=10, max_concurrency=MIN_LANE_SLOTS)

    def schedule(self, schedules: Schedules) -> None:
        """Tick the pacer. A tick older than two intervals has nothing left to do: no delivery is tried for longer."""
        interval_s = self.settings.tick_interval_s
        schedules.add(
            self,
            "Schedule",
            description=f"Ticks the pacer for {self.settings.name}",
            expression=rate(interval_s),
            event={"job_class": self.settings.name},
            max_age_s=two_ticks_s(interval_s),
            retries=SCHEDULE_RETRIES,
        )


def class_id(name: str) -> str:
    """`replay_summary` -> `ReplaySummary`: the prefix of the class's pinned logical ids."""
    return "".join(part.capitalize() for part in re.split(r"[^A-Za-z0-9]+", name))


def layer_id(kind: str) -> str:
    """The layer with the dependencies of one kind alone."""
    return f"{class_id(kind)}Dependencies"


def rate(interval_s: int) -> str:
    minutes = interval_s // 60
    return f"rate({minutes} minute{'' if minutes == 1 else 's'})"


def two_ticks_s(interval_s: int) -> int:
    """At most two ticks, within what EventBridge Scheduler accepts."""
    return min(max(2 * interval_s, _SCHEDULE_MIN_AGE_S), _SCHEDULE_MAX_AGE_S)


def map_queue(queue: sqs.Queue, consumer: SluiceFunction, *, batch_size: int, max_concurrency: int) -> None:
    """An event source mapping. AWS checks the consumer's role when it is created, so the grants come first."""
    mapping = lambda_.EventSourceMapping(
        queue,
        "Mapping",
        target=consumer.function,
        event_source_arn=queue.queue_arn,
        batch_size=batch_size,
        max_concurrency=max_concurrency,
        report_batch_item_failures=True,
        enabled=True,
    )
    mapping.node.add_dependency(consumer.role)
