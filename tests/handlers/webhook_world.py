"""The webhook's handler over a memory ledger, with a clock, a secret and a pacer that a test moves by hand."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from msgspec.structs import replace

from functions.webhook import handler as entry
from shared.aws.runtime import ThreadParallel
from shared.aws.telemetry import EmfMetrics, JsonLog
from shared.domain.control import Run, RunKey
from shared.domain.settings import ClassSettings, Schedule, Settings
from shared.errors import SecretUnavailable, TriggerUnavailable
from shared.memory.ledger import MemoryLedger
from shared.memory.queue import MemoryQueue
from shared.memory.resources import MemoryBlobs, MemoryLimiter
from shared.ports import Ports
from shared.webhook.answer import Reporting, Webhook
from shared.webhook.tokens import StoredSecret, Tokens

NOW_MS: Final = 1_796_040_300_000
"""2026-11-30T12:05Z."""

CLASS: Final = "document_classification"
SCHEDULED: Final = "replay_summary"
SHUT: Final = "session_sweep"
TOKEN: Final = "canary-token-now-4f1c9be2"
OLD_TOKEN: Final = "canary-token-old-77ab01dd"
WRONG: Final = "canary-token-bad-0000000000"

SETTINGS: Final = Settings(
    classes={
        CLASS: ClassSettings(name=CLASS, kind="sim", webhook=True, schedule=Schedule.REPAIR),
        SCHEDULED: ClassSettings(name=SCHEDULED, kind="sim", webhook=True),
        SHUT: ClassSettings(name=SHUT, kind="sim"),
    }
)


@dataclass(slots=True)
class HandClock:
    now: int = NOW_MS

    def now_ms(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1000)


@dataclass(slots=True)
class HandSecrets:
    current: bytes | None = TOKEN.encode()
    previous: bytes | None = OLD_TOKEN.encode()
    up: bool = True
    reads: int = 0

    def read(self) -> StoredSecret:
        self.reads += 1
        if not self.up:
            raise SecretUnavailable("ThrottlingException")
        return StoredSecret(current=self.current, previous=self.previous)


@dataclass(slots=True)
class HandTrigger:
    up: bool = True
    started: list[RunKey] = field(default_factory=list)

    def start(self, key: RunKey) -> None:
        if not self.up:
            raise TriggerUnavailable("TooManyRequestsException")
        self.started.append(key)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def reason(self) -> object:
        return self.body.get("reason")


def body_of(minute: str = "12:05", *, job_class: str = CLASS, scheduled_at: str | None = None) -> dict[str, str]:
    """A right request for a minute of 2026-11-30."""
    run_id = f"{job_class}@2026-11-30T{minute}Z"
    return {"run_id": run_id, "scheduled_at": scheduled_at or f"2026-11-30T{minute}:00Z", "job_class": job_class}


def event_of(body: Any, *, token: str | None = TOKEN, method: str = "POST", **headers: str) -> dict[str, Any]:
    """An event of payload format 2.0."""
    sent = {"content-type": "application/json", **headers}
    if token is not None:
        sent["authorization"] = f"Bearer {token}"
    encoded = isinstance(body, bytes)
    return {
        "version": "2.0",
        "rawPath": "/drain-runs",
        "headers": sent,
        "requestContext": {"http": {"method": method, "path": "/drain-runs"}},
        "body": base64.b64encode(body).decode() if encoded else body if isinstance(body, str) else json.dumps(body),
        "isBase64Encoded": encoded,
    }


@dataclass(slots=True, kw_only=True)
class Gate:
    """The deployed webhook: hand it events. Parts may be exchanged before the first of them."""

    clock: HandClock = field(default_factory=HandClock)
    secrets: HandSecrets = field(default_factory=HandSecrets)
    trigger: HandTrigger = field(default_factory=HandTrigger)
    settings: Settings = SETTINGS
    webhook: Webhook = field(init=False)
    ledger: MemoryLedger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = MemoryLedger(self.clock.now_ms)
        ports = Ports(
            clock=self.clock,
            parallel=ThreadParallel(),
            # Powertools keeps a logger's stream by its name: a new name prints where this test listens.
            log=JsonLog(f"webhook-{uuid.uuid4().hex}"),
            metrics=EmfMetrics("SluiceTest"),
            ledger=self.ledger,
            queue=MemoryQueue(self.settings, self.clock.now_ms),
            limiter=MemoryLimiter(),
            upstream=_NoUpstream(),
            blobs=MemoryBlobs(),
        )
        self.restart(ports)

    def restart(self, ports: Ports | None = None) -> None:
        """A new process: the same world, nothing remembered."""
        self.webhook = Webhook(
            config=self.settings,
            ports=ports or self.webhook.ports,
            tokens=Tokens(self.clock, self.secrets),
            trigger=self.trigger,
        )

    def broken(self, **ports: Any) -> None:
        self.restart(replace(self.webhook.ports, **ports))

    def ask(self, event: object) -> Answer:
        raw = entry.handler(event, None)
        body, headers = raw["body"], raw["headers"]
        assert isinstance(body, str)
        assert isinstance(headers, dict)
        assert headers["content-type"] == "application/json"
        assert isinstance(raw["statusCode"], int)
        return Answer(raw["statusCode"], headers, json.loads(body))

    def post(self, body: Any = None, **how: Any) -> Answer:
        return self.ask(event_of(body_of() if body is None else body, **how))

    @property
    def runs(self) -> list[Run]:
        return self.ledger.runs


class _NoUpstream:
    def call(self, *_: Any, **__: Any) -> Mapping[str, Any]:
        raise AssertionError("the webhook calls no upstream")


def a_gate(patch: pytest.MonkeyPatch, **parts: Any) -> Gate:
    gate = Gate(**parts)
    enter(patch, gate)
    return gate


def enter(patch: pytest.MonkeyPatch, gate: Gate) -> None:
    """The handler stands at this gate."""
    patch.setattr(entry, "webhook", lambda: gate.webhook)
    ports = gate.webhook.ports
    patch.setattr(entry, "reporting", lambda: Reporting(log=ports.log, metrics=ports.metrics))
