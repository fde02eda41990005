"""What AWS would refuse half-way through a deployment, or what would break one later: found at synth, all in one go."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from infra.job_class import KIND_TABLES, class_id, layer_id
from shared.domain.job import Lane
from shared.domain.settings import MAX_LANE_SLOTS, MIN_LANE_SLOTS, ClassSettings, Settings

OWN_IDS: Final = frozenset(
    {
        "AlarmTopicArn",
        "Alarms",
        "BootstrapVersion",
        "BucketName",
        "CheckBootstrapVersion",
        "CustomerKey",
        "Dashboard",
        "DeadLetterReader",
        "Dependencies",
        "Ledger",
        "LostTicks",
        "Pacer",
        "PacerName",
        "Payloads",
        "Producers",
        "QueueUrls",
        "ScheduleRole",
        "TableName",
        "Webhook",
        "WebhookSecret",
        "WebhookUrl",
    }
)
"""What the stack calls its own parts, present or not: a class of such a name could not stay when the part comes."""

ENVIRONMENT_LIMIT_BYTES: Final = 4096
"""Lambda's bound on a function's environment, names and values together."""

_OTHER_ENVIRONMENT_BYTES: Final = 512
_TABLE_NAME: Final = r"[A-Za-z0-9_.-]{3,255}"
_QUEUE_NAME_MAX: Final = 80
_QUEUE_URL_PREFIX_MAX: Final = len("https://sqs.ap-southeast-99.amazonaws.com.cn/123456789012/")


def stack_faults(settings: Settings, *, stack_name: str) -> list[str]:
    faults = [fault for job_class in settings.classes.values() for fault in class_faults(job_class)]
    if not settings.classes:
        faults.append("classes: got none, expected at least one job class")
    faults.extend(_name_faults(settings))
    size = _queues_bytes(settings.classes.values(), stack_name=stack_name)
    limit = ENVIRONMENT_LIMIT_BYTES - _OTHER_ENVIRONMENT_BYTES
    if size > limit:
        faults.append(
            f"classes: got {len(settings.classes)}, whose queue URLs take up to {size} bytes of the pacer's"
            f" environment, expected at most {limit}: split them over two stacks"
        )
    return faults


def class_faults(settings: ClassSettings) -> list[str]:
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
    return faults + _kind_table_faults(settings)


def _kind_table_faults(settings: ClassSettings) -> list[str]:
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


def _name_faults(settings: Settings) -> Iterator[str]:
    """Two resources of one name: CDK would end in a stack trace."""
    first = dict.fromkeys(OWN_IDS, "the stack's own part")
    first |= {
        layer_id(job_class.kind): f"the layer of kind {job_class.kind}" for job_class in settings.classes.values()
    }
    for name in sorted(settings.classes):
        other = first.setdefault(class_id(name), f"classes.{name}")
        if other != f"classes.{name}":
            yield f"classes.{name}: got the resource name of {other} ({class_id(name)}), expected its own"


def _queues_bytes(classes: Iterable[ClassSettings], *, stack_name: str) -> int:
    """An upper bound for SLUICE_QUEUES: the URLs are only known at deployment, CloudFormation names the queues."""
    total = 0
    for job_class in classes:
        name_bytes = len(f"{stack_name}-{class_id(job_class.name)}RecoveryQueue-") + 13 + len(".fifo")
        url_bytes = _QUEUE_URL_PREFIX_MAX + min(name_bytes, _QUEUE_NAME_MAX)
        total += len(job_class.name) + len('"":{"live":"","recovery":""},') + 2 * url_bytes
    return total
