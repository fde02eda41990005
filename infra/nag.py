"""What cdk-nag's packs would have otherwise, and why it is so here.

Each exception stands with the construct that it is about; reasons that several constructs share stand here. Nothing is
excepted for a whole stack, and one that no finding needs any more fails a test (tests/infra/test_nag.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import aws_cdk as cdk
from constructs import IConstruct

KEY_IS_A_CHOICE: Final = (
    "It is encrypted under a key of AWS's own; customer_managed_key in sluice.toml puts it under one of this account's."
)
ONE_REGION: Final = (
    "Objects are inputs that their producers hold and outputs of jobs that can run again; a second region is for who"
    " runs Sluice to choose, with the ledger's export."
)
OWN_POLICY: Final = (
    "A policy belongs to one role, is made and goes with it, and can be attached to no other; a managed one could be."
)
IN_A_VAULT: Final = (
    "Point-in-time recovery keeps every second of 35 days; a longer plan belongs to the organisation's own vault, which"
    " selects the table by its tags."
)
LIES_WITH_THE_LOST: Final = (
    "It is where a schedule's, a rule's or a function's lost events end; an alarm rings at the first one."
)


class Trigger(StrEnum):
    """What starts a function, and so what bounds it and where its failures end."""

    QUEUE = "queue"
    EVENT = "event"
    REQUEST = "request"


_FUNCTION: Final = {
    "AwsSolutions-L1": (
        "What is compiled is staged for Python 3.11, and every test runs on it: the runtime moves together with them."
    ),
    "HIPAA.Security-LambdaInsideVPC": (
        "It speaks to AWS's public endpoints and to the upstream only, over TLS; nothing that it needs lies in a"
        " private network."
    ),
}
_CONCURRENCY: Final = {
    Trigger.QUEUE: (
        "Its mappings' MaximumConcurrency bounds it; reserved concurrency would throttle deliveries, each of which"
        " burns one of the message's receives."
    ),
    Trigger.EVENT: (
        "A clock, an event or the webhook starts it, once each, and locks and conditional writes make a second start"
        " harmless; reserved concurrency would only delay it."
    ),
    Trigger.REQUEST: (
        "Its caller bounds it: the stage's throttling, or Secrets Manager, which rotates one secret once at a time."
    ),
}
_DEAD_LETTERS: Final = {
    Trigger.QUEUE: (
        "What it fails at stays in its queue or goes to that queue's own dead letters, and an alarm watches those."
    ),
    Trigger.EVENT: (
        "Its failures go to an on-failure destination, which keeps the error beside the event; a dead-letter queue of"
        " the function's keeps the event alone."
    ),
    Trigger.REQUEST: "It is called synchronously, so its caller learns of a failure and repeats the call.",
}


def accept(construct: IConstruct, reasons: Mapping[str, str]) -> None:
    """Except this construct, and what it is made of, from rules like AwsSolutions-L1 or AwsSolutions-IAM5[finding]."""
    acknowledge(construct, reasons)


def acknowledge(construct: IConstruct, reasons: Mapping[str, str]) -> None:
    """What `accept` ends in. The tests take its place, and write down what would have been told to the packs."""
    told = [cdk.Acknowledgment(id=rule, reason=reason) for rule, reason in reasons.items()]
    cdk.Validations.of(construct).acknowledge(*told)


def accept_function(function: IConstruct, role: IConstruct, trigger: Trigger) -> None:
    of_trigger = {
        "HIPAA.Security-LambdaConcurrency": _CONCURRENCY[trigger],
        "HIPAA.Security-LambdaDLQ": _DEAD_LETTERS[trigger],
    }
    accept(function, {**_FUNCTION, **of_trigger})
    accept_own_policy(role)


def accept_own_policy(role: IConstruct) -> None:
    accept(role, {"HIPAA.Security-IAMNoInlinePolicy": OWN_POLICY})
