"""Submit the jobs that an event or a schedule leaves behind. Repeated, it adds nothing: the ids say what happened."""

from __future__ import annotations

from collections.abc import Iterable

from shared.core.model import NewJob
from shared.core.produce import Malformed, jobs_of_match, match_ended, report_job, sweep_job
from shared.core.settings import GuildReportsSettings, MatchEndedSettings, SessionSweepSettings, Settings
from shared.errors import InvalidInput, JobsRefused
from shared.ports import Ports
from shared.usecases.submit import SubmitReport, submit_jobs


def produce_match(
    ports: Ports, settings: Settings, producer: MatchEndedSettings, event: object, *, nonce: str
) -> SubmitReport:
    """The jobs of a match that ended. Raises `InvalidInput` for an event that cannot be read."""
    match = match_ended(event)
    if isinstance(match, Malformed):
        raise InvalidInput(match.field, got="something else", expected=match.expected)
    jobs = jobs_of_match(match, replay_class=producer.replay_class, screenshot_class=producer.screenshot_class)
    return _submit(ports, settings, jobs, name="match_ended", nonce=nonce)


def produce_reports(
    ports: Ports,
    settings: Settings,
    producer: GuildReportsSettings,
    guild_ids: Iterable[str],
    *,
    scheduled_ms: int,
    nonce: str,
) -> SubmitReport:
    """One report per guild, of the week before `scheduled_ms`. `guild_ids` is read as it comes, however many."""
    jobs = (report_job(guild_id, job_class=producer.job_class, scheduled_ms=scheduled_ms) for guild_id in guild_ids)
    return _submit(ports, settings, jobs, name="guild_reports", nonce=nonce)


def produce_sweep(
    ports: Ports, settings: Settings, producer: SessionSweepSettings, *, scheduled_ms: int, nonce: str
) -> SubmitReport:
    job = sweep_job(job_class=producer.job_class, scheduled_ms=scheduled_ms)
    return _submit(ports, settings, [job], name="session_sweep", nonce=nonce)


def _submit(ports: Ports, settings: Settings, jobs: Iterable[NewJob], *, name: str, nonce: str) -> SubmitReport:
    """Raises `JobsRefused` once all that is valid is in the ledger: Lambda then sets the event aside, and a person
    looks. `LedgerUnavailable` and `StorageUnavailable` pass through: Lambda invokes again."""
    report = submit_jobs(ports, settings, jobs, nonce=nonce)
    refused = len(report.refused)
    ports.log.event("jobs_produced", producer=name, added=report.created, existing=report.existing, refused=refused)
    if report.refused:
        raise JobsRefused(f"{refused}, the first one for: {report.refused[0].reason}")
    return report
