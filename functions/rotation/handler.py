"""Lambda entry of the secret's rotation: one of Secrets Manager's four steps."""

from __future__ import annotations

import secrets
from typing import Any, Final

from shared.aws.runtime import discreet
from shared.aws.wiring import rotation
from shared.webhook.tokens import rotate

SECRET_BYTES: Final = 36
"""48 characters of base64url: no padding, nothing that a header or a shell would read in its own way."""


@discreet
def handler(event: dict[str, Any], _context: Any) -> None:
    """Event: {"Step", "SecretId", "ClientRequestToken"}. The secret is this deployment's, whatever the event says."""
    versions, log = rotation()
    rotate(
        versions,
        log,
        step=event["Step"],
        version=event["ClientRequestToken"],
        new_value=lambda: secrets.token_urlsafe(SECRET_BYTES),
    )
