"""Every kind end to end on the emulator: real producers, real content, real kills, and the bytes of a quiet run."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from functions.worker.kinds import document_classification, replay_summary, screenshot_thumbnails
from functions.worker.kinds.guild_weekly_report import PAGE_ROWS, report_page
from ops.local.emulator import DEFAULT_VENV, Emulator
from ops.local.scenario import make_replay
from shared.domain.iso_week import first_day, week_before
from shared.domain.job import Job, NewJob, State
from shared.kind import Chunk, ChunkContext
from shared.submit.submission import submit_jobs
from tests.content import images
from tests.content.matches import MemoryMatches, a_week, utc
from tests.content.records import CANARIES, LABELS, records
from tests.e2e.kinds_site import Site, open_site
from tests.kinds.chunks import FakeContext, run_to_end
from tests.kinds.real_kinds import answer

pytestmark = pytest.mark.e2e

MATCH = "Köln vs. 1. FC – Halbfinale 2026/27 (Rückspiel)"
GUILDS = ("Die Löwen", "Os Leões <b>")
SESSIONS, LIVE = 1_500, 400
DOCUMENTS = 9
GIVE_UP_S = 900.0


@dataclass(slots=True)
class Content:
    """What the game and the clinic have before Sluice does anything."""

    week: str
    objects: dict[str, bytes] = field(default_factory=dict)
    matches: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, now_ms: int) -> Content:
        content = cls(week=week_before(now_ms))
        monday = first_day(content.week)
        for guild, count in zip(GUILDS, (3 * PAGE_ROWS + 30, 12), strict=True):
            content.matches += a_week(guild, utc(monday.year, monday.month, monday.day), count)
        shots = {f"screenshots/{number}": images.screenshot(number) for number in range(18)}
        shots |= {"screenshots/broken": shots["screenshots/0"][:9000], "screenshots/bomb": images.bomb()}
        replays = {f"replays/{number}": make_replay(7, number, 0, min_bytes=9_000).body for number in range(2)}
        documents = {f"records/{record_id}": body for record_id, body in records(DOCUMENTS).items()}
        content.objects = shots | replays | documents
        return content

    @property
    def event(self) -> dict[str, Any]:
        keys = {name: [key for key in self.objects if key.startswith(name)] for name in ("replays", "screenshots")}
        return {
            "match_id": MATCH,
            "replays": keys["replays"],
            "screenshots": [*keys["screenshots"], "screenshots/gone"],
        }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    venv = Path(os.environ.get("SLUICE_EMULATOR", DEFAULT_VENV))
    with Emulator(venv) as emulator, open_site(emulator, tmp_path_factory.mktemp("kinds")) as site:
        yield site


@pytest.fixture(scope="module")
def content(site: Site) -> Content:
    """Put where the game puts it: tables of its own, and objects in the bucket."""
    now_ms = site.stage.ports.clock.now_ms()
    content = Content.of(now_ms)
    for key, body in content.objects.items():
        site.client("s3").put_object(Bucket=site.stage.bucket, Key=key, Body=body)
    create_table(site, "game-matches", "guild_id", "ended")
    create_table(site, "game-guilds", "guild_id")
    create_table(site, "game-sessions", "session_id")
    sessions = [
        {"session_id": {"S": f"s{n}"}, "expires_s": {"N": str(now_ms // 1000 + (7200 if n < LIVE else -60))}}
        for n in range(SESSIONS)
    ]
    put_items(site, "game-matches", content.matches)
    put_items(site, "game-guilds", [{"guild_id": {"S": guild}} for guild in GUILDS])
    put_items(site, "game-sessions", sessions)
    return content


def create_table(site: Site, name: str, *key: str) -> None:
    site.client("dynamodb").create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[
            {"AttributeName": each, "KeyType": kind} for each, kind in zip(key, ("HASH", "RANGE"), strict=False)
        ],
        AttributeDefinitions=[{"AttributeName": each, "AttributeType": "S"} for each in key],
    )


def put_items(site: Site, table: str, items: list[dict[str, Any]]) -> None:
    dynamodb = site.client("dynamodb")
    for begin in range(0, len(items), 25):
        puts = [{"PutRequest": {"Item": item}} for item in items[begin : begin + 25]]
        assert not dynamodb.batch_write_item(RequestItems={table: puts})["UnprocessedItems"]


def tell_everything(site: Site, content: Content) -> None:
    """Each of it twice: the event, the weekly and the daily schedule, the documents."""
    entry = {"Source": "game.matches", "DetailType": "match.ended", "Detail": json.dumps(content.event)}
    scheduled_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for _ in range(2):
        assert site.client("events").put_events(Entries=[entry])["FailedEntryCount"] == 0
        for producer in ("guild_reports", "session_sweep"):
            site.invoke("producer", {"producer": producer, "scheduled_at": scheduled_at})
        submit_jobs(site.stage.ports, site.stage.settings, [a_document(record_id) for record_id in records(DOCUMENTS)])


def a_document(record_id: str) -> NewJob:
    payload = json.dumps({"record_id": record_id})
    return NewJob(job_id=f"doc-{record_id}", job_class="document_classification", match_id=record_id, payload=payload)


def expected_objects(content: Content, jobs: list[Job]) -> dict[str, bytes]:
    """What the same jobs leave behind when nothing disturbs them: by the kinds' own code, in this process."""
    matches = MemoryMatches(content.matches, page_rows=PAGE_ROWS)

    def report(job: Job, cursor: str, context: ChunkContext) -> Chunk:
        return report_page(matches, job, cursor, context)

    processes = {
        "replay_summary": replay_summary.process_chunk,
        "screenshot_thumbnails": screenshot_thumbnails.process_chunk,
        "document_classification": document_classification.process_chunk,
        "guild_weekly_report": report,
    }
    blobs: dict[str, bytes] = {}
    for job in jobs:
        if job.job_class in processes:
            context = FakeContext(answers=answer, options={"labels": LABELS})
            context.blobs.objects.update(content.objects)
            run_to_end(processes[job.job_class], job, context)
            blobs |= {key: body for key, body in context.blobs.objects.items() if key not in content.objects}
    return blobs


