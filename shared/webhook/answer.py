"""The webhook's one act: admit the run of (class, minute), once, and ask the pacer for its tick.

    request ── run row created ── pacer asked ── answered 202
                                ✗ dies here: the next tick of the class finds the open run and executes it (fact F46)

The row is the dedup record and the drain token in one, so a repeat of any kind is told "accepted, not created".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from shared.domain.control import WEBHOOK, RunKey
from shared.domain.settings import Settings
from shared.errors import LedgerUnavailable, SecretUnavailable, SecretUnusable, TriggerUnavailable
from shared.ports import Log, Metrics, Ports, Trigger
from shared.webhook.request import METHOD, Reason, Rejected, Request, refused_unread, request_of, run_asked_for
from shared.webhook.tokens import Tokens

NO_CLASS: Final = "unknown"
"""The label of a request that named no open class: what it named is a caller's text, and not ours to print."""

_HEADERS: Final = {"content-type": "application/json", "cache-control": "no-store"}

_MORE_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    401: {"www-authenticate": "Bearer"},
    405: {"allow": METHOD},
    503: {"retry-after": "5"},
}


class Door(Struct, frozen=True, kw_only=True):
    """What stands behind the webhook. One per process: `tokens` remembers the secret."""

    settings: Settings
    ports: Ports
    tokens: Tokens
    trigger: Trigger


class Witness(Struct, frozen=True, kw_only=True):
    """What a fault is told through. It needs nothing that could be at fault: neither settings nor ports."""

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
    headers: Mapping[str, str] = field(default_factory=dict)

    def for_gateway(self) -> dict[str, object]:
        """As API Gateway takes it, in both payload formats."""
        return {
            "statusCode": self.status,
            "headers": {**_HEADERS, **self.headers},
            "body": json.dumps(self.body),
            "isBase64Encoded": False,
        }


def receive(door: Door, event: object) -> Reply:
    """Judge one request and, where it is due, admit the run that it asks for."""
    verdict = _verdict(door, request_of(event))
    _count(Witness(log=door.ports.log, metrics=door.ports.metrics), verdict)
    return _reply(verdict)


def failed(witness: Witness, error: Exception) -> Reply:
    """The answer to a fault of ours. Only its kind is logged: its message could hold what a caller sent."""
    witness.log.event("webhook_fault", error=type(error).__name__)
    verdict = Rejected(reason=Reason.FAULT)
    _count(witness, verdict)
    return _reply(verdict)


def _verdict(door: Door, request: Request) -> Accepted | Rejected:
    unread = refused_unread(request)
    if unread is not None or request.token is None:
        return unread or Rejected(reason=Reason.UNAUTHORIZED)
    try:
        if not door.tokens.accepts(request.token):
            return Rejected(reason=Reason.UNAUTHORIZED)
    except SecretUnusable:
        return Rejected(reason=Reason.SECRET_UNUSABLE)
    except SecretUnavailable:
        return Rejected(reason=Reason.SECRET_UNAVAILABLE)
    now_ms = door.ports.clock.now_ms()
    asked = run_asked_for(request, door.settings.webhook_classes, door.settings.webhook, now_ms=now_ms)
    return asked if isinstance(asked, Rejected) else _admit(door, asked, now_ms)


def _admit(door: Door, key: RunKey, now_ms: int) -> Accepted | Rejected:
    try:
        # Closed after this read: the run is admitted, and its tick finds the switch and closes it as skipped.
        if door.ports.ledger.read_control(key.job_class).webhook_closed:
            return Rejected(reason=Reason.CLOSED, job_class=key.job_class)
        created = door.ports.ledger.admit_run(key, source=WEBHOOK, now_ms=now_ms)
    except LedgerUnavailable:
        return Rejected(reason=Reason.LEDGER_UNAVAILABLE, job_class=key.job_class)
    if created:
        _start(door, key)
    return Accepted(key=key, created=created)


def _start(door: Door, key: RunKey) -> None:
    """The run is admitted whether or not the pacer hears of it now: the class's next tick executes an open run."""
    try:
        door.trigger.start(key)
    except TriggerUnavailable:
        door.ports.log.event("trigger_unavailable", job_class=key.job_class, run=key.run_id)


def _count(witness: Witness, verdict: Accepted | Rejected) -> None:
    """Labelled by class and reason only; the reason is in the metric's name, because a class is its one dimension."""
    match verdict:
        case Accepted(key=key, created=created):
            name = "WebhookAccepted" if created else "WebhookDeduplicated"
            witness.metrics.emit(key.job_class, {name: 1})
            witness.log.event("webhook_accepted", job_class=key.job_class, run=key.run_id, first=created)
        case Rejected(reason=reason):
            job_class = verdict.job_class or NO_CLASS
            witness.metrics.emit(job_class, {"WebhookRefused": 1, refused_metric(reason): 1})
            witness.log.event("webhook_refused", job_class=job_class, reason=reason.value, status=verdict.status)


def refused_metric(reason: Reason) -> str:
    """`WebhookRefusedWrongRunId`: what the alarms are on."""
    return "WebhookRefused" + "".join(word.capitalize() for word in reason.value.split("_"))


def _reply(verdict: Accepted | Rejected) -> Reply:
    if isinstance(verdict, Accepted):
        body = {"accepted": True, "created": verdict.created, "run_id": verdict.key.run_id}
        return Reply(status=202, body=body)
    status = verdict.status
    body = {"accepted": False, "reason": verdict.reason.value}
    return Reply(status=status, body=body, headers=_MORE_HEADERS.get(status, {}))
