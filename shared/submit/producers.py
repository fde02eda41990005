"""What happened -> the jobs that it leaves behind. Their ids say what happened: told twice, it is the same jobs.

Submit the jobs that an event or a schedule leaves behind. Repeated, it adds nothing: the ids say what happened.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from shared.domain.iso_week import day_of, week_before
from shared.domain.job import NewJob
from shared.domain.settings import GuildReportsSettings, MatchEndedSettings, SessionSweepSettings, Settings
from shared.errors import InvalidInput, JobsRefused
from shared.ports import Ports
from shared.submit.submission import SubmitReport, submit_jobs

MATCH_ENDED: Final = "match.ended"
"""The `detail-type` of the event."""

SCREENSHOTS_PER_JOB: Final = 200

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_DIGEST_CHARS: Final = 16


class Malformed(Struct, frozen=True, kw_only=True):
    """An event that cannot be read: the field at fault, and what it should have been. Never its value (I12)."""

    field: str
    expected: str


class MatchEnded(Struct, frozen=True, kw_only=True):
    """`replays` and `screenshots` are the keys of the objects that the match left in the bucket."""

    match_id: str
    ended_ms: int
    replays: tuple[str, ...]
    screenshots: tuple[str, ...]


def match_ended(event: object) -> MatchEnded | Malformed:
    """Read an EventBridge event. Its `time` is when the match's jobs are due, however late the event is delivered."""
    if not isinstance(event, Mapping) or not isinstance(event.get("detail"), Mapping):
        return Malformed(field="detail", expected="an object")
    detail = event["detail"]
    match_id = detail.get("match_id")
    if not isinstance(match_id, str) or not match_id:
        return Malformed(field="detail.match_id", expected="a string that is not empty")
    ended_ms = _moment_ms(event.get("time"))
    if ended_ms is None:
        return Malformed(field="time", expected="an ISO 8601 time with an offset")
    keys = {name: _keys(detail.get(name, [])) for name in ("replays", "screenshots")}
    for name, found in keys.items():
        if found is None:
            return Malformed(field=f"detail.{name}", expected="a list of object keys")
    return MatchEnded(
        match_id=match_id,
        ended_ms=ended_ms,
        replays=keys["replays"] or (),
        screenshots=keys["screenshots"] or (),
    )


def jobs_of_match(match: MatchEnded, *, replay_class: str, screenshot_class: str) -> Iterator[NewJob]:
    """One job per replay, one per 200 screenshots; none for what has no class ("")."""
    if replay_class:
        for key in match.replays:
            yield _match_job(match, replay_class, "replay", {"replay_key": key})
    if screenshot_class:
        for begin in range(0, len(match.screenshots), SCREENSHOTS_PER_JOB):
            part = match.screenshots[begin : begin + SCREENSHOTS_PER_JOB]
            yield _match_job(match, screenshot_class, "screenshots", {"screenshots": part})


def report_job(guild_id: str, *, job_class: str, scheduled_ms: int) -> NewJob:
    """The report of the last week that was over when the schedule fired: one id per guild and week."""
    week = week_before(scheduled_ms)
    return NewJob(
        job_id=f"guild-report/{week}/{guild_id}",
        job_class=job_class,
        match_id=guild_id,
        payload=json.dumps({"guild_id": guild_id, "week": week}, ensure_ascii=False),
        due_ms=scheduled_ms,
    )


def sweep_job(*, job_class: str, scheduled_ms: int) -> NewJob:
    """The sweep of a day: one id per UTC day, and all sweeps one match, so that no two run at a time."""
    return NewJob(
        job_id=f"session-sweep/{day_of(scheduled_ms).isoformat()}",
        job_class=job_class,
        match_id="session-sweep",
        payload="{}",
        due_ms=scheduled_ms,
    )


def _match_job(match: MatchEnded, job_class: str, what: str, payload: Mapping[str, Sequence[str]]) -> NewJob:
    """Named by its match and its content: an event that is sent again, whatever its id, names the same jobs, and one
    that was corrected names new ones."""
    text = json.dumps(payload, ensure_ascii=False)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return NewJob(
        job_id=f"{match.match_id}/{what}/{digest}",
        job_class=job_class,
        match_id=match.match_id,
        payload=text,
        due_ms=match.ended_ms,
    )


def _keys(value: object) -> tuple[str, ...] | None:
    """Each key once, in the order of the event."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    if not all(isinstance(key, str) and key for key in value):
        return None
    return tuple(dict.fromkeys(value))


def _moment_ms(value: Any) -> int | None:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return None if moment.tzinfo is None else (moment - _EPOCH) // timedelta(milliseconds=1)


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