def drain(site: Site) -> list[Job]:
    until_s = time.monotonic() + GIVE_UP_S
    ticked_s = 0.0
    while time.monotonic() < until_s:
        if time.monotonic() - ticked_s > 20:
            ticked_s = time.monotonic()
            for job_class in site.classes:
                site.tick(job_class)
        jobs = site.jobs()
        if jobs and all(job.state is State.DONE for job in jobs):
            return jobs
        time.sleep(0.5)
    raise AssertionError({job.job_id: (job.state, job.last_error, job.attempts) for job in site.jobs()})


def test_every_kind_is_killed_at_every_third_chunk_and_leaves_the_bytes_of_a_quiet_run(
    site: Site, content: Content
) -> None:
    tell_everything(site, content)
    wait_for(lambda: len(site.jobs()) == 2 + 1 + len(GUILDS) + 1 + DOCUMENTS)
    jobs = drain(site)
    found = Counter(job.job_class for job in jobs)
    print(f"jobs: {dict(found)}")
    assert found == {
        "replay_summary": 2,
        "screenshot_thumbnails": 1,
        "guild_weekly_report": len(GUILDS),
        "session_sweep": 1,
        "document_classification": DOCUMENTS,
    }
    assert {job.attempts for job in jobs} == {0}, "no kill burned an attempt"
    for kind in found:
        line = site.deaths.line(kind)
        print(f"{kind}: {line}, {line.count('K')} killed of {len(line)} chunks that ran")
        assert line == "..K" * (len(line) // 3) + "." * (len(line) % 3)
        assert line.count("K") >= 2
    made = site.objects("summaries/", "thumbnails/", "reports/", "labels/")
    expected = expected_objects(content, jobs)
    print(f"objects: {len(made)} made, {sum(made[key] == expected[key] for key in made)} byte for byte as expected")
    assert made == expected
    left = {item["session_id"]["S"] for item in site.client("dynamodb").scan(TableName="game-sessions")["Items"]}
    assert left == {f"s{n}" for n in range(LIVE)}
    keep_samples(site, made)


def test_told_once_more_nothing_is_done_again(site: Site, content: Content) -> None:
    before, calls = (
        site.objects("summaries/", "thumbnails/", "reports/", "labels/"),
        site.stage.upstream.report()["calls"],
    )
    tell_everything(site, content)
    time.sleep(3)
    for job_class in site.classes:
        site.tick(job_class)
    assert {job.state for job in site.jobs()} == {State.DONE}
    assert len(site.jobs()) == 2 + 1 + len(GUILDS) + 1 + DOCUMENTS
    assert site.objects("summaries/", "thumbnails/", "reports/", "labels/") == before
    assert site.stage.upstream.report()["calls"] == calls


def test_nothing_about_a_patient_is_in_any_log_row_or_key(site: Site) -> None:
    logs = site.logs()
    rows = json.dumps(site.client("dynamodb").scan(TableName=site.stage.outputs["TableName"])["Items"], default=str)
    keys = json.dumps(list(site.stage.upstream.report(with_keys=True)["keys"]))
    assert "doc-rec-0001" in rows
    assert logs, "the functions' output was looked at"
    for name, text in (("logs", logs), ("ledger", rows), ("keys", keys)):
        assert [canary for canary in CANARIES if canary in text] == [], name


def wait_for(holds: Any, timeout_s: float = 60.0) -> None:
    until_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < until_s, "it did not come"
        time.sleep(0.5)


def keep_samples(site: Site, made: dict[str, bytes]) -> None:
    """For a person to look at, where SLUICE_SAMPLES names a directory."""
    directory = os.environ.get("SLUICE_SAMPLES")
    if not directory:
        return
    samples = {"report.html": ".html", "thumbnail-0.png": "0000.png", "thumbnail-1.png": "0001.png"}
    for name, ending in samples.items():
        (Path(directory) / name).write_bytes(next(made[key] for key in sorted(made) if key.endswith(ending)))
