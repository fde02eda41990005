"""The stack: composes the constructs, and says on one line each who may do what (docs/architecture.md)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra import grants
from infra.alarms import Alarms, AlarmSpec, class_alarms, messages_visible
from infra.bundle import Bundle
from infra.dashboard import Dashboard
from infra.function import ARCHITECTURE, RUNTIME, Schedules, Shipment, SluiceFunction
from infra.job_class import (
    DEAD_LETTER_TIMEOUT_S,
    KIND_TABLES,
    JobClass,
    class_id,
    layer_id,
    models,
    two_ticks_s,
)
from infra.nag import Trigger, accept
from infra.producers import Producers
from infra.stack_faults import stack_faults
from infra.stores import AtRest, Ledger, Payloads, customer_key, lost_queue
from infra.webhook import Webhook, webhook_alarms
from shared.domain.job import Lane
from shared.domain.settings import ProducerSettings, Settings
from shared.errors import ConfigError

LOG_LEVEL: Final = "INFO"
PACER_RETRIES: Final = 2
DEAD_LETTER_MEMORY_MB: Final = 256
_ASYNC_MAX_AGE_S: Final = 21_600


class SluiceStack(cdk.Stack):
    """All of Sluice in one account and region.

    `ephemeral` is for a stack that is thrown away, such as the local demo's: it drops deletion protection and RETAIN.
    ConfigError where the settings are fine in themselves but cannot be deployed.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, settings: Settings, bundle: Bundle, ephemeral: bool = False
    ) -> None:
        super().__init__(scope, construct_id, termination_protection=not ephemeral)
        if faults := stack_faults(settings, stack_name=construct_id):
            raise ConfigError(faults)
        self._settings = settings
        key = customer_key(self, ephemeral=ephemeral) if settings.customer_managed_key else None
        self._at_rest = AtRest(ephemeral=ephemeral, key=key)
        self._ledger = Ledger(self, "Ledger", at_rest=self._at_rest)
        self._payloads = Payloads(self, "Payloads", at_rest=self._at_rest)
        self._shipment = self._ship(bundle)
        self._classes = [
            JobClass(self, class_id(name), settings=settings.classes[name], at_rest=self._at_rest)
            for name in sorted(settings.classes)
        ]
        self._lost_ticks = lost_queue(self, "LostTicks", at_rest=self._at_rest)
        pacer = self._pacer()
        schedules = Schedules(self, pacer, lost_arn=self._lost_ticks.queue_arn)
        for job_class in self._classes:
            job_class.schedule(schedules)
        self._dead_letter_reader()
        for job_class in self._classes:
            self._worker(job_class)
        self._rotation = self._webhook(pacer) if settings.webhook_classes else None
        self._producers = self._produce() if settings.producers != ProducerSettings() else None
        alarms = Alarms(self, "Alarms", table=self._alarm_table(), at_rest=self._at_rest)
        Dashboard(self, "Dashboard", settings=self._settings, alarms=alarms.alarms)
        cdk.CfnOutput(self, "AlarmTopicArn", value=alarms.topic.topic_arn)
        self._outputs(pacer)

    def _ship(self, bundle: Bundle) -> Shipment:
        return Shipment(
            code=lambda_.Code.from_asset(str(bundle.code)),
            layer=self._layer("Dependencies", bundle.layer),
            kind_layers={kind: self._layer(layer_id(kind), layer) for kind, layer in bundle.kind_layers.items()},
            environment={
                "SLUICE_TABLE": self._ledger.table.table_name,
                "SLUICE_BUCKET": self._payloads.bucket.bucket_name,
                "POWERTOOLS_METRICS_NAMESPACE": self._settings.namespace,
                "POWERTOOLS_LOG_LEVEL": LOG_LEVEL,
            },
            at_rest=self._at_rest,
        )

    def _layer(self, construct_id: str, directory: Path) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            construct_id,
            code=lambda_.Code.from_asset(str(directory)),
            compatible_runtimes=[RUNTIME],
            compatible_architectures=[ARCHITECTURE],
        )

    def _queues_json(self, classes: Iterable[JobClass]) -> str:
        return self.to_json_string({job_class.settings.name: job_class.queue_urls for job_class in classes})

    def _pacer(self) -> SluiceFunction:
        pacer = SluiceFunction(
            self,
            "Pacer",
            room="pacer",
            trigger=Trigger.EVENT,
            timeout_s=self._settings.pacer_timeout_s,
            memory_mb=self._settings.pacer_memory_mb,
            shipment=self._shipment,
            environment={"SLUICE_QUEUES": self._queues_json(self._classes)},
        )
        queue_arns = [arn for job_class in self._classes for arn in job_class.queue_arns]
        pacer.allow(grants.TICK_ROWS, self._ledger.rows_arn)
        pacer.allow(grants.NOMINATE, self._ledger.index_arn)
        pacer.allow(grants.SEND, *queue_arns)
        pacer.allow(grants.SEND, self._lost_ticks.queue_arn)
        shortest_tick_s = min(job_class.settings.tick_interval_s for job_class in self._classes)
        pacer.retry(
            times=PACER_RETRIES,
            max_age_s=min(two_ticks_s(shortest_tick_s), _ASYNC_MAX_AGE_S),
            lost_arn=self._lost_ticks.queue_arn,
        )
        return pacer

    def _dead_letter_reader(self) -> None:
        reader = SluiceFunction(
            self,
            "DeadLetterReader",
            room="dead_letter",
            trigger=Trigger.QUEUE,
            timeout_s=DEAD_LETTER_TIMEOUT_S,
            memory_mb=DEAD_LETTER_MEMORY_MB,
            shipment=self._shipment,
            environment={"SLUICE_QUEUES": "{}"},
        )
        dead_letter_arns = [arn for job_class in self._classes for arn in job_class.dead_letter_arns]
        reader.allow(grants.DEAD_LETTER_ROWS, self._ledger.rows_arn)
        reader.allow(grants.CONSUME, *dead_letter_arns)
        for job_class in self._classes:
            job_class.feed_dead_letters(reader)

    def _worker(self, job_class: JobClass) -> None:
        worker = job_class.worker(self._shipment, environment={"SLUICE_QUEUES": self._queues_json([job_class])})
        worker.allow(grants.WORK_ROWS, self._ledger.rows_arn)
        worker.allow(grants.CONSUME + grants.SEND, *job_class.queue_arns)
        worker.allow(grants.OBJECTS, self._payloads.objects_arn)
        accept(worker.role, {"AwsSolutions-IAM5[Resource::<Payloads.Arn>/*]": grants.EVERY_OBJECT})
        worker.allow(grants.MISSING_OBJECTS, self._payloads.bucket.bucket_arn)
        if table := KIND_TABLES.get(job_class.settings.kind):
            worker.allow(table.actions, self._table_arn(job_class.settings.options[table.option]))
        arns, wildcards = models(self, self._settings.upstream_of(job_class.settings))
        if arns:
            worker.allow(grants.CONVERSE, *arns)
            accept(worker.role, wildcards)
        job_class.feed(worker)

    def _produce(self) -> Producers:
        by_name = {job_class.settings.name: job_class for job_class in self._classes}
        producers = Producers(
            self,
            "Producers",
            settings=self._settings.producers,
            shipment=self._shipment,
            at_rest=self._at_rest,
            queues=lambda names: self._queues_json(by_name[name] for name in names),
        )
        for function, names in producers.functions.items():
            function.allow(grants.SUBMIT_ROWS, self._ledger.rows_arn)
            function.allow(grants.SUBMIT_OBJECTS, self._payloads.bucket.arn_for_objects("payloads/*"))
            accept(function.role, {"AwsSolutions-IAM5[Resource::<Payloads.Arn>/payloads/*]": grants.EVERY_OBJECT})
            # What they admit themselves, from the live allowance, is live.
            live = [by_name[name].lanes[Lane.LIVE].queue.queue_arn for name in names]
            function.allow(grants.SEND, *live, producers.lost.queue_arn)
        if producers.scheduled and (reports := self._settings.producers.guild_reports):
            producers.scheduled.allow(grants.LIST_GUILDS, self._table_arn(reports.guilds_table))
        producers.start()
        return producers

    def _webhook(self, pacer: SluiceFunction) -> SluiceFunction:
        """Whoever takes over the door can admit runs of the open classes, which a tick then paces, and nothing else.

        Returns the rotation of its secret.
        """
        webhook = Webhook(self, "Webhook", settings=self._settings.webhook, at_rest=self._at_rest)
        secret = {"SLUICE_SECRET": webhook.secret.secret_arn, "SLUICE_QUEUES": "{}"}
        door = webhook.door(self._shipment, environment={**secret, "SLUICE_PACER": pacer.function.function_name})
        names = self._settings.webhook_classes
        door.allow(grants.ADMIT, self._ledger.rows_arn, keys=[f"RUN#{name}#*" for name in names])
        door.allow(grants.READ_SWITCH, self._ledger.rows_arn, keys=[f"CLASS#{name}" for name in names])
        door.allow(grants.READ_SECRET, webhook.secret.secret_arn)
        door.allow(grants.INVOKE, pacer.function.function_arn)
        webhook.serve(door)
        rotation = webhook.rotation(self._shipment, environment=secret)
        rotation.allow(grants.ROTATE, webhook.secret.secret_arn)
        webhook.rotate(rotation)
        cdk.CfnOutput(self, "WebhookUrl", value=webhook.url)
        cdk.CfnOutput(self, "WebhookSecret", value=webhook.secret.secret_arn)
        return rotation

    def _table_arn(self, name: str) -> str:
        """A table that this stack does not make: of this account and region."""
        return self.format_arn(service="dynamodb", resource="table", resource_name=name)

    def _alarm_table(self) -> list[AlarmSpec]:
        table = [
            messages_visible(
                "LostTicks",
                self._lost_ticks,
                means="A tick did not reach the pacer or failed there. Read the message, then the pacer's log.",
            )
        ]
        for job_class in self._classes:
            for lane, lane_queue in job_class.lanes.items():
                means = (
                    f"Messages of {job_class.settings.name} ({lane}) died in transport: the worker crashes, times out"
                    " or is throttled. Read the worker's log, then the dead-letter reader's."
                )
                name = f"{job_class.node.id}{lane.capitalize()}DeadLetters"
                table.append(messages_visible(name, lane_queue.dead_letters, means=means, runbook="DeadLetters"))
            settings = job_class.settings
            upstream = self._settings.upstream_of(settings)
            table += class_alarms(job_class.node.id, settings, upstream, namespace=self._settings.namespace)
        if self._rotation is not None:
            table += webhook_alarms(self._settings, self._rotation.function)
        return table if self._producers is None else [*table, self._producers.alarm()]

    def _outputs(self, pacer: SluiceFunction) -> None:
        """What `ops` needs to find its way."""
        cdk.CfnOutput(self, "TableName", value=self._ledger.table.table_name)
        cdk.CfnOutput(self, "BucketName", value=self._payloads.bucket.bucket_name)
        cdk.CfnOutput(self, "PacerName", value=pacer.function.function_name)
        cdk.CfnOutput(self, "QueueUrls", value=self._queues_json(self._classes))
