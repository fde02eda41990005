"""The webhook's one act: admit the run of (class, minute), once, and ask the pacer for its tick.

    request ── run row created ── pacer asked ── answered 202
                                ✗ dies here: the next tick of the class finds the open run and executes it (fact F46)

The row is the dedup record and the drain token in one, so a repeat of any kind is told "accepted, not created".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from shared.domain.control import WEBHOOK, RunKey
from shared.domain.settings import Settings
from shared.errors import LedgerUnavailable, SecretUnavailable, SecretUnusable, TriggerUnavailable
from shared.ports import Log, Metrics, Ports, Trigger
from shared.webhook.request import METHOD, Reason, Rejected, Request, refused_unread, request_of, run_asked_for
from shared.webhook.tokens import Tokens

NO_CLASS: Final = "unknown"
"""The label of a request that named no open class: what it named is a caller's text, and not ours to print."""

_HEADERS: Final = {"content-type": "application/json", "cache-control": "no-store"}
"""Of every answer."""

_MORE_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    401: {"www-authenticate": "Bearer"},
    405: {"allow": METHOD},
    503: {"retry-after": "5"},
}
"""What a caller needs beside the status."""


class Webhook(Struct, frozen=True, kw_only=True):
    """What judging a request takes. One per process: `tokens` remembers the secret."""

    config: Settings
    ports: Ports
    tokens: Tokens
    trigger: Trigger


class Reporting(Struct, frozen=True, kw_only=True):
    """Where a verdict is told. It needs nothing that could be at fault: neither the configuration nor the ports."""

    log: Log
    metrics: Metrics


class Accepted(Struct, frozen=True, kw_only=True):
    """The run exists. `created` says that it was this request that made it."""

    key: RunKey
    created: bool


class Reply(Struct, frozen=True, kw_only=True):
    """An HTTP answer, always JSON, that says nothing but what we decided."""

    status: int
    body: Mapping[str, object]

    def for_gateway(self) -> dict[str, object]:
        """As API Gateway takes it, in both payload formats."""
        return {
            "statusCode": self.status,
            "headers": {**_HEADERS, **_MORE_HEADERS.get(self.status, {})},
            "body": json.dumps(self.body),
            "isBase64Encoded": False,
        }


def receive(webhook: Webhook, event: object) -> Reply:
    """Judge one request and, where it is due, admit the run that it asks for."""
    return _told(Reporting(log=webhook.ports.log, metrics=webhook.ports.metrics), _verdict(webhook, request_of(event)))


def failed(reporting: Reporting, error: Exception) -> Reply:
    """The answer to a fault of ours. Only its kind is logged: its message could hold what a caller sent."""
    reporting.log.event("webhook_fault", error=type(error).__name__)
    return _told(reporting, Rejected(reason=Reason.FAULT))


def _verdict(webhook: Webhook, request: Request) -> Accepted | Rejected:
    unread = refused_unread(request)
    if unread is not None or request.token is None:
        return unread or Rejected(reason=Reason.UNAUTHORIZED)
    try:
        if not webhook.tokens.accepts(request.token):
            return Rejected(reason=Reason.UNAUTHORIZED)
    except SecretUnusable:
        return Rejected(reason=Reason.SECRET_UNUSABLE)
    except SecretUnavailable:
        return Rejected(reason=Reason.SECRET_UNAVAILABLE)
    now_ms = webhook.ports.clock.now_ms()
    asked = run_asked_for(request, webhook.config.webhook_classes, webhook.config.webhook, now_ms=now_ms)
    return asked if isinstance(asked, Rejected) else _admit(webhook, asked, now_ms)


def _admit(webhook: Webhook, key: RunKey, now_ms: int) -> Accepted | Rejected:
    ledger = webhook.ports.ledger
    try:
        # Closed after this read: the run is admitted, and its tick finds the switch and closes it as skipped.
        if ledger.read_control(key.job_class).webhook_closed:
            return Rejected(reason=Reason.CLOSED, job_class=key.job_class)
        created = ledger.admit_run(key, source=WEBHOOK, now_ms=now_ms)
    except LedgerUnavailable:
        return Rejected(reason=Reason.LEDGER_UNAVAILABLE, job_class=key.job_class)
    if created:
        try:
            webhook.trigger.start(key)
        except TriggerUnavailable:  # the run is admitted all the same: the class's next tick executes an open run
            webhook.ports.log.event("trigger_unavailable", job_class=key.job_class, run=key.run_id)
    return Accepted(key=key, created=created)


def _told(reporting: Reporting, verdict: Accepted | Rejected) -> Reply:
    """The answer, once it is counted: by class and reason only. The reason is in the metric's name, because a class is
    its one dimension."""
    match verdict:
        case Accepted(key=key, created=created):
            reporting.metrics.emit(key.job_class, {"WebhookAccepted" if created else "WebhookDeduplicated": 1})
            reporting.log.event("webhook_accepted", job_class=key.job_class, run=key.run_id, first=created)
            return Reply(status=202, body={"accepted": True, "created": created, "run_id": key.run_id})
        case Rejected(reason=reason, status=status):
            job_class = verdict.job_class or NO_CLASS
            reporting.metrics.emit(job_class, {"WebhookRefused": 1, refused_metric(reason): 1})
            reporting.log.event("webhook_refused", job_class=job_class, reason=reason.value, status=status)
            return Reply(status=status, body={"accepted": False, "reason": reason.value})


def refused_metric(reason: Reason) -> str:
    """`WebhookRefusedWrongRunId`: what the alarms are on."""
    return "WebhookRefused" + "".join(part.capitalize() for part in reason.value.split("_"))
