"""One look: when is it over, for every class; then why, class by class. Names of classes, no identifiers (I12)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.alarms import metric_of
from shared.domain.settings import ClassSettings, Settings

_WHOLE: Final = 24
_THIRD: Final = 8
_HEIGHT: Final = 6
_GRAPH_PERIOD_S: Final = 60
_ANSWERS_A_ROW: Final = 3


class Dashboard(Construct):
    """Named by CloudFormation, so that two stacks of one account have two."""

    def __init__(
        self, scope: Construct, construct_id: str, *, settings: Settings, alarms: Sequence[cloudwatch.IAlarm]
    ) -> None:
        super().__init__(scope, construct_id)
        classes = [settings.classes[name] for name in sorted(settings.classes)]
        board = cloudwatch.Dashboard(self, "Board", default_interval=Duration.hours(12))
        panels = [_Panels(settings, job_class) for job_class in classes]
        for start in range(0, len(panels), _ANSWERS_A_ROW):
            board.add_widgets(*(of_class.when_is_it_over() for of_class in panels[start : start + _ANSWERS_A_ROW]))
        board.add_widgets(cloudwatch.AlarmStatusWidget(alarms=list(alarms), title="Alarms", width=_WHOLE, height=4))
        for of_class in panels:
            board.add_widgets(*of_class.why())
        CfnOutput(
            self,
            "Url",
            value=f"https://{Stack.of(self).region}.console.aws.amazon.com/cloudwatch/home"
            f"#dashboards:name={board.dashboard_name}",
        ).override_logical_id("DashboardUrl")


class _Panels:
    """The widgets of one class."""

    def __init__(self, settings: Settings, job_class: ClassSettings) -> None:
        self._namespace = settings.namespace
        self._class = job_class
        self._upstream = settings.upstream_of(job_class)

    def when_is_it_over(self) -> cloudwatch.IWidget:
        """Minutes to go; a 1 at "will not drain" where no minutes can be said."""
        return cloudwatch.SingleValueWidget(
            title=f"{self._class.name}: when is it over",
            metrics=[
                self._gauge("DrainEtaMinutes", "minutes to go"),
                self._gauge("PendingRows", "rows to go"),
                self._gauge("DrainStalled", "will not drain"),
                self._gauge("Paused", "paused"),
            ],
            sparkline=True,
            width=_THIRD,
            height=_HEIGHT,
        )

    def why(self) -> Iterator[cloudwatch.IWidget]:
        yield self._graph("how the ETA moves (minutes a tick)", ["DrainEtaChangeMinutes"])
        yield self._graph(
            "lanes (rows)", ["WaitingLiveRows", "WaitingRecoveryRows", "LaterRows", "BehindRows"], stacked=True
        )
        yield self._graph("budget and admitted (rows a tick)", ["BudgetRows", "AdmittedRows", "DeferredRows"])
        yield self._graph("starts and in flight", ["StartsPerMinute", "InFlightRows"])
        yield self._graph("retries and dead (rows)", ["RetriesPerMinute", "DeadRows", "HopCaps"])
        yield self._graph("dead letters (messages)", ["DeadLetters"], statistic="Sum")
        objective = cloudwatch.HorizontalAnnotation(value=self._class.age_objective_s, label="objective")
        yield self._graph("oldest eligible row (seconds)", ["OldestEligibleAgeSeconds"], marks=[objective])
        if self._upstream is not None:
            limit = cloudwatch.HorizontalAnnotation(value=self._upstream.limit_per_s, label="declared limit")
            yield self._graph(
                "learned rate and limit (calls/s), budgeted (jobs/s)",
                ["UpstreamRatePerSecond", "RatePerSecond"],
                marks=[limit],
            )
            yield self._graph("calls and refusals", ["Calls", "Refusals", "PermitsStarved"], statistic="Sum")
            yield self._graph("refusal ratio", ["RefusalRatio"])
        yield self._graph("finished (rows)", ["Completions"], statistic="Sum")
        yield self._graph("95th percentile of a chunk (seconds)", ["P95ChunkSeconds"])
        yield self._graph("cost, and what of it was wasted (USD)", ["CostUsd", "WasteUsd"], statistic="Sum")
        yield self._graph("cost of a drained job (USD)", ["CostPerJobUsd"])
        if self._class.webhook:
            yield self._graph("runs from the webhook", ["WebhookAccepted", "WebhookDeduplicated"], statistic="Sum")

    def _graph(
        self,
        title: str,
        names: Sequence[str],
        *,
        statistic: str = "Maximum",
        stacked: bool = False,
        marks: Sequence[cloudwatch.HorizontalAnnotation] = (),
    ) -> cloudwatch.IWidget:
        return cloudwatch.GraphWidget(
            title=f"{self._class.name}: {title}",
            left=[self._gauge(name, name, statistic=statistic) for name in names],
            left_annotations=list(marks),
            stacked=stacked,
            width=_THIRD,
            height=_HEIGHT,
        )

    def _gauge(self, name: str, label: str, *, statistic: str = "Maximum") -> cloudwatch.Metric:
        period_s = max(_GRAPH_PERIOD_S, self._class.tick_interval_s)
        return metric_of(
            self._class.name,
            name,
            namespace=self._namespace,
            statistic=statistic,
            period_s=period_s,
            label=label,
        )
