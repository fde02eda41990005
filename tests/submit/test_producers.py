"""What happened becomes jobs: the same ones however often it is told, and others when it is another thing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.worker.kinds import screenshot_thumbnails
from shared.domain.job import NewJob
from shared.domain.settings import MatchEndedSettings
from shared.errors import InvalidInput
from shared.submit.producers import SCREENSHOTS_PER_JOB, jobs_of_match, match_ended, report_jobs, sweep_job

ENDED_MS = 1_796_040_000_000
MATCH = "Köln vs. 1. FC – Halbfinale 2026/27 (Rückspiel)"


def event(*, event_id: str = "e1", time: str = "2026-11-30T12:00:00Z", **detail: Any) -> dict[str, Any]:
    detail = {"match_id": MATCH, "replays": ["replays/1", "replays/2"], "screenshots": ["s/1", "s/2"]} | detail
    envelope = {"version": "0", "id": event_id, "detail-type": "match.ended", "source": "game", "account": "1"}
    return envelope | {"time": time, "region": "eu-central-1", "resources": [], "detail": detail}


def jobs(happened: dict[str, Any], **classes: str) -> list[NewJob]:
    producer = MatchEndedSettings(**({"replay_class": "summary", "screenshot_class": "thumbs"} | classes))
    return list(jobs_of_match(match_ended(happened), producer))


def test_a_match_leaves_a_job_per_replay_and_one_for_its_screenshots_due_when_it_ended() -> None:
    left = jobs(event())
    assert [(job.job_class, json.loads(job.payload)) for job in left] == [
        ("summary", {"replay_key": "replays/1"}),
        ("summary", {"replay_key": "replays/2"}),
        ("thumbs", {"screenshots": ["s/1", "s/2"]}),
    ]
    assert {(job.match_id, job.due_ms) for job in left} == {(MATCH, ENDED_MS)}
    assert [job.job_id.rpartition("/")[0] for job in left] == [f"{MATCH}/replay"] * 2 + [f"{MATCH}/screenshots"]


def test_what_has_no_class_leaves_no_job() -> None:
    assert [job.job_class for job in jobs(event(), replay_class="")] == ["thumbs"]
    assert [job.job_class for job in jobs(event(), screenshot_class="")] == ["summary"] * 2
    assert jobs(event(replays=[], screenshots=[])) == []


@pytest.mark.parametrize(
    "again",
    [
        event(),  # delivered twice
        event(event_id="e2", time="2026-11-30T12:07:00Z"),  # the game told it twice
        event(replays=["replays/2", "replays/1", "replays/1"]),  # in another order
    ],
)
def test_a_match_that_is_told_again_names_the_same_jobs_with_the_same_contents(again: dict[str, Any]) -> None:
    def contents(left: list[NewJob]) -> set[tuple[str, str, str, str]]:
        return {(job.job_id, job.job_class, job.match_id, job.payload) for job in left}

    assert contents(jobs(again)) == contents(jobs(event()))


def test_a_match_that_is_corrected_names_new_jobs_beside_those_that_stand() -> None:
    first, corrected = jobs(event()), jobs(event(replays=["replays/1", "replays/3"], screenshots=["s/1"]))
    assert len({job.job_id for job in [*first, *corrected]}) == 5


@given(st.lists(st.tuples(st.text(min_size=1, max_size=4), st.text(min_size=1, max_size=4)), unique=True, max_size=20))
def test_no_two_matches_or_replays_share_an_id(pairs: list[tuple[str, str]]) -> None:
    ids = {jobs(event(match_id=match, replays=[key], screenshots=[]))[0].job_id for match, key in pairs}
    assert len(ids) == len(pairs)


def test_many_screenshots_are_several_jobs_each_of_which_its_kind_takes() -> None:
    keys = [f"s/{number}" for number in range(2 * SCREENSHOTS_PER_JOB + 1)]
    parts = [json.loads(job.payload)["screenshots"] for job in jobs(event(replays=[], screenshots=keys))]
    assert [len(part) for part in parts] == [SCREENSHOTS_PER_JOB, SCREENSHOTS_PER_JOB, 1]
    assert [key for part in parts for key in part] == keys
    assert SCREENSHOTS_PER_JOB <= screenshot_thumbnails.MAX_SCREENSHOTS


@pytest.mark.parametrize(
    ("odd", "field"),
    [
        (None, "detail"),
        ([], "detail"),
        ({}, "detail"),
        ({**event(), "detail": "x"}, "detail"),
        (event(match_id=""), "detail.match_id"),
        (event(match_id=7), "detail.match_id"),
        (event(time="today"), "time"),
        (event(time="2026-11-30T12:00:00"), "time"),  # of which place?
        ({**event(), "time": None}, "time"),
        (event(replays="replays/1"), "detail.replays"),
        (event(replays=[1]), "detail.replays"),
        (event(screenshots=[""]), "detail.screenshots"),
        (event(screenshots={"a": 1}), "detail.screenshots"),
        (event(screenshots=None), "detail.screenshots"),
    ],
)
def test_an_event_that_cannot_be_read_names_its_field(odd: object, field: str) -> None:
    with pytest.raises(InvalidInput) as malformed:
        match_ended(odd)
    assert malformed.value.field == field


def test_a_report_is_named_by_its_guild_and_the_week_before_the_schedule() -> None:
    (on_time,), (hours_late,), (days_late,) = (
        report_jobs(["Löwen"], job_class="reports", scheduled_ms=moment)
        for moment in (1_799_031_600_000, 1_799_060_000_000, 1_799_500_000_000)  # 2027-01-04T03:00Z and later
    )
    assert on_time.job_id == hours_late.job_id == days_late.job_id == "guild-report/2026-W53/Löwen"
    assert json.loads(on_time.payload) == {"guild_id": "Löwen", "week": "2026-W53"}
    assert on_time.payload == days_late.payload
    assert (on_time.match_id, on_time.due_ms) == ("Löwen", 1_799_031_600_000)
    (next_week,) = report_jobs(["Löwen"], job_class="reports", scheduled_ms=1_799_031_600_000 + 7 * 86_400_000)
    assert next_week.job_id == "guild-report/2027-W01/Löwen"


def test_a_sweep_is_named_by_its_day_and_all_sweeps_are_one_match() -> None:
    days = [sweep_job(job_class="sweep", scheduled_ms=ENDED_MS + hours * 3_600_000) for hours in (0, 11, 12)]
    assert [job.job_id for job in days] == ["session-sweep/2026-11-30"] * 2 + ["session-sweep/2026-12-01"]
    assert {job.match_id for job in days} == {"session-sweep"}
