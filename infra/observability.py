"""Log groups with a retention, and the alarms as a table: each property stated, none left to a default (fact F28).

The rows of the alarm table that every job class has. The metrics are what a closed tick emits, once a tick.
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
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.ledger import AtRest, pin
from infra.nag import LIES_WITH_THE_LOST, accept
from shared.domain.settings import ClassSettings, UpstreamSettings

LOG_RETENTION: Final = logs.RetentionDays.ONE_MONTH

LOG_LEVEL: Final = "INFO"

RETENTION_DAYS: Final = 14
"""Of messages, which is the most that SQS offers."""

RUNBOOK: Final = "docs/operations.md"

AT_LEAST: Final = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD

ABOVE: Final = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD

BELOW: Final = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD

# What a period without a data point means, decided for each alarm: the default (INSUFFICIENT_DATA) tells nobody.
GOOD: Final = cloudwatch.TreatMissingData.NOT_BREACHING

BAD: Final = cloudwatch.TreatMissingData.BREACHING

AS_BEFORE: Final = cloudwatch.TreatMissingData.IGNORE


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSpec:
    """One row of the alarm table. `means` is what a person reads at 3 a.m.: what happened, and what to do first.

    `runbook` is a heading of docs/operations.md. Plain metrics only: metric math has no alarm in most places but AWS.
    """

    name: str
    metric: cloudwatch.IMetric
    threshold: float
    comparison: cloudwatch.ComparisonOperator
    periods: int
    of_periods: int
    missing: cloudwatch.TreatMissingData
    means: str
    runbook: str


def log_group(scope: Construct, construct_id: str, *, at_rest: AtRest) -> logs.LogGroup:
    """A group of its own for each that writes. The service would otherwise make one that keeps everything for ever."""
    group = logs.LogGroup(
        scope,
        construct_id,
        retention=LOG_RETENTION,
        encryption_key=at_rest.key,
        removal_policy=at_rest.removal,
    )
    at_rest.explain(group, "HIPAA.Security-CloudWatchLogGroupEncrypted")
    return group


def messages_visible(name: str, queue: sqs.IQueue, *, means: str, runbook: str) -> AlarmSpec:
    """At least one message lies in a queue that should be empty.

    SQS publishes nothing for a queue that was idle for six hours: missing data means empty, so it is not breaching.
    """
    metric = queue.metric_approximate_number_of_messages_visible(statistic="Maximum", period=Duration.minutes(1))
    return at_once(name, metric, means=means, runbook=runbook)


def at_once(name: str, metric: cloudwatch.IMetric, *, means: str, runbook: str, at_least: int = 1) -> AlarmSpec:
    """One period is enough, and none without data is bad."""
    return AlarmSpec(
        name=name,
        metric=metric,
        threshold=at_least,
        comparison=AT_LEAST,
        periods=1,
        of_periods=1,
        missing=GOOD,
        means=means,
        runbook=runbook,
    )


def lost_queue(scope: Construct, logical_id: str, *, at_rest: AtRest) -> sqs.Queue:
    """Where the events end that no function could be told of, or that it failed at: a person looks."""
    queue = sqs.Queue(
        scope,
        logical_id,
        retention_period=Duration.days(RETENTION_DAYS),
        encryption=at_rest.queues,
        encryption_master_key=at_rest.key,
        enforce_ssl=True,
        removal_policy=at_rest.removal,
    )
    pin(queue, logical_id)
    accept(queue, {"AwsSolutions-SQS3": LIES_WITH_THE_LOST})
    return queue


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
                threshold=spec.threshold,
                comparison_operator=spec.comparison,
                datapoints_to_alarm=spec.periods,
                evaluation_periods=spec.of_periods,
                treat_missing_data=spec.missing,
                alarm_description=f"{spec.means} {RUNBOOK}#{spec.runbook.lower()}",
            )
            told = actions.SnsAction(self.topic)
            alarm.add_alarm_action(told)
            alarm.add_ok_action(told)
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


DIMENSION: Final = "JobClass"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """`runbook` is the heading, and the end of the alarm's name."""

    runbook: str
    metric: str
    comparison: cloudwatch.ComparisonOperator
    threshold: float
    periods: int
    means: str
    of_periods: int = 0
    statistic: str = "Maximum"
    missing: cloudwatch.TreatMissingData = AS_BEFORE


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
        yield AlarmSpec(
            name=f"{prefix}{row.runbook}",
            metric=cloudwatch.Metric(
                namespace=namespace,
                metric_name=row.metric,
                dimensions_map={DIMENSION: settings.name},
                statistic=row.statistic,
                period=Duration.seconds(settings.tick_interval_s),
            ),
            threshold=row.threshold,
            comparison=row.comparison,
            periods=row.periods,
            of_periods=row.of_periods or row.periods,
            missing=row.missing,
            means=f"{settings.name}: {row.means}",
            runbook=row.runbook,
        )


