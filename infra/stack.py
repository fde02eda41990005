"""The stack: composes the constructs, and says on one line each who may do what (DESIGN section 4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.bundle import Bundle
from infra.class_alarms import class_alarms
from infra.dashboard import Dashboard
from infra.function import ARCHITECTURE, Shipment, SluiceFunction
from infra.job_class import (
    DEAD_LETTER_TIMEOUT_S,
    RETENTION_DAYS,
    JobClass,
    class_id,
    two_ticks_s,
)
from infra.kind_tables import KIND_TABLES
from infra.ledger import Ledger, Payloads, pin, removal
from infra.model_arns import model_arns
from infra.observability import LOG_LEVEL, Alarms, AlarmSpec, messages_visible
from infra.producers import Producers
from infra.stack_faults import stack_faults
from infra.webhook import Webhook, webhook_alarms
from shared.core.settings import ProducerSettings, Settings
from shared.errors import ConfigError

# What the use cases behind each handler call. A transaction needs the permissions of its parts and has none of its own.
# Nothing ever deletes a row of the ledger, so nobody may.
TICK_ROWS: Final = ("dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:UpdateItem")
NOMINATE: Final = ("dynamodb:Query",)
WORK_ROWS: Final = ("dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:Query")
DEAD_LETTER_ROWS: Final = ("dynamodb:GetItem", "dynamodb:UpdateItem")
SEND: Final = ("sqs:SendMessage",)
MEASURE: Final = ("sqs:GetQueueAttributes",)
CONSUME: Final = (
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibility",
    "sqs:GetQueueAttributes",
)
OBJECTS: Final = ("s3:GetObject", "s3:PutObject")
SUBMIT_ROWS: Final = ("dynamodb:PartiQLInsert", *TICK_ROWS)
SUBMIT_OBJECTS: Final = ("s3:PutObject",)
LIST_GUILDS: Final = ("dynamodb:Scan",)
CONVERSE: Final = ("bedrock:InvokeModel",)
# Or S3 answers 403 for an object that does not exist, which is a job's failure and no fault of the permissions.
MISSING_OBJECTS: Final = ("s3:ListBucket",)
INVOKE: Final = ("lambda:InvokeFunction",)
ADMIT: Final = ("dynamodb:PutItem",)
READ_SWITCH: Final = ("dynamodb:GetItem",)
READ_SECRET: Final = ("secretsmanager:GetSecretValue",)
ROTATE: Final = (
    *READ_SECRET,
    "secretsmanager:DescribeSecret",
    "secretsmanager:PutSecretValue",
    "secretsmanager:UpdateSecretVersionStage",
)

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
        self._ephemeral = ephemeral
        self._ledger = Ledger(self, "Ledger", ephemeral=ephemeral)
        self._payloads = Payloads(self, "Payloads", ephemeral=ephemeral)
        self._shipment = self._ship(bundle)
        self._classes = [
            JobClass(self, class_id(name), settings=settings.classes[name], ephemeral=ephemeral)
            for name in sorted(settings.classes)
        ]
        self._lost_ticks = self._lost_ticks_queue()
        pacer = self._pacer()
        self._schedule(pacer)
        self._dead_letter_reader()
        for job_class in self._classes:
            self._worker(job_class)
        if settings.webhook_classes:
            self._webhook(pacer)
        self._producers = self._produce() if settings.producers != ProducerSettings() else None
        alarms = Alarms(self, "Alarms", table=self._alarm_table())
        Dashboard(self, "Dashboard", settings=self._settings, alarms=alarms.alarms)
        cdk.CfnOutput(self, "AlarmTopicArn", value=alarms.topic.topic_arn)
        self._outputs(pacer)

    def _ship(self, bundle: Bundle) -> Shipment:
        return Shipment(
            code=lambda_.Code.from_asset(str(bundle.code)),
            layer=lambda_.LayerVersion(
                self,
                "Dependencies",
                code=lambda_.Code.from_asset(str(bundle.layer)),
                compatible_runtimes=[lambda_.Runtime.PYTHON_3_11],
            ),
            kind_layers={kind: self._kind_layer(kind, bundle) for kind in bundle.kind_layers},
            environment={
                "SLUICE_TABLE": self._ledger.table.table_name,
                "SLUICE_BUCKET": self._payloads.bucket.bucket_name,
                "POWERTOOLS_METRICS_NAMESPACE": self._settings.namespace,
                "POWERTOOLS_LOG_LEVEL": LOG_LEVEL,
            },
            ephemeral=self._ephemeral,
        )

    def _kind_layer(self, kind: str, bundle: Bundle) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            f"{class_id(kind)}Dependencies",
            code=lambda_.Code.from_asset(str(bundle.kind_layers[kind])),
            compatible_runtimes=[lambda_.Runtime.PYTHON_3_11],
            compatible_architectures=[ARCHITECTURE],
        )

    def _queues_json(self, classes: Iterable[JobClass]) -> str:
        return self.to_json_string({each.settings.name: each.queue_urls for each in classes})

    def _lost_ticks_queue(self) -> sqs.Queue:
        """Ticks that never reached the pacer, or that it failed at. The next one makes up for them; a person looks."""
        queue = sqs.Queue(
            self,
            "LostTicks",
            retention_period=cdk.Duration.days(RETENTION_DAYS),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            removal_policy=removal(self._ephemeral),
        )
        pin(queue, "LostTicks")
        return queue

    def _pacer(self) -> SluiceFunction:
        pacer = SluiceFunction(
            self,
            "Pacer",
            service="sluice-pacer",
            handler="functions.pacer.handler.handler",
            timeout_s=self._settings.pacer_timeout_s,
            memory_mb=self._settings.pacer_memory_mb,
            shipment=self._shipment,
            environment={"SLUICE_QUEUES": self._queues_json(self._classes)},
        )
        queue_arns = [arn for job_class in self._classes for arn in job_class.queue_arns]
        pacer.allow(TICK_ROWS, self._ledger.rows_arn)
        pacer.allow(NOMINATE, self._ledger.index_arn)
        pacer.allow(SEND + MEASURE, *queue_arns)
        pacer.allow(SEND, self._lost_ticks.queue_arn)
        shortest_tick_s = min(job_class.settings.tick_interval_s for job_class in self._classes)
        pacer.retry(
            times=PACER_RETRIES,
            max_age_s=min(two_ticks_s(shortest_tick_s), _ASYNC_MAX_AGE_S),
            lost_arn=self._lost_ticks.queue_arn,
        )
        return pacer

    def _schedule(self, pacer: SluiceFunction) -> None:
        """One role for all schedules: each does the same one thing. Only this account's schedules may take it."""
        own_account = {"StringEquals": {"aws:SourceAccount": self.account}}
        role = iam.Role(
            self, "ScheduleRole", assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com", conditions=own_account)
        )
        role.add_to_policy(iam.PolicyStatement(actions=list(INVOKE), resources=[pacer.function.function_arn]))
        role.add_to_policy(iam.PolicyStatement(actions=list(SEND), resources=[self._lost_ticks.queue_arn]))
        for job_class in self._classes:
            job_class.schedule(
                target_arn=pacer.function.function_arn,
                role=role,
                dead_letter_arn=self._lost_ticks.queue_arn,
            )

    def _dead_letter_reader(self) -> None:
        reader = SluiceFunction(
            self,
            "DeadLetterReader",
            service="sluice-dead-letter",
            handler="functions.dead_letter.handler.handler",
            timeout_s=DEAD_LETTER_TIMEOUT_S,
            memory_mb=DEAD_LETTER_MEMORY_MB,
            shipment=self._shipment,
            environment={"SLUICE_QUEUES": "{}"},
        )
        dead_letter_arns = [arn for job_class in self._classes for arn in job_class.dead_letter_arns]
        reader.allow(DEAD_LETTER_ROWS, self._ledger.rows_arn)
        reader.allow(CONSUME, *dead_letter_arns)
        for job_class in self._classes:
            job_class.feed_dead_letters(reader)

    def _worker(self, job_class: JobClass) -> None:
        worker = job_class.worker(self._shipment, environment={"SLUICE_QUEUES": self._queues_json([job_class])})
        worker.allow(WORK_ROWS, self._ledger.rows_arn)
        worker.allow(CONSUME + SEND, *job_class.queue_arns)
        worker.allow(OBJECTS, self._payloads.objects_arn)
        worker.allow(MISSING_OBJECTS, self._payloads.bucket.bucket_arn)
        if table := KIND_TABLES.get(job_class.settings.kind):
            worker.allow(table.actions, self._table_arn(job_class.settings.options[table.option]))
        if arns := model_arns(self, self._settings.upstream_of(job_class.settings)):
            worker.allow(CONVERSE, *arns)
        job_class.feed(worker)

    def _produce(self) -> Producers:
        producers = Producers(
            self, "Producers", settings=self._settings.producers, shipment=self._shipment, ephemeral=self._ephemeral
        )
        for function in producers.functions:
            function.allow(SUBMIT_ROWS, self._ledger.rows_arn)
            function.allow(SUBMIT_OBJECTS, self._payloads.bucket.arn_for_objects("payloads/*"))
            function.allow(SEND, producers.lost.queue_arn)
        if producers.scheduled and (reports := self._settings.producers.guild_reports):
            producers.scheduled.allow(LIST_GUILDS, self._table_arn(reports.guilds_table))
        producers.start()
        return producers

    def _webhook(self, pacer: SluiceFunction) -> None:
        """Whoever takes over the door can admit runs of the open classes, which a tick then paces, and nothing else."""
        webhook = Webhook(self, "Webhook", settings=self._settings.webhook, ephemeral=self._ephemeral)
        secret = {"SLUICE_SECRET": webhook.secret.secret_arn, "SLUICE_QUEUES": "{}"}
        door = webhook.door(self._shipment, environment={**secret, "SLUICE_PACER": pacer.function.function_name})
        names = self._settings.webhook_classes
        door.allow(ADMIT, self._ledger.rows_arn, keys=[f"RUN#{name}#*" for name in names])
        door.allow(READ_SWITCH, self._ledger.rows_arn, keys=[f"CLASS#{name}" for name in names])
        door.allow(READ_SECRET, webhook.secret.secret_arn)
        door.allow(INVOKE, pacer.function.function_arn)
        webhook.serve(door)
        rotation = webhook.rotation(self._shipment, environment=secret)
        rotation.allow(ROTATE, webhook.secret.secret_arn)
        webhook.rotate(rotation)
        cdk.CfnOutput(self, "WebhookUrl", value=webhook.url)
        cdk.CfnOutput(self, "WebhookSecret", value=webhook.secret.secret_arn)

    def _table_arn(self, name: str) -> str:
        """A table that this stack does not make: of this account and region."""
        return self.format_arn(service="dynamodb", resource="table", resource_name=name)

    def _alarm_table(self) -> list[AlarmSpec]:
        table = [
            messages_visible(
                "LostTicks",
                self._lost_ticks,
                means="A tick did not reach the pacer or failed there. Read the message, then the pacer's log.",
                runbook="LostTicks",
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
        if self._settings.webhook_classes:
            table += webhook_alarms(self._settings)
        return table if self._producers is None else [*table, self._producers.alarm()]

    def _outputs(self, pacer: SluiceFunction) -> None:
        """What `ops` needs to find its way."""
        cdk.CfnOutput(self, "TableName", value=self._ledger.table.table_name)
        cdk.CfnOutput(self, "BucketName", value=self._payloads.bucket.bucket_name)
        cdk.CfnOutput(self, "PacerName", value=pacer.function.function_name)
        cdk.CfnOutput(self, "QueueUrls", value=self._queues_json(self._classes))
