"""What submits jobs by itself: a rule on the game's bus with the intake behind it, and the producer's schedules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.alarms import AlarmSpec, messages_visible
from infra.function import Schedules, Shipment, SluiceFunction
from infra.nag import Trigger
from infra.stores import AtRest, lost_queue
from shared.domain.settings import MatchEndedSettings, ProducerSettings

EVENT: Final = "match.ended"
INTAKE_TIMEOUT_S: Final = 60
PRODUCER_TIMEOUT_S: Final = 900
"""Rows are submitted a few thousand a second; a run that is cut off is repeated, and adds what is missing."""

RETRIES: Final = 2
MAX_AGE_S: Final = 21_600
DELIVERIES: Final = 20


class Producers(Construct):
    """`functions` are all that submit, each with the classes of its jobs; who may do what is the stack's to say.
    `queues` gives the queues of some classes as SLUICE_QUEUES. `start` once everything has been said."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: ProducerSettings,
        shipment: Shipment,
        at_rest: AtRest,
        queues: Callable[[Collection[str]], str],
    ) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        self._shipment = shipment
        self._queues = queues
        self.functions: dict[SluiceFunction, list[str]] = {}
        self.lost = lost_queue(self, "LostEvents", at_rest=at_rest)
        events, reports, sweep = settings.match_ended, settings.guild_reports, settings.session_sweep
        told = [] if events is None else [events.replay_class, events.screenshot_class]
        timed = [producer.job_class for producer in (reports, sweep) if producer is not None]
        self._intake = self._function("Intake", "intake", INTAKE_TIMEOUT_S, told) if events else None
        self.scheduled = self._function("Scheduled", "producer", PRODUCER_TIMEOUT_S, timed) if timed else None

    def start(self) -> None:
        for function in self.functions:
            function.retry(times=RETRIES, max_age_s=MAX_AGE_S, lost_arn=self.lost.queue_arn)
        if self._intake and self._settings.match_ended:
            self._listen(self._intake, self._settings.match_ended)
        if self.scheduled:
            self._schedule(self.scheduled)

    def alarm(self) -> AlarmSpec:
        return messages_visible(
            "LostEvents",
            self.lost,
            means="An event or a schedule did not become jobs: it cannot be read, one of its jobs was refused, or the"
            " ledger was away for hours. The message holds it and says why; python -m ops submit takes its jobs.",
        )

    def _function(self, construct_id: str, room: str, timeout_s: int, classes: Iterable[str]) -> SluiceFunction:
        submits = sorted({name for name in classes if name})
        function = SluiceFunction(
            self,
            construct_id,
            room=room,
            trigger=Trigger.EVENT,
            timeout_s=timeout_s,
            memory_mb=512,
            shipment=self._shipment,
            environment={"SLUICE_QUEUES": self._queues(submits)},
        )
        self.functions[function] = submits
        return function

    def _listen(self, intake: SluiceFunction, producer: MatchEndedSettings) -> None:
        """What the bus cannot deliver lies with the lost, too; its default would be 185 attempts and then nothing."""
        pattern: dict[str, Any] = {"detail-type": [EVENT]} | ({"source": [producer.source]} if producer.source else {})
        rule = events.CfnRule(
            self,
            "MatchEnded",
            description="A match ended: submit what it leaves behind",
            event_bus_name=producer.bus,
            event_pattern=pattern,
            state="ENABLED",
            targets=[
                events.CfnRule.TargetProperty(
                    id="Intake",
                    arn=intake.function.function_arn,
                    dead_letter_config=events.CfnRule.DeadLetterConfigProperty(arn=self.lost.queue_arn),
                    retry_policy=events.CfnRule.RetryPolicyProperty(
                        maximum_event_age_in_seconds=MAX_AGE_S, maximum_retry_attempts=DELIVERIES
                    ),
                )
            ],
        )
        intake.may_be_called(self, "MayBeTold", by="events", source_arn=rule.attr_arn)
        self.lost.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("events.amazonaws.com")],
                actions=["sqs:SendMessage"],
                resources=[self.lost.queue_arn],
                conditions={"ArnEquals": {"aws:SourceArn": rule.attr_arn}},
            )
        )

    def _schedule(self, function: SluiceFunction) -> None:
        schedules = Schedules(self, function, lost_arn=self.lost.queue_arn)
        times: list[tuple[str, str, str]] = []
        if reports := self._settings.guild_reports:
            times.append(("GuildReports", "guild_reports", cron(reports.at, "? * MON *")))
        if sweep := self._settings.session_sweep:
            times.append(("SessionSweep", "session_sweep", cron(sweep.at, "* * ? *")))
        for construct_id, producer, expression in times:
            schedules.add(
                self,
                construct_id,
                description=f"Submits the jobs of {producer}",
                expression=expression,
                event={"producer": producer},
                max_age_s=MAX_AGE_S,
                retries=DELIVERIES,
            )


def cron(at: str, days: str) -> str:
    """EventBridge's expression for a time of day like "03:00"."""
    hour, minute = at.split(":")
    return f"cron({int(minute)} {int(hour)} {days})"
