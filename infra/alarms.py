"""The alarms as a table: each property stated, none left to a default (fact F28), and the topic that hears of them.

Here stand the rows that every job class has; those of the webhook, the producers and the queues stand with their parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final

import aws_cdk as cdk
from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.stores import AtRest, pin
from shared.domain.settings import ClassSettings, UpstreamSettings

RUNBOOK: Final = "docs/operations.md"

DIMENSION: Final = "JobClass"
"""The one dimension of our own metrics."""

# What a period without a data point means, decided for each alarm: the default (INSUFFICIENT_DATA) tells nobody.
GOOD: Final = cloudwatch.TreatMissingData.NOT_BREACHING

BAD: Final = cloudwatch.TreatMissingData.BREACHING

AS_BEFORE: Final = cloudwatch.TreatMissingData.IGNORE


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """When an alarm rings: the metric compares so in `periods` of the last `of_periods`."""

    comparison: cloudwatch.ComparisonOperator
    threshold: float
    periods: int
    of_periods: int
    missing: cloudwatch.TreatMissingData


def above(
    threshold: float, *, periods: int, missing: cloudwatch.TreatMissingData, of_periods: int | None = None
) -> Condition:
    return Condition(
        comparison=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
        threshold=round(threshold, 6),
        periods=periods,
        of_periods=of_periods or periods,
        missing=missing,
    )


def at_least(threshold: float, *, periods: int, missing: cloudwatch.TreatMissingData) -> Condition:
    return Condition(
        comparison=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        threshold=threshold,
        periods=periods,
        of_periods=periods,
        missing=missing,
    )


def never_for(periods: int) -> Condition:
    """Something that is counted did not happen. That nothing was published says the same: no data is the alarm."""
    return Condition(
        comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
        threshold=1,
        periods=periods,
        of_periods=periods,
        missing=BAD,
    )


ONCE: Final = at_least(1, periods=1, missing=GOOD)
"""It happened once."""


@dataclass(frozen=True, slots=True)
class AlarmSpec:
    """One row of the alarm table. `means` is what a person reads at 3 a.m.: what happened, and what to do first.

    `runbook` is a heading of docs/operations.md. Plain metrics only: metric math has no alarm in most places but AWS.
    """

    name: str
    metric: cloudwatch.IMetric
    condition: Condition
    means: str
    runbook: str


def messages_visible(name: str, queue: sqs.IQueue, *, means: str, runbook: str = "") -> AlarmSpec:
    """At least one message lies in a queue that should be empty. The runbook's heading is the name if none is given.

    SQS publishes nothing for a queue that was idle for six hours: missing data means empty, so it is not breaching.
    """
    metric = queue.metric_approximate_number_of_messages_visible(statistic="Maximum", period=Duration.minutes(1))
    return AlarmSpec(name, metric, ONCE, means, runbook or name)


def metric_of(
    job_class: str, metric: str, *, namespace: str, statistic: str, period_s: int, label: str | None = None
) -> cloudwatch.Metric:
    """One of Sluice's own metrics, of one class."""
    return cloudwatch.Metric(
        namespace=namespace,
        metric_name=metric,
        dimensions_map={DIMENSION: job_class},
        label=label,
        statistic=statistic,
        period=Duration.seconds(period_s),
    )


class Alarms(Construct):
    """The alarm table, carried out, and the one topic that hears of each alarm's beginning and end."""

    def __init__(self, scope: Construct, construct_id: str, *, table: Iterable[AlarmSpec], at_rest: AtRest) -> None:
        super().__init__(scope, construct_id)
        self.topic = self._topic(at_rest)
        self.alarms: list[cloudwatch.Alarm] = []
        for spec in table:
            alarm = cloudwatch.Alarm(
                self,
                spec.name,
                metric=spec.metric,
                threshold=spec.condition.threshold,
                comparison_operator=spec.condition.comparison,
                datapoints_to_alarm=spec.condition.periods,
                evaluation_periods=spec.condition.of_periods,
                treat_missing_data=spec.condition.missing,
                alarm_description=f"{spec.means} {RUNBOOK}#{spec.runbook.lower()}",
            )
            to_topic = actions.SnsAction(self.topic)
            alarm.add_alarm_action(to_topic)
            alarm.add_ok_action(to_topic)
            self.alarms.append(alarm)

    def _topic(self, at_rest: AtRest) -> sns.Topic:
        """Subscriptions are made outside (people change more often than stacks), so its logical id is pinned.

        Never encrypted with the AWS-managed key, under which CloudWatch may not publish; its messages name a class and
        a number. A policy of our own replaces the default one, and so has to let this account's alarms in.
        """
        topic = sns.Topic(self, "Topic", enforce_ssl=True, master_key=at_rest.key)
        pin(topic, "AlarmTopic")
        at_rest.explain(topic, "HIPAA.Security-SNSEncryptedKMS")
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsOfThisAccount",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": cdk.Stack.of(self).account}},
            )
        )
        return topic


