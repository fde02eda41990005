"""`guild_weekly_report` on DynamoDB: its pages and its week, and the whole worker around it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from functions.worker.kinds import guild_weekly_report
from functions.worker.kinds.guild_weekly_report import PAGE_ROWS, DynamoMatches, report_page
from shared.aws.clients import Clients
from shared.domain.iso_week import first_day, week_before
from shared.domain.job import Job, NewJob, State
from shared.errors import StorageUnavailable
from shared.kind import Chunk, ChunkContext
from tests.content.matches import MemoryMatches, a_week, match, utc
from tests.handlers.deployment import Deployment, deployed
from tests.kinds.chunks import FakeContext, run_to_end
from tests.kinds.test_guild_weekly_report import GUILD, MONDAY, a_report_job

TABLE = "game-matches"
CONFIG = f"""
[classes.guild_weekly_report]
kind = "guild_weekly_report"
function_timeout_s = 60
options.matches_table = "{TABLE}"
"""


def create_matches(dynamodb: Any, items: list[dict[str, Any]]) -> None:
    dynamodb.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "guild_id", "KeyType": "HASH"}, {"AttributeName": "ended", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("guild_id", "ended")],
    )
    for item in items:
        dynamodb.put_item(TableName=TABLE, Item=item)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    guild_weekly_report._matches.cache_clear()
    with deployed(CONFIG, tmp_path, monkeypatch) as world:
        yield world
    guild_weekly_report._matches.cache_clear()


@pytest.mark.parametrize("page_rows", [1, 7, 20, 100])
def test_the_table_gives_the_same_report_as_the_one_in_memory(world: Deployment, page_rows: int) -> None:
    around = [match(GUILD, 900, utc(2026, 12, 27)), match(GUILD, 901, utc(2027, 1, 4)), match("x", 902, MONDAY)]
    items = [*a_week(GUILD, MONDAY, 20), *around]
    create_matches(world.aws.clients.dynamodb, items)
    made = []
    for matches in (DynamoMatches(world.aws.clients, TABLE, page_rows=page_rows), MemoryMatches(items)):

        def process(job: Job, cursor: str, context: ChunkContext, matches: Any = matches) -> Chunk:
            return report_page(matches, job, cursor, context)

        context = FakeContext()
        run_to_end(process, a_report_job(), context)
        made.append(context.blobs.objects)
    assert made[0] == made[1]
    assert len(made[0]) == 2


def test_a_job_reports_a_week_of_several_pages(world: Deployment) -> None:
    now_ms = world.host.ports.clock.now_ms()
    week = week_before(now_ms)
    monday = first_day(week)
    count = PAGE_ROWS + 30
    create_matches(world.aws.clients.dynamodb, a_week(GUILD, utc(monday.year, monday.month, monday.day), count))
    payload = json.dumps({"guild_id": GUILD, "week": week})
    job = NewJob(job_id=f"guild-report/{week}/{GUILD}", job_class=world.job_class, match_id=GUILD, payload=payload)
    (row,) = world.work(job)
    assert (row.state, row.attempts) == (State.DONE, 0)
    reports = world.objects("reports/")
    assert sorted(key.rpartition(".")[2] for key in reports) == ["html", "json"]
    (report,) = [json.loads(body) for key, body in reports.items() if key.endswith(".json")]
    assert (report["matches"], report["week"]) == (count, week)
    assert len(world.host.ports.ledger.outputs(job.job_id)) == 2


def test_a_table_that_does_not_answer_is_an_outage_and_not_the_jobs_failure() -> None:
    error = ClientError({"Error": {"Code": "ThrottlingException"}}, "Query")

    class Client:
        def query(self, **_: Any) -> Any:
            raise error

    matches = DynamoMatches(Clients(lambda service, config: Client()), TABLE)
    with pytest.raises(StorageUnavailable):
        matches.page(GUILD, low="2026-12-28", high="2027-01-04", resume=None)
