"""The tables of others that a kind works on: its class's options name them, its worker alone is granted them.

Which models of Bedrock a worker may ask: exactly the one that its upstream names.

What one job class gets: a queue, a dead-letter queue and a mapping per lane, a worker, a schedule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import aws_cdk as cdk
from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.function import Shipment, SluiceFunction
from infra.ledger import AtRest, pin
from infra.nag import Trigger
from infra.observability import RETENTION_DAYS
from shared.domain.job import Lane
from shared.domain.settings import MAX_LANE_SLOTS, MIN_LANE_SLOTS, ClassSettings, UpstreamApi, UpstreamSettings

_TABLE_NAME: Final = r"[A-Za-z0-9_.-]{3,255}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindTable:
    """Which of a class's options names the table, and what its worker does with the table's items."""

    option: str
    actions: tuple[str, ...]


KIND_TABLES: Final[Mapping[str, KindTable]] = {
    "guild_weekly_report": KindTable(option="matches_table", actions=("dynamodb:Query",)),
    "session_sweep": KindTable(option="sessions_table", actions=("dynamodb:Scan", "dynamodb:DeleteItem")),
}
"""A kind that works on a table of its own has a line here: this is all that its file cannot say for itself."""


def kind_table_faults(settings: ClassSettings) -> list[str]:
    """Without its table's name a worker would be deployed that can only fail."""
    table = KIND_TABLES.get(settings.kind)
    if table is None:
        return []
    name = settings.options.get(table.option, "")
    if re.fullmatch(_TABLE_NAME, name):
        return []
    got = "other text" if name else "nothing"
    return [
        f"classes.{settings.name}.options.{table.option}: got {got}, expected a DynamoDB table's name:"
        " 3 to 255 of A-Z, a-z, 0-9, _, - and ."
    ]


ANY_REGION: Final = (
    "An inference profile calls its model in whichever region of its geography has room; the grant is on this model"
    " alone."
)

_GEOGRAPHY: Final = re.compile(r"(?:us|us-gov|eu|apac|jp|au|ca|global)\.(?=[^.]+\.)")
"""Begins the id of an inference profile, which calls the model behind it in a region of its own choice."""


def model_arns(stack: cdk.Stack, upstream: UpstreamSettings | None) -> list[str]:
    if upstream is None or upstream.api is not UpstreamApi.CONVERSE:
        return []
    if upstream.model.startswith("arn:"):
        return [upstream.model]
    model, profiles = _of_profile(upstream)
    region = "*" if profiles else stack.region
    own = stack.format_arn(
        service="bedrock", region=region, account="", resource="foundation-model", resource_name=model
    )
    if not profiles:
        return [own]
    return [own, stack.format_arn(service="bedrock", resource="inference-profile", resource_name=upstream.model)]


def region_exceptions(upstream: UpstreamSettings | None) -> dict[str, str]:
    """What cdk-nag is told of the grant on a model: the wildcard in it, if there is one, with its reason."""
    if upstream is None or upstream.api is not UpstreamApi.CONVERSE:
        return {}
    model, profiles = _of_profile(upstream)
    if not profiles:
        return {}
    return {f"AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:bedrock:*::foundation-model/{model}]": ANY_REGION}


def _of_profile(upstream: UpstreamSettings) -> tuple[str, int]:
    """The model itself, and 1 where its id is that of a profile."""
    return _GEOGRAPHY.subn("", upstream.model, count=1)


DEAD_LETTER_TIMEOUT_S: Final = 30

DEAD_LETTER_VISIBILITY_S: Final = DEAD_LETTER_TIMEOUT_S + 10

SCHEDULE_RETRIES: Final = 3

_SCHEDULE_MIN_AGE_S: Final = 60

_SCHEDULE_MAX_AGE_S: Final = 86_400


