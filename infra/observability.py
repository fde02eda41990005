"""Log groups with a retention, and the alarms as a table: each property stated, none left to a default (TRAPS 29)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.ledger import removal

LOG_RETENTION: Final = logs.RetentionDays.ONE_MONTH
LOG_LEVEL: Final = "INFO"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSpec:
    """One row of the alarm table. `means` is what a person reads at 3 a.m.: what happened, and what to do first."""

    name: str
    metric: cloudwatch.IMetric
    threshold: float
    comparison: cloudwatch.ComparisonOperator
    periods: int
    of_periods: int
    missing: cloudwatch.TreatMissingData
    means: str


def function_log_group(scope: Construct, *, ephemeral: bool) -> logs.LogGroup:
    """The function's own group. Lambda would otherwise make one that keeps everything for ever."""
    return logs.LogGroup(scope, "Logs", retention=LOG_RETENTION, removal_policy=removal(ephemeral))


def messages_visible(name: str, queue: sqs.IQueue, *, means: str) -> AlarmSpec:
    """At least one message lies in a queue that should be empty.

    SQS publishes nothing for a queue that was idle for six hours: missing data means empty, so it is not breaching.
    """
    metric = queue.metric_approximate_number_of_messages_visible(statistic="Maximum", period=Duration.minutes(1))
    return AlarmSpec(
        name=name,
        metric=metric,
        threshold=1,
        comparison=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        periods=1,
        of_periods=1,
        missing=cloudwatch.TreatMissingData.NOT_BREACHING,
        means=means,
    )


class Alarms(Construct):
    """The alarm table, carried out."""

    def __init__(self, scope: Construct, construct_id: str, *, table: Iterable[AlarmSpec]) -> None:
        super().__init__(scope, construct_id)
        for spec in table:
            cloudwatch.Alarm(
                self,
                spec.name,
                metric=spec.metric,
                threshold=spec.threshold,
                comparison_operator=spec.comparison,
                datapoints_to_alarm=spec.periods,
                evaluation_periods=spec.of_periods,
                treat_missing_data=spec.missing,
                alarm_description=spec.means,
            )