def _drain_rows(settings: ClassSettings) -> Iterator[_Row]:
    """When will it be over. Between ticks without an ETA the state stays: a gap is no good news."""
    yield _Row(
        runbook="DrainEta",
        metric="DrainEtaMinutes",
        comparison=ABOVE,
        threshold=round(settings.eta_objective_s / 60, 6),
        periods=3,
        means="the drain takes longer than its objective. `ops explain` names what binds it: raise that (slots, the"
        " upstream's limit or share), or tell those who wait.",
    )
    yield _Row(
        runbook="DrainEtaGrowing",
        metric="DrainEtaChangeMinutes",
        comparison=ABOVE,
        threshold=0,
        periods=3,
        missing=GOOD,
        means="the ETA rose for three ticks: more arrives than is finished. Change: slow the producers, or raise what"
        " `ops explain` says binds the rate (slots, upstream_share, the upstream's limit).",
    )
    yield _Row(
        runbook="DrainEtaAccelerating",
        metric="DrainEtaAccelerationMinutes",
        comparison=ABOVE,
        threshold=round(SLOWER_SHARE * settings.tick_interval_s / 60, 6),
        periods=3,
        missing=GOOD,
        means="the drain slowed down three ticks running. Look at refusals, retries and arrivals before it stalls.",
    )
    yield _Row(
        runbook="DrainStalled",
        metric="DrainStalled",
        comparison=AT_LEAST,
        threshold=1,
        periods=STALLED_TICKS,
        means="it will not drain: nothing is finished, or more arrives than is. Look at the worker's log, then at"
        " `ops explain`.",
    )
    yield _Row(
        runbook="DeferredAtZero",
        metric="DeferredAtZero",
        comparison=AT_LEAST,
        threshold=1,
        periods=3,
        missing=GOOD,
        means="every tick admits all that waits, and yet the drain takes more than two ticks: deferred rows are pinned"
        " at zero, the backlog lies in the queue. Change: raise declared_service_s to what jobs take, or lower"
        " max_inflight, or give the workers the slots that are configured.",
    )


def _pacer_rows() -> Iterator[_Row]:
    """Whether the class is looked after at all."""
    yield _Row(
        runbook="NoTick",
        metric="Ticks",
        statistic="Sum",
        comparison=BELOW,
        threshold=1,
        periods=2,
        missing=BAD,
        means="no tick has closed for two intervals: nothing is admitted and nothing is repaired. Look at the schedule,"
        " the lost ticks and the pacer's log.",
    )
    yield _Row(
        runbook="StoppedItself",
        metric="StoppedItself",
        comparison=AT_LEAST,
        threshold=1,
        periods=1,
        means="Sluice has paused the class: an abort condition held (age, starts over the allowance, retries, dead"
        " ratio, spend) or the upstream's quota is used up. `ops status` says which, `ops resume` goes on; nothing is"
        " deleted.",
    )


def _worker_rows(settings: ClassSettings) -> Iterator[_Row]:
    wall_s = settings.function_timeout_s - settings.chunk_margin_s
    yield _Row(
        runbook="ChunkNearTheWall",
        metric="P95ChunkSeconds",
        comparison=ABOVE,
        threshold=round(NEAR_THE_WALL * wall_s, 6),
        periods=3,
        means=f"the 95th percentile of a chunk is near the {wall_s:g} s that it may take: soon chunks are cut off and"
        " run again. Change: make chunks smaller in the kind, or raise function_timeout_s.",
    )
    if settings.tick_interval_s <= LONGEST_INTERVAL_FOR_STARTS_S:
        yield _Row(
            runbook="NoStarts",
            metric="WaitingWithoutStarts",
            comparison=AT_LEAST,
            threshold=1,
            periods=max(1, ceil(NO_STARTS_S / settings.tick_interval_s)),
            missing=GOOD,
            means="rows wait, the class is not paused, and no worker has begun anything for 15 minutes. Look at the"
            " event source mappings, the worker's errors and its concurrency.",
        )
    yield _Row(
        runbook="HopCap",
        metric="HopCaps",
        statistic="Sum",
        comparison=AT_LEAST,
        threshold=1,
        periods=1,
        missing=GOOD,
        means=f"a job went through {settings.max_hops} continuations and was given back to the pacer. It makes"
        " progress, but in far more chunks than were meant: look at its kind, or raise max_hops.",
    )


def _row_rows(settings: ClassSettings) -> Iterator[_Row]:
    """The rows of the ledger."""
    yield _Row(
        runbook="OldestAge",
        metric="OldestEligibleAgeSeconds",
        comparison=ABOVE,
        threshold=settings.age_objective_s,
        periods=3,
        means="a row has been eligible for longer than its objective. `ops status` shows whether the class is paused;"
        " `ops explain` what it waits for.",
    )
    yield _Row(
        runbook="DeadRows",
        metric="DeadRows",
        comparison=AT_LEAST,
        threshold=1,
        periods=1,
        means="jobs are dead and wait for an operator"
        + (", and hold their matches." if settings.ordered else ".")
        + " `ops dead list`, then retry, skip or replace.",
    )


def _spend_row(bound_usd: float) -> _Row:
    """A class without a bound has nothing to be near to."""
    return _Row(
        runbook="Spend",
        metric="SpendUsd",
        comparison=ABOVE,
        threshold=round(SPEND_SHARE * bound_usd, 6),
        periods=1,
        missing=GOOD,
        means=f"the last ten ticks spent more than {SPEND_SHARE:.0%} of the {bound_usd:g} USD at which the class stops"
        " by itself. `ops status` says on what, and what of it was wasted: refusals, repeats, stale messages.",
    )


def _upstream_rows(settings: ClassSettings, upstream: UpstreamSettings) -> Iterator[_Row]:
    yield _Row(
        runbook="Refusals",
        metric="RefusalRatio",
        comparison=ABOVE,
        threshold=upstream.refusal_threshold,
        periods=3,
        of_periods=5,
        missing=GOOD,
        means=f"{upstream.name} refuses more than {upstream.refusal_threshold:.0%} of the calls although the learned"
        " rate falls. Change: lower limit_per_s to what it accepts now, and find out who else calls it.",
    )
    yield _Row(
        runbook="PermitsStarved",
        metric="PermitsStarved",
        statistic="Sum",
        comparison=AT_LEAST,
        threshold=settings.slots,
        periods=3,
        missing=GOOD,
        means="as many jobs as there are slots went back for want of a permit, three ticks running: more is admitted"
        f" than {upstream.name} allows. Raise declared_calls_per_job, or lower slots or max_inflight.",
    )
