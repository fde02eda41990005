"""Lambda entry of the scheduled producers: the weekly reports and the daily sweep."""

from __future__ import annotations

import uuid
from typing import Any

from shared.aws.runtime import discreet
from shared.aws.table import guild_ids
from shared.aws.wiring import host
from shared.errors import InvalidInput
from shared.pacer.tick import scheduled_ms_of
from shared.submit.producers import produce_reports, produce_sweep


@discreet
def handler(event: dict[str, Any], _context: Any) -> dict[str, int]:
    """Event: {"producer", "scheduled_at"}. The week and the day are those of the scheduled time, never of "now"."""
    here = host()
    producers = here.settings.producers
    scheduled_ms = scheduled_ms_of(event, now_ms=here.ports.clock.now_ms())
    nonce = uuid.uuid4().hex
    match event.get("producer"):
        case "guild_reports" if producers.guild_reports is not None:
            guilds = guild_ids(here.clients, producers.guild_reports.guilds_table)
            report = produce_reports(
                here.ports,
                here.settings,
                producers.guild_reports,
                guilds,
                scheduled_ms=scheduled_ms,
                nonce=nonce,
            )
        case "session_sweep" if producers.session_sweep is not None:
            report = produce_sweep(
                here.ports, here.settings, producers.session_sweep, scheduled_ms=scheduled_ms, nonce=nonce
            )
        case _:
            raise InvalidInput("producer", got="another name", expected="a scheduled one of sluice.toml's producers")
    return {"created": report.created, "existing": report.existing}