NEAR_THE_WALL: Final = 0.8
"""Of the time that a chunk may take: the function's timeout less the margin for its commit."""

SLOWER_SHARE: Final = 0.25
"""Of an interval: an ETA that falls by this much less from tick to tick slows down. Less is noise: the ETA is observed
over a few ticks, and which jobs end in which tick is chance."""

STALLED_TICKS: Final = 6
"""One more than the ticks that the ETA is observed over: a burst that was submitted at once must have left them, or
every bulk submission would look like a drain that goes backwards."""

NO_STARTS_S: Final = 600
"""On top of the five minutes that the metric looks back over: 15 minutes without a start."""

LONGEST_INTERVAL_FOR_STARTS_S: Final = 600
"""A class that ticks more rarely has idle minutes between two ticks by design; its stalled alarm has to do."""

SPEND_SHARE: Final = 0.8
"""Of the bound at which the class stops by itself: somebody may still decide before it does."""


@dataclass(frozen=True, slots=True)
class _Row:
    """An alarm on what a closed tick emits, once a tick. `runbook` is the heading, and the end of the alarm's name."""

    runbook: str
    metric: str
    condition: Condition
    means: str
    statistic: str = "Maximum"


def class_alarms(
    prefix: str, settings: ClassSettings, upstream: UpstreamSettings | None, *, namespace: str
) -> Iterator[AlarmSpec]:
    """Every alarm of one class, in periods of its own tick interval."""
    rows = [*_drain_rows(settings), *_pacer_rows(), *_worker_rows(settings), *_row_rows(settings)]
    if upstream is not None:
        rows += _upstream_rows(settings, upstream)
    if settings.abort.spend_usd is not None:
        rows.append(_spend_row(settings.abort.spend_usd))
    for row in rows:
        metric = metric_of(
            settings.name,
            row.metric,
            namespace=namespace,
            statistic=row.statistic,
            period_s=settings.tick_interval_s,
        )
        yield AlarmSpec(f"{prefix}{row.runbook}", metric, row.condition, f"{settings.name}: {row.means}", row.runbook)


def _drain_rows(settings: ClassSettings) -> Iterator[_Row]:
    """When will it be over. Between ticks without an ETA the state stays: a gap is no good news."""
    yield _Row(
        "DrainEta",
        "DrainEtaMinutes",
        above(settings.eta_objective_s / 60, periods=3, missing=AS_BEFORE),
        "the drain takes longer than its objective. `ops explain` names what binds it: raise that (slots, the"
        " upstream's limit or share), or tell those who wait.",
    )
    yield _Row(
        "DrainEtaGrowing",
        "DrainEtaChangeMinutes",
        above(0, periods=3, missing=GOOD),
        "the ETA rose for three ticks: more arrives than is finished. Change: slow the producers, or raise what"
        " `ops explain` says binds the rate (slots, upstream_share, the upstream's limit).",
    )
    yield _Row(
        "DrainEtaAccelerating",
        "DrainEtaAccelerationMinutes",
        above(SLOWER_SHARE * settings.tick_interval_s / 60, periods=3, missing=GOOD),
        "the drain slowed down three ticks running. Look at refusals, retries and arrivals before it stalls.",
    )
    yield _Row(
        "DrainStalled",
        "DrainStalled",
        at_least(1, periods=STALLED_TICKS, missing=AS_BEFORE),
        "it will not drain: nothing is finished, or more arrives than is. Look at the worker's log, then at"
        " `ops explain`.",
    )
    yield _Row(
        "DeferredAtZero",
        "DeferredAtZero",
        at_least(1, periods=3, missing=GOOD),
        "every tick admits all that waits, and yet the drain takes more than two ticks: deferred rows are pinned"
        " at zero, the backlog lies in the queue. Change: raise declared_service_s to what jobs take, or lower"
        " max_inflight, or give the workers the slots that are configured.",
    )


