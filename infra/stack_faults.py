"""What AWS would refuse half-way through a deployment, or what would break one later: found at synth, all in one go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from infra.function import ENVIRONMENT_LIMIT_BYTES
from infra.job_class import class_faults, class_id, layer_id
from shared.domain.settings import ClassSettings, Settings

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

_OTHER_ENVIRONMENT_BYTES: Final = 512
_QUEUE_NAME_MAX: Final = 80
_QUEUE_URL_PREFIX_MAX: Final = len("https://sqs.ap-southeast-99.amazonaws.com.cn/123456789012/")


def stack_faults(settings: Settings, *, stack_name: str) -> list[str]:
    faults = [fault for each in settings.classes.values() for fault in class_faults(each)]
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


def _name_faults(settings: Settings) -> Iterator[str]:
    """Two resources of one name: CDK would end in a stack trace."""
    first = dict.fromkeys(OWN_IDS, "the stack's own part")
    first |= {layer_id(each.kind): f"the layer of kind {each.kind}" for each in settings.classes.values()}
    for name in sorted(settings.classes):
        other = first.setdefault(class_id(name), f"classes.{name}")
        if other != f"classes.{name}":
            yield f"classes.{name}: got the resource name of {other} ({class_id(name)}), expected its own"


def _queues_bytes(classes: Iterable[ClassSettings], *, stack_name: str) -> int:
    """An upper bound for SLUICE_QUEUES: the URLs are only known at deployment, CloudFormation names the queues."""
    total = 0
    for each in classes:
        name_bytes = len(f"{stack_name}-{class_id(each.name)}RecoveryQueue-") + 13 + len(".fifo")
        url_bytes = _QUEUE_URL_PREFIX_MAX + min(name_bytes, _QUEUE_NAME_MAX)
        total += len(each.name) + len('"":{"live":"","recovery":""},') + 2 * url_bytes
    return total
