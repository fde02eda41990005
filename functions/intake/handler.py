"""Lambda entry of the intake: one `match.ended` event of the game's bus."""

from __future__ import annotations

import uuid
from typing import Any

from shared.aws.runtime import discreet
from shared.aws.wiring import host
from shared.errors import ConfigError
from shared.submit.producers import jobs_of_match, match_ended, produce


@discreet
def handler(event: Any, _context: Any) -> dict[str, int]:
    """Event: EventBridge's. Its detail: {"match_id", "replays": [key, ...], "screenshots": [key, ...]}. What it raises
    makes Lambda invoke it again, and then set the event aside."""
    here = host()
    producer = here.settings.producers.match_ended
    if producer is None:
        raise ConfigError(["producers.match_ended: got nothing, expected a table"])
    jobs = jobs_of_match(match_ended(event), producer)
    report = produce(here.ports, here.settings, jobs, producer="match_ended", nonce=uuid.uuid4().hex)
    return {"created": report.created, "existing": report.existing}
