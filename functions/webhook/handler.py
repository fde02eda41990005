"""Lambda entry of the webhook: one HTTP request, one admission at most."""

from __future__ import annotations

from typing import Any

from shared.aws.wiring import reporting, webhook
from shared.webhook.answer import failed, receive


def handler(event: Any, _context: Any) -> dict[str, object]:
    """Event: API Gateway's, payload format 1.0 or 2.0. Returns a response in the form that both take.

    A webhook that cannot even be built is answered as well: the gateway's own 500 would be no JSON and have no reason.
    """
    try:
        return receive(webhook(), event).for_gateway()
    except Exception as error:  # noqa: BLE001 - Lambda would print it whole, and a caller's words may be in it (I12)
        return failed(reporting(), error).for_gateway()
