"""Lambda entry of the webhook: one HTTP request, one admission at most."""

from __future__ import annotations

from typing import Any

from shared.aws.webhook_wiring import door
from shared.usecases.admit import failed, receive


def handler(event: Any, _context: Any) -> dict[str, object]:
    """Event: API Gateway's, payload format 1.0 or 2.0. Returns a response in the form that both take."""
    here = door()
    try:
        return receive(here, event).for_gateway()
    except Exception as error:  # noqa: BLE001 - Lambda would print it whole, and a caller's words may be in it (I12)
        return failed(here.ports, error).for_gateway()
