"""Log groups with a retention, and the alarms as a table: each property stated, none left to a default (TRAPS 29)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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

from infra.at_rest import AtRest, pin
from infra.nag import LIES_WITH_THE_LOST, accept

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
