"""`guild_weekly_report`: the right week, the right sums, and one report whatever happens. DynamoDB: tests/handlers."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from functions.worker.kinds import guild_weekly_report
from functions.worker.kinds.guild_weekly_report import MAX_REPORT_BYTES, add_up, render, report_of, report_page
from shared.aws.keys import Item
from shared.domain.iso_week import end_ms
from shared.domain.job import Job
from shared.errors import BadPayload, ConfigError
from shared.kind import Chunk, ChunkContext
from tests.content.matches import MemoryMatches, a_week, match, utc
from tests.kinds.chunks import FakeContext, a_job, run_to_end

GUILD, WEEK = "Die Löwen <script>", "2026-W53"
MONDAY = utc(2026, 12, 28)
DUE_MS = end_ms(WEEK) + 3 * 3_600_000


def a_report_job(payload: Any = None, *, job_id: str = "r1", due_ms: int = DUE_MS) -> Job:
    return a_job({"guild_id": GUILD, "week": WEEK} if payload is None else payload, job_id=job_id, due_ms=due_ms)


def process_with(matches: MemoryMatches) -> Any:
    def process(job: Job, cursor: str, context: ChunkContext) -> Chunk:
        return report_page(matches, job, cursor, context)

    return process


def run(matches: MemoryMatches, context: FakeContext | None = None, *, job: Job | None = None, **options: Any) -> Any:
    context = context or FakeContext()
    run_to_end(process_with(matches), job or a_report_job(), context, **options)
    return context


def forms(context: FakeContext) -> tuple[dict[str, Any], str]:
    """The one report in both forms."""
    json_name, html_name = sorted(context.blobs.objects, reverse=True)
    assert (json_name[:-5], html_name[:-5]) == (html_name[:-5], json_name[:-5])
    return json.loads(context.blobs.objects[json_name]), context.blobs.objects[html_name].decode()


# -- which matches


def test_a_week_at_the_turn_of_the_year_has_its_seven_days_and_no_others() -> None:
    around = [
        match(GUILD, 900, utc(2026, 12, 27)),
        match(GUILD, 901, utc(2027, 1, 4)),
        match("another", 902, utc(2026, 12, 30)),
    ]
    report, _ = forms(run(MemoryMatches([*a_week(GUILD, MONDAY, 20), *around])))
    assert report["matches"] == 20
    assert (report["first_day"], report["last_day"]) == ("2026-12-28", "2027-01-03")
    assert [day["date"] for day in report["days"]][3:5] == ["2026-12-31", "2027-01-01"]
    assert sum(day["matches"] for day in report["days"]) == 20
    assert report["days"][6]["matches"] >= 1, "the last second of Sunday"


@pytest.mark.parametrize("page_rows", [1, 3, 7, 19, 20, 21, 1000])
def test_the_report_does_not_depend_on_where_pages_are_cut(page_rows: int) -> None:
    items = a_week(GUILD, MONDAY, 20)
    whole = report_of(GUILD, WEEK, [add_up(items)])
    assert forms(run(MemoryMatches(items, page_rows=page_rows)))[0] == whole


# -- which sums


def test_the_sums_are_those_of_the_matches() -> None:
    def played(number: int, result: str, points: tuple[int, int], **players: int) -> Item:
        return match(
            GUILD,
            number,
            MONDAY,
            result={"S": result},
            map={"S": "Glacier" if number else "Canyon"},
            points_for={"N": str(points[0])},
            points_against={"N": str(points[1])},
            seconds={"N": "1800"},
            players={"M": {name: {"N": str(scored)} for name, scored in players.items()}},
        )

    items = [
        played(0, "won", (30, 10), zoe=20, noa=10),
        played(1, "lost", (5, 40), noa=5),
        played(2, "won", (9, 8), jo=15),
    ]
    report, page = forms(run(MemoryMatches(items)))
    assert (report["matches"], report["won"], report["lost"], report["drawn"]) == (3, 2, 1, 0)
    assert (report["points_for"], report["points_against"], report["win_percent"]) == (44, 58, 67)
    assert report["maps"] == [{"name": "Glacier", "matches": 2}, {"name": "Canyon", "matches": 1}]
    assert report["players"] == [
        {"name": "zoe", "matches": 1, "points": 20},
        {"name": "noa", "matches": 2, "points": 15},  # as many points as jo, and more matches
        {"name": "jo", "matches": 1, "points": 15},
    ]
    assert "<b>1.5 h</b>" in page


def test_an_item_that_says_little_counts_and_one_that_cannot_be_read_does_not_cost_the_report() -> None:
    key = {"guild_id": {"S": GUILD}}
    bare: Item = {**key, "ended": {"S": "2026-12-29T10:00:00Z#1"}}
    odd: Item = {**key, "ended": {"S": "2026-12-29T10:00:00Z#2"}, "result": {"N": "1"}, "seconds": {"N": "12.75"}}
    wrong: Item = {**key, "ended": {"S": "2026-12-29T10:00:00Z#3"}, "seconds": {"S": "an hour"}}
    report, page = forms(run(MemoryMatches([bare, odd, wrong])))
    assert (report["matches"], report["undecided"], report["unreadable"], report["seconds"]) == (2, 2, 1, 12)
    assert "1 of the week" in page


def test_a_week_without_matches_has_a_report_too() -> None:
    report, page = forms(run(MemoryMatches([])))
    assert (report["matches"], report["win_percent"], len(report["days"])) == (0, 0, 7)
    assert "No matches in this week." in page


# -- the page


def test_names_cannot_write_into_the_page() -> None:
    items = [match(GUILD, 1, MONDAY, map={"S": "<img src=x>"}, players={"M": {'"><script>': {"N": "1"}}})]
    _, page = forms(run(MemoryMatches(items)))
    assert "Die Löwen &lt;script&gt;" in page
    assert not re.search(r"<(script|img)", page)


def test_the_page_names_no_moment_but_those_of_its_week() -> None:
    _, page = forms(run(MemoryMatches(a_week(GUILD, MONDAY, 20))))
    assert set(re.findall(r"20\d\d-\d\d-\d\d", page)) == {f"2026-12-{day}" for day in range(28, 32)} | {
        f"2027-01-0{day}" for day in range(1, 4)
    }


def test_the_largest_report_is_far_below_what_is_read_back() -> None:
    items = [
        match(GUILD, n, MONDAY, map={"S": "\u20ac" * 999}, players={"M": {f"{n}{'€' * 999}": {"N": "9" * 38}}})
        for n in range(50)
    ]
    report, page = forms(run(MemoryMatches(items), job=a_report_job()))
    assert len(json.dumps(report)) + len(page) < MAX_REPORT_BYTES // 4


# -- one report


@pytest.mark.parametrize("dies_at", range(5))
def test_killed_at_any_page_both_forms_are_byte_for_byte_the_same(dies_at: int) -> None:
    items = a_week(GUILD, MONDAY, 47)
    undisturbed = run(MemoryMatches(items))
    killed = run(MemoryMatches(items), dies_at=dies_at)
    assert killed.blobs.objects == undisturbed.blobs.objects


def test_a_second_job_for_the_same_week_leaves_the_report_as_it_is_though_matches_were_added() -> None:
    context = run(MemoryMatches(a_week(GUILD, MONDAY, 20)))
    first = dict(context.blobs.objects)
    again = FakeContext(blobs=context.blobs)
    run(MemoryMatches(a_week(GUILD, MONDAY, 30)), again, job=a_report_job(job_id="r2"))
    assert context.blobs.objects == first


def test_killed_between_the_two_forms_the_page_tells_what_the_report_says() -> None:
    context = run(MemoryMatches(a_week(GUILD, MONDAY, 20)))
    report, page = forms(context)
    (html,) = [name for name in context.blobs.objects if name.endswith(".html")]
    del context.blobs.objects[html]
    run(MemoryMatches(a_week(GUILD, MONDAY, 30)), FakeContext(blobs=context.blobs))  # matches that came too late
    assert forms(context) == (report, page) == (report, render(report))


def test_guilds_of_almost_one_name_and_weeks_have_reports_of_their_own() -> None:
    context = FakeContext()
    asked = [(guild, WEEK) for guild in ("Löwen", "Lo\u0308wen", "löwen", "../Löwen")] + [("Löwen", "2026-W52")]
    for guild, week in asked:
        job = a_report_job({"guild_id": guild, "week": week})
        run(MemoryMatches([]), FakeContext(blobs=context.blobs), job=job)
    assert len(context.blobs.objects) == 2 * len(asked)


# -- what is the job's own failure


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({}, "guild_id"),
        ([], "object"),
        ({"guild_id": "", "week": WEEK}, "guild_id"),
        ({"guild_id": 7, "week": WEEK}, "guild_id"),
        ({"guild_id": GUILD}, "week"),
        ({"guild_id": GUILD, "week": "2027-W53"}, "week"),  # 2027 has 52
        ({"guild_id": GUILD, "week": 53}, "week"),
        ({"guild_id": GUILD, "week": "2027-W01"}, "week"),  # has only begun
    ],
)
def test_a_payload_without_a_guild_and_a_week_that_is_over_is_the_jobs_failure(payload: Any, field: str) -> None:
    with pytest.raises(BadPayload, match=field):
        report_page(MemoryMatches([]), a_report_job(payload), "", FakeContext())


def test_a_week_is_over_at_its_end_and_not_a_moment_before() -> None:
    report_page(MemoryMatches([]), a_report_job(due_ms=end_ms(WEEK)), "", FakeContext())
    with pytest.raises(BadPayload, match="over"):
        report_page(MemoryMatches([]), a_report_job(due_ms=end_ms(WEEK) - 1), "", FakeContext())


def test_a_class_that_names_no_table_is_told_which_option_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"options\.matches_table"):
        guild_weekly_report.process_chunk(a_report_job(), "", FakeContext())
