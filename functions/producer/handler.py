"""Lambda entry of the scheduled producers: the weekly reports and the daily sweep."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from shared.aws.runtime import discreet
from shared.aws.table import guild_ids
from shared.aws.wiring import host
from shared.domain.job import NewJob
from shared.errors import InvalidInput
from shared.pacer.tick import scheduled_ms_of
from shared.submit.producers import produce, report_jobs, sweep_job


@discreet
def handler(event: dict[str, Any], _context: Any) -> dict[str, int]:
    """Event: {"producer", "scheduled_at"}. The week and the day are those of the scheduled time, never of "now"."""
    here = host()
    producers = here.settings.producers
    scheduled_ms = scheduled_ms_of(event, now_ms=here.ports.clock.now_ms())
    jobs: Iterable[NewJob]
    match name := event.get("producer"):
        case "guild_reports" if (reports := producers.guild_reports) is not None:
            guilds = guild_ids(here.clients, reports.guilds_table)
            jobs = report_jobs(guilds, job_class=reports.job_class, scheduled_ms=scheduled_ms)
        case "session_sweep" if (sweep := producers.session_sweep) is not None:
            jobs = [sweep_job(job_class=sweep.job_class, scheduled_ms=scheduled_ms)]
        case _:
            raise InvalidInput("producer", got="another name", expected="a scheduled one of sluice.toml's producers")
    report = produce(here.ports, here.settings, jobs, producer=name, nonce=uuid.uuid4().hex)
    return {"created": report.created, "existing": report.existing}