def _pacer_rows() -> Iterator[_Row]:
    """Whether the class is looked after at all."""
    yield _Row(
        "NoTick",
        "Ticks",
        never_for(2),
        "no tick has closed for two intervals: nothing is admitted and nothing is repaired. Look at the schedule,"
        " the lost ticks and the pacer's log.",
        statistic="Sum",
    )
    yield _Row(
        "StoppedItself",
        "StoppedItself",
        at_least(1, periods=1, missing=AS_BEFORE),
        "Sluice has paused the class: an abort condition held (age, starts over the allowance, retries, dead"
        " ratio, spend) or the upstream's quota is used up. `ops status` says which, `ops resume` goes on; nothing is"
        " deleted.",
    )


def _worker_rows(settings: ClassSettings) -> Iterator[_Row]:
    wall_s = settings.function_timeout_s - settings.chunk_margin_s
    yield _Row(
        "ChunkNearTheWall",
        "P95ChunkSeconds",
        above(NEAR_THE_WALL * wall_s, periods=3, missing=AS_BEFORE),
        f"the 95th percentile of a chunk is near the {wall_s:g} s that it may take: soon chunks are cut off and"
        " run again. Change: make chunks smaller in the kind, or raise function_timeout_s.",
    )
    if settings.tick_interval_s <= LONGEST_INTERVAL_FOR_STARTS_S:
        yield _Row(
            "NoStarts",
            "WaitingWithoutStarts",
            at_least(1, periods=max(1, ceil(NO_STARTS_S / settings.tick_interval_s)), missing=GOOD),
            "rows wait, the class is not paused, and no worker has begun anything for 15 minutes. Look at the"
            " event source mappings, the worker's errors and its concurrency.",
        )
    yield _Row(
        "HopCap",
        "HopCaps",
        ONCE,
        f"a job went through {settings.max_hops} continuations and was given back to the pacer. It makes"
        " progress, but in far more chunks than were meant: look at its kind, or raise max_hops.",
        statistic="Sum",
    )


def _row_rows(settings: ClassSettings) -> Iterator[_Row]:
    """The rows of the ledger."""
    yield _Row(
        "OldestAge",
        "OldestEligibleAgeSeconds",
        above(settings.age_objective_s, periods=3, missing=AS_BEFORE),
        "a row has been eligible for longer than its objective. `ops status` shows whether the class is paused;"
        " `ops explain` what it waits for.",
    )
    yield _Row(
        "DeadRows",
        "DeadRows",
        at_least(1, periods=1, missing=AS_BEFORE),
        "jobs are dead and wait for an operator"
        + (", and hold their matches." if settings.ordered else ".")
        + " `ops dead list`, then retry, skip or replace.",
    )


def _spend_row(bound_usd: float) -> _Row:
    """A class without a bound has nothing to be near to."""
    return _Row(
        "Spend",
        "SpendUsd",
        above(SPEND_SHARE * bound_usd, periods=1, missing=GOOD),
        f"the last ten ticks spent more than {SPEND_SHARE:.0%} of the {bound_usd:g} USD at which the class stops"
        " by itself. `ops status` says on what, and what of it was wasted: refusals, repeats, stale messages.",
    )


def _upstream_rows(settings: ClassSettings, upstream: UpstreamSettings) -> Iterator[_Row]:
    yield _Row(
        "Refusals",
        "RefusalRatio",
        above(upstream.refusal_threshold, periods=3, of_periods=5, missing=GOOD),
        f"{upstream.name} refuses more than {upstream.refusal_threshold:.0%} of the calls although the learned"
        " rate falls. Change: lower limit_per_s to what it accepts now, and find out who else calls it.",
    )
    yield _Row(
        "PermitsStarved",
        "PermitsStarved",
        at_least(settings.slots, periods=3, missing=GOOD),
        "as many jobs as there are slots went back for want of a permit, three ticks running: more is admitted"
        f" than {upstream.name} allows. Raise declared_calls_per_job, or lower slots or max_inflight.",
        statistic="Sum",
    )
