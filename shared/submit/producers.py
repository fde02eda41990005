"""What happened -> the jobs that it leaves behind. Their ids say what happened: told twice, it is the same jobs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from shared.domain.iso_week import day_of, week_before
from shared.domain.job import NewJob
from shared.domain.settings import MatchEndedSettings, Settings
from shared.errors import InvalidInput, JobsRefused
from shared.ports import Ports
from shared.submit.submission import SubmitReport, submit_jobs

MATCH_ENDED: Final = "match.ended"
"""The `detail-type` of the event."""

SCREENSHOTS_PER_JOB: Final = 200
"""So many names stay well below what a payload may hold, and a poison one costs its neighbours little."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_DIGEST_CHARS: Final = 16
"""64 bits: no two replays of one match share an id."""


class MatchEnded(Struct, frozen=True, kw_only=True):
    """`replays` and `screenshots` are the keys of the objects that the match left in the bucket."""

    match_id: str
    ended_ms: int
    replays: tuple[str, ...]
    screenshots: tuple[str, ...]


def match_ended(event: object) -> MatchEnded:
    """Read an EventBridge event. Its `time` is when the match's jobs are due, however late the event is delivered.

    Raises `InvalidInput` with the field at fault and what it should have been, never with its value (I12).
    """
    if not isinstance(event, Mapping) or not isinstance(event.get("detail"), Mapping):
        raise _malformed("detail", "an object")
    detail = event["detail"]
    match_id = detail.get("match_id")
    if not isinstance(match_id, str) or not match_id:
        raise _malformed("detail.match_id", "a string that is not empty")
    return MatchEnded(
        match_id=match_id,
        ended_ms=_moment_ms(event.get("time")),
        replays=_keys(detail, "replays"),
        screenshots=_keys(detail, "screenshots"),
    )


def jobs_of_match(match: MatchEnded, producer: MatchEndedSettings) -> Iterator[NewJob]:
    """One job per replay, one per 200 screenshots; none for what has no class ("")."""
    if producer.replay_class:
        for key in match.replays:
            yield _match_job(match, producer.replay_class, "replay", {"replay_key": key})
    if producer.screenshot_class:
        for begin in range(0, len(match.screenshots), SCREENSHOTS_PER_JOB):
            part = match.screenshots[begin : begin + SCREENSHOTS_PER_JOB]
            yield _match_job(match, producer.screenshot_class, "screenshots", {"screenshots": part})


def report_jobs(guild_ids: Iterable[str], *, job_class: str, scheduled_ms: int) -> Iterator[NewJob]:
    """Reports of the last week that was over when the schedule fired: one id per guild and week.

    `guild_ids` is read as it comes, however many.
    """
    week = week_before(scheduled_ms)
    for guild_id in guild_ids:
        yield NewJob(
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


def produce(ports: Ports, config: Settings, jobs: Iterable[NewJob], *, producer: str, nonce: str) -> SubmitReport:
    """Submit the jobs that an event or a schedule leaves behind. Repeated, it adds nothing.

    Raises `JobsRefused` once all that is valid is in the ledger: Lambda then sets the event aside, and a person looks.
    `LedgerUnavailable` and `StorageUnavailable` pass through: Lambda invokes again.
    """
    report = submit_jobs(ports, config, jobs, nonce=nonce)
    refused = len(report.refused)
    ports.log.event("jobs_produced", producer=producer, added=report.created, existing=report.existing, refused=refused)
    if report.refused:
        raise JobsRefused(f"{refused}, the first one for: {report.refused[0].reason}")
    return report


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


def _keys(detail: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Each key once, in the order of the event."""
    keys = detail.get(name, [])
    if not isinstance(keys, Sequence) or isinstance(keys, str) or not all(isinstance(key, str) and key for key in keys):
        raise _malformed(f"detail.{name}", "a list of object keys")
    return tuple(dict.fromkeys(keys))


def _moment_ms(value: Any) -> int:
    try:
        moment = datetime.fromisoformat(value)
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    except (TypeError, ValueError):  # no time at all, or one without an offset, from which nothing can be subtracted
        raise _malformed("time", "an ISO 8601 time with an offset") from None


def _malformed(field: str, expected: str) -> InvalidInput:
    return InvalidInput(field, got="something else", expected=expected)
