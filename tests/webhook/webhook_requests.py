"""Webhook requests for the tests of the pure part."""

from __future__ import annotations

import base64
import json
from typing import Any

from shared.domain.settings import WebhookSettings
from shared.webhook.request import Rejected, request_of, run_asked_for

NOW_MS = 1_796_040_300_000
"""2026-11-30T12:05Z."""

CLASS = "document_classification"
OPEN = frozenset({CLASS})
RIGHT = {"run_id": f"{CLASS}@2026-11-30T12:05Z", "scheduled_at": "2026-11-30T12:05:00Z", "job_class": CLASS}
JSON = "application/json"


def event(body: Any = RIGHT, *, content_type: Any = JSON, encoded: bool = False, **changes: Any) -> dict[str, Any]:
    text = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
    if isinstance(text, bytes):
        text, encoded = base64.b64encode(text).decode(), True
    return {
        "version": "2.0",
        "requestContext": {"http": {"method": "POST"}},
        "headers": {"authorization": "Bearer t", "content-type": content_type},
        "body": text,
        "isBase64Encoded": encoded,
    } | changes


def asked(*arguments: Any, now_ms: int = NOW_MS, limits: WebhookSettings | None = None, **changes: Any) -> Any:
    """The minute that the request asks for, or the reason it is refused for."""
    answer = run_asked_for(request_of(event(*arguments, **changes)), OPEN, limits or WebhookSettings(), now_ms=now_ms)
    return answer.reason if isinstance(answer, Rejected) else answer
