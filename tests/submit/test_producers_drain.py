"""Producers in the virtual world: told twice, late, killed on the way: every job once, every report once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from ops.simulator.faults import CrashAt, CrashOn, Fail, FaultHook, FaultOn, When
from ops.simulator.hosts import ScheduleFaults
from ops.simulator.sluice_world import SimSluice
from ops.simulator.world import START_MS
from shared.domain import stats
from shared.domain.job import Lane, NewJob, State
from shared.domain.messages import BatchAnswer, Outgoing
from shared.domain.settings import MatchEndedSettings, Settings
from shared.errors import InvalidInput, JobsRefused, LedgerUnavailable, Retryable, StorageUnavailable
from shared.submit.producers import jobs_of_match, match_ended, produce, report_jobs, sweep_job
from shared.submit.submission import SubmitReport
from tests.kinds.real_kinds import GUILDS, HOUR_MS, WEEK, kinds, objects, settings
from tests.submit.test_producers import event

MATCHES = MatchEndedSettings(replay_class="replay_summary", screenshot_class="screenshot_thumbnails")
REPORTS = "guild_weekly_report"
SETTINGS = settings("replay_summary", "screenshot_thumbnails", "guild_weekly_report")
SCHEDULED_MS = START_MS


def world(*faults: FaultHook, given: Settings = SETTINGS, **options: Any) -> SimSluice:
    sluice = SimSluice(given, 5, faults=faults, kinds=kinds, **options)
    sluice.blobs.objects.update(objects())
    return sluice


def intake(sluice: SimSluice, happened: object, *, nonce: str) -> SubmitReport:
    jobs = jobs_of_match(match_ended(happened), MATCHES)
    return produce(sluice.ports, sluice.settings, jobs, producer="match_ended", nonce=nonce)


def told(sluice: SimSluice, happened: object, *, times: int = 1) -> None:
    """As the bus and Lambda do it: at least `times`, and again where an invocation failed or died."""
    done = 0
    for number in range(times + 3):
        try:
            run = sluice.command("intake", partial(intake, sluice, happened, nonce=f"n{number}"))
        except Retryable:
            continue
        done += run.value is not None
        if done == times:
            return
    raise AssertionError("the event was lost")


def scheduled(sluice: SimSluice, *, scheduled_ms: int = SCHEDULED_MS, guilds: Sequence[str] = GUILDS) -> Any:
    jobs = report_jobs(guilds, job_class=REPORTS, scheduled_ms=scheduled_ms)
    return produced(sluice, jobs)


def produced(sluice: SimSluice, jobs: Iterable[NewJob]) -> Any:
    nonce = sluice.world.new_id("n")
    return sluice.command("producer", partial(produce, sluice.ports, SETTINGS, jobs, producer="it", nonce=nonce))


def a_match(**changes: Any) -> dict[str, Any]:
    keys = list(objects())
    detail = {"replays": [key for key in keys if key.startswith("replays/")]}
    detail |= {"screenshots": [key for key in keys if key.startswith("screenshots/")]}
    return event(**{**detail, **changes})


# -- events


def test_a_match_that_ended_is_worked_off_once_however_often_it_is_told() -> None:
    sluice = world()
    told(sluice, a_match(), times=3)
    told(sluice, a_match(event_id="another", time="2026-11-30T12:09:00Z"))
    assert sluice.drain(max_ms=2 * HOUR_MS)
    assert Counter(row.job_class for row in sluice.rows.values()) == {"replay_summary": 3, "screenshot_thumbnails": 1}
    told(sluice, a_match(), times=1)  # a redelivery after all was done
    assert {row.state for row in sluice.rows.values()} == {State.DONE}
    assert sluice.ledger.open_rows == 0


@pytest.mark.parametrize("when", list(When))
def test_an_intake_that_is_killed_at_any_call_loses_and_doubles_nothing(when: When) -> None:
    clean = world()
    told(clean, a_match())
    for call in range(1, clean.world.calls + 1):
        sluice = world(CrashAt(call, when))
        told(sluice, a_match())
        assert set(sluice.rows) == set(clean.rows), f"crash {when} call {call}"


def test_a_lost_answer_is_no_second_job() -> None:
    lost = FaultOn("ledger.create", Fail(LedgerUnavailable("lost")), nth=1, when=When.AFTER)
    sluice = world(lost)
    told(sluice, a_match())
    assert len(sluice.rows) == 4


def test_a_payload_above_4_kb_goes_through_the_object_store() -> None:
    many = [f"screenshots/{number:050d}" for number in range(200)]
    sluice = world()
    told(sluice, a_match(replays=[], screenshots=many))
    (row,) = sluice.rows.values()
    assert (row.payload, row.payload_key.partition("/")[0]) == ("", "payloads")
    assert json.loads(sluice.blobs.objects[row.payload_key]) == {"screenshots": many}
    assert sluice.drain(max_ms=2 * HOUR_MS)
    assert sluice.rows[row.job_id].state is State.DONE


def test_the_jobs_are_due_when_the_match_ended_and_not_when_the_event_came() -> None:
    sluice = world()
    sluice.run(20 * 60_000)
    told(sluice, a_match(time="2026-11-30T12:00:00Z"))
    assert {row.due_ms for row in sluice.rows.values()} == {START_MS}


def test_the_jobs_of_an_ordered_class_stand_in_the_order_of_the_event() -> None:
    classes = {name: replace(settings, ordered=name == "replay_summary") for name, settings in SETTINGS.classes.items()}
    sluice = world(given=replace(SETTINGS, classes=classes))
    told(sluice, a_match(screenshots=[]), times=2)
    rows = sorted(sluice.rows.values(), key=lambda row: row.seq)
    assert [(row.seq, json.loads(row.payload)["replay_key"]) for row in rows] == [
        (number + 1, f"replays/{number}.pgn") for number in range(3)
    ]
    assert sluice.drain(max_ms=2 * HOUR_MS)


def test_an_event_that_cannot_be_read_or_taken_is_raised_and_not_quoted() -> None:
    sluice = world()
    with pytest.raises(InvalidInput, match=r"detail\.match_id"):
        told(sluice, event(match_id=["canary"]))
    with pytest.raises(JobsRefused, match="the first one for: job_id: got") as raised:
        told(sluice, a_match(match_id="canary" * 200))
    assert "canary" not in str(raised.value)
    assert sluice.rows == {}
    (line,) = sluice.log.lines
    assert (line.name, line.fields["added"], line.fields["refused"]) == ("jobs_produced", 0, 4)
    assert "canary" not in str(sluice.log.lines)


# -- reports


def reports_of(sluice: SimSluice) -> dict[str, bytes]:
    return {key: body for key, body in sluice.blobs.objects.items() if key.startswith("reports/")}


def expected() -> dict[str, bytes]:
    sluice = world()
    scheduled(sluice)
    assert sluice.drain(max_ms=2 * HOUR_MS)
    return reports_of(sluice)


DOUBLES: dict[str, dict[str, Any]] = {
    "a schedule that fires twice": {"scheduled": [0, 0]},
    "and again after an hour, and after a day": {"scheduled": [0, HOUR_MS, 24 * HOUR_MS]},
    "two pacers": {"schedule_faults": ScheduleFaults(double=1.0)},
    "a response that is lost": {"faults": [FaultOn("ledger.create", Fail(LedgerUnavailable("lost")), when=When.AFTER)]},
    "an object whose answer is lost": {
        "faults": [FaultOn("blobs.put_once", Fail(StorageUnavailable("lost")), when=When.AFTER)]
    },
    "an end whose answer is lost": {
        "faults": [FaultOn("ledger.move", Fail(LedgerUnavailable("lost")), nth=11, when=When.AFTER)]
    },
    "a worker that dies between the two forms": {"faults": [CrashOn("blobs.put_once", 2, When.AFTER)]},
    "a producer that dies": {"faults": [CrashOn("ledger.create", 1, When.AFTER)]},
}


@pytest.mark.parametrize("name", DOUBLES)
def test_two_reports_for_one_guild_and_week_are_impossible(name: str) -> None:
    double = DOUBLES[name]
    puts: Counter[str] = Counter()
    sluice = world(*double.get("faults", []), schedule_faults=double.get("schedule_faults"))
    watch(sluice, puts)
    for later_ms in double.get("scheduled", [0]):
        for _ in range(2):  # Lambda invokes again where it failed, and here where it did not
            try:
                scheduled(sluice, scheduled_ms=SCHEDULED_MS + later_ms)
            except Retryable:
                continue
    assert sluice.drain(max_ms=5 * HOUR_MS)
    assert set(sluice.rows) == {f"guild-report/{WEEK}/{guild}" for guild in GUILDS}
    assert {row.state for row in sluice.rows.values()} == {State.DONE}
    assert reports_of(sluice) == expected()
    assert set(puts.values()) == {1}, "each object was made once"
    assert sluice.report().duplicate_effects == 0


def watch(sluice: SimSluice, puts: Counter[str]) -> None:
    put = sluice.blobs.put_once

    def counted(key: str, body: bytes, *, content_type: str) -> bool:
        made = put(key, body, content_type=content_type)
        puts[key] += made
        return made

    sluice.blobs.put_once = counted  # type: ignore[method-assign]


def test_a_message_that_comes_again_after_an_hour_finds_the_report_done() -> None:
    """The very messages, when SQS has forgotten that it had them: each is happened stale, and nothing moves."""
    sluice = world()
    sent: list[tuple[str, Lane, Sequence[Outgoing]]] = []
    send = sluice.queue.send_batch

    def noted(job_class: str, lane: Lane, batch: Sequence[Outgoing]) -> BatchAnswer:
        sent.append((job_class, lane, batch))
        return send(job_class, lane, batch)

    sluice.queue.send_batch = noted  # type: ignore[method-assign]
    scheduled(sluice)
    assert sluice.drain(max_ms=2 * HOUR_MS)
    before, moves, puts = reports_of(sluice), len(sluice.ledger.steps), Counter[str]()
    watch(sluice, puts)
    sluice.run(HOUR_MS)
    for job_class, lane, batch in sent:
        send(job_class, lane, batch)
    sluice.run(HOUR_MS)
    minutes_ms = list(range(START_MS, sluice.world.now_ms, 60_000))
    windows = sluice.ledger.read_stats(REPORTS, windows_ms=minutes_ms)
    assert sum(window.counters.get(stats.STALE, 0) for window in windows) == sum(len(batch) for *_, batch in sent)
    assert (reports_of(sluice), len(sluice.ledger.steps), puts) == (before, moves, Counter())
    assert len(sent) >= 1


def test_a_guild_that_cannot_be_named_does_not_cost_the_others_their_report_and_is_told() -> None:
    sluice = world()
    guilds = (GUILDS[0], "canary" * 200, GUILDS[1])
    with pytest.raises(JobsRefused, match="1, the first one for: job_id"):
        scheduled(sluice, guilds=guilds)
    assert len(sluice.rows) == 2


def test_a_day_has_one_sweep() -> None:
    sluice = world()
    for hours in (0, 0, 3, 12):
        # of any class: its job is only looked at
        produced(sluice, [sweep_job(job_class="replay_summary", scheduled_ms=SCHEDULED_MS + hours * HOUR_MS)])
    assert sorted(sluice.rows) == ["session-sweep/2026-11-30", "session-sweep/2026-12-01"]