class LaneQueue(Construct):
    """One lane's FIFO queue and the FIFO queue that its dead messages go to."""

    def __init__(
        self, scope: Construct, construct_id: str, *, prefix: str, visibility_s: int, max_receives: int, at_rest: AtRest
    ) -> None:
        super().__init__(scope, construct_id)
        self.dead_letters = _fifo(self, "DeadLetters", visibility_s=DEAD_LETTER_VISIBILITY_S, at_rest=at_rest)
        self.queue = _fifo(
            self,
            "Queue",
            visibility_s=visibility_s,
            at_rest=at_rest,
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=max_receives),
        )
        pin(self.queue, f"{prefix}Queue")
        pin(self.dead_letters, f"{prefix}DeadLetters")


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
    def live_queue_arn(self) -> str:
        return self.lanes[Lane.LIVE].queue.queue_arn

    @property
    def dead_letter_arns(self) -> list[str]:
        return [lane_queue.dead_letters.queue_arn for lane_queue in self.lanes.values()]

    def worker(self, shipment: Shipment, *, environment: Mapping[str, str]) -> SluiceFunction:
        """Lambda stops a worker -> queue -> worker chain at about 16 hops unless told that it is meant (fact F15)."""
        return SluiceFunction(
            self,
            "Worker",
            service="sluice-worker",
            trigger=Trigger.QUEUE,
            handler="functions.worker.handler.handler",
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

    def schedule(self, *, target_arn: str, role: iam.IRole, dead_letter_arn: str) -> None:
        """Tick the pacer. The scheduled time, and not the arrival, is the run's identity (I6): it travels in the input.

        A tick older than two intervals has nothing left to do, so no delivery is tried for longer.
        """
        schedule = scheduler.CfnSchedule(
            self,
            "Schedule",
            description=f"Ticks the pacer for {self.settings.name}",
            schedule_expression=rate(self.settings.tick_interval_s),
            schedule_expression_timezone="UTC",
            state="ENABLED",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=target_arn,
                role_arn=role.role_arn,
                input=json.dumps({"job_class": self.settings.name, "scheduled_at": "<aws.scheduler.scheduled-time>"}),
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_event_age_in_seconds=two_ticks_s(self.settings.tick_interval_s),
                    maximum_retry_attempts=SCHEDULE_RETRIES,
                ),
                dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(arn=dead_letter_arn),
            ),
        )
        schedule.node.add_dependency(role)


def class_id(name: str) -> str:
    """`replay_summary` -> `ReplaySummary`: the prefix of the class's pinned logical ids."""
    return "".join(part.capitalize() for part in re.split(r"[^A-Za-z0-9]+", name))


def layer_id(kind: str) -> str:
    """The layer with the dependencies of one kind alone."""
    return f"{class_id(kind)}Dependencies"


def class_faults(settings: ClassSettings) -> list[str]:
    """What AWS would refuse half-way through a deployment, found at synth."""
    faults = []
    where = f"classes.{settings.name}"
    if settings.visibility_s < settings.function_timeout_s:
        faults.append(
            f"{where}: got a queue visibility of {settings.visibility_s} s,"
            f" expected at least the function timeout of {settings.function_timeout_s} s"
        )
    for lane in Lane:
        if not MIN_LANE_SLOTS <= settings.lane_slots(lane) <= MAX_LANE_SLOTS:
            faults.append(
                f"{where}.slots: got {settings.lane_slots(lane)} for the {lane} lane,"
                f" expected {MIN_LANE_SLOTS} to {MAX_LANE_SLOTS}"
            )
    if settings.tick_interval_s < 60 or settings.tick_interval_s % 60:
        faults.append(f"{where}.tick_interval_s: got {settings.tick_interval_s}, expected whole minutes")
    return faults + kind_table_faults(settings)


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


def _fifo(
    scope: Construct,
    construct_id: str,
    *,
    visibility_s: int,
    at_rest: AtRest,
    dead_letter_queue: sqs.DeadLetterQueue | None = None,
) -> sqs.Queue:
    """A FIFO queue in high-throughput mode, which needs both settings: dedup and quota per message group."""
    return sqs.Queue(
        scope,
        construct_id,
        fifo=True,
        content_based_deduplication=False,
        deduplication_scope=sqs.DeduplicationScope.MESSAGE_GROUP,
        fifo_throughput_limit=sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID,
        visibility_timeout=Duration.seconds(visibility_s),
        retention_period=Duration.days(RETENTION_DAYS),
        encryption=at_rest.queues,
        encryption_master_key=at_rest.key,
        enforce_ssl=True,
        dead_letter_queue=dead_letter_queue,
        removal_policy=at_rest.removal,
    )
