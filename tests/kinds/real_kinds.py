"""The project's own kinds in the virtual world: real images, replays, weeks and records, and a model that answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

from functions.worker.kinds import document_classification, replay_summary, screenshot_thumbnails
from functions.worker.kinds.guild_weekly_report import report_page
from ops.local.scenario import make_replay
from ops.local.upstream import classify, summarise
from ops.simulator.faults import FaultHook
from ops.simulator.sluice_world import SimSluice
from ops.simulator.world import START_MS, World
from shared.domain.iso_week import first_day, week_before
from shared.domain.job import Job, NewJob, State
from shared.domain.settings import ClassSettings, RetrySettings, Settings, UpstreamSettings
from shared.kind import Chunk, ChunkContext, Kind
from tests.content import images
from tests.content.matches import MemoryMatches, a_week, utc
from tests.content.records import LABELS, records

HOUR_MS: Final = 3_600_000
WEEK: Final = week_before(START_MS)
GUILDS: Final = ("Die Löwen", "Os Leões")

Process = Callable[[Job, str, ChunkContext], Chunk]


def settings(*names: str, **changes: Any) -> Settings:
    """A class per kind, two of which share an upstream."""
    fields: dict[str, Any] = {"slots": 4, "function_timeout_s": 20, "chunk_margin_s": 2.0, "declared_service_s": 3.0}
    fields |= {"retry": RetrySettings(max_crashes=6)}
    extra: dict[str, dict[str, Any]] = {
        "replay_summary": {"upstream": "model", "upstream_share": 0.5},
        "document_classification": {"upstream": "model", "upstream_share": 0.5, "options": {"labels": LABELS}},
    }
    classes = {name: ClassSettings(name=name, kind=name, **(fields | extra.get(name, {}) | changes)) for name in names}
    model = UpstreamSettings(name="model", endpoint="http://model", limit_per_s=20.0)
    return Settings(upstreams={"model": model}, classes=classes)


def answer(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the local upstream would answer."""
    return classify(body["text"], body["labels"]) if "labels" in body else summarise(body["text"])


@dataclass(slots=True)
class Answering:
    """The world's context, whose upstream says something of its own: limits and permits stay the world's."""

    context: ChunkContext

    def __getattr__(self, name: str) -> Any:
        return getattr(self.context, name)

    def call_upstream(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self.context.call_upstream(body)
        return answer(body)


class RealKind:
    """A kind's own code. Its begin and its end are calls of the world, at which a process may be killed."""

    def __init__(self, world: World, process: Process, *, calls_per_chunk: int = 0) -> None:
        self.calls_per_chunk = calls_per_chunk
        self._world = world
        self._process = process

    def process_chunk(self, job: Job, cursor: str, context: ChunkContext) -> Chunk:
        self._world.call("kind.begin", partial(self._world.sleep, 300))
        given: Any = Answering(context)
        chunk = self._process(job, cursor, given)
        self._world.call("kind.end", partial(self._world.sleep, 300))
        return chunk


def kinds(world: World) -> dict[str, Kind]:
    matches = MemoryMatches([item for guild in GUILDS for item in a_week(guild, _monday(), 47)])

    def report(job: Job, cursor: str, context: ChunkContext) -> Chunk:
        return report_page(matches, job, cursor, context)

    return {
        "screenshot_thumbnails": RealKind(world, screenshot_thumbnails.process_chunk),
        "replay_summary": RealKind(world, replay_summary.process_chunk, calls_per_chunk=1),
        "guild_weekly_report": RealKind(world, report),
        "document_classification": RealKind(world, document_classification.process_chunk, calls_per_chunk=1),
    }


def _monday() -> Any:
    day = first_day(WEEK)
    return utc(day.year, day.month, day.day)


@cache
def objects() -> dict[str, bytes]:
    """What the game and the clinic have put into the bucket."""
    stored = {f"screenshots/{number}": images.screenshot(number) for number in range(9)}
    stored |= {"screenshots/broken": stored["screenshots/0"][:9000], "screenshots/bomb": images.bomb()}
    stored |= {f"replays/{number}.pgn": make_replay(7, number, 0, min_bytes=9_000).body for number in range(3)}
    stored |= {f"records/{record_id}": body for record_id, body in records(9).items()}
    return stored


def jobs() -> dict[str, list[NewJob]]:
    """By class: 6 chunks of screenshots, about 15 segments of replays, 10 pages of matches and 9 records."""
    shots = [key for key in objects() if key.startswith("screenshots/")]
    payloads: dict[str, Sequence[Mapping[str, Any]]] = {
        "screenshot_thumbnails": [{"screenshots": shots}, {"screenshots": [*shots[::-1], "screenshots/gone"]}],
        "replay_summary": [{"replay_key": f"replays/{number}.pgn"} for number in range(3)],
        "guild_weekly_report": [{"guild_id": guild, "week": WEEK} for guild in GUILDS],
        "document_classification": [{"record_id": record_id} for record_id in records(9)],
    }
    return {
        name: [
            NewJob(job_id=f"{name}-{number}", job_class=name, match_id=f"m{number}", payload=json.dumps(payload))
            for number, payload in enumerate(of_kind)
        ]
        for name, of_kind in payloads.items()
    }


@dataclass(frozen=True, slots=True)
class Result:
    """What is there in the end: the objects that were made, and every output in the ledger, byte for byte."""

    objects: Mapping[str, bytes]
    outputs: Mapping[str, Sequence[tuple[str, str]]]


def run(name: str, *faults: FaultHook, seed: int = 5, count: int | None = None) -> tuple[SimSluice, Result]:
    """All jobs of one class, or the first `count`, to their end."""
    sluice = SimSluice(settings(name), seed, faults=faults, kinds=kinds)
    sluice.blobs.objects.update(objects())
    submitted = jobs()[name][:count]
    sluice.submit(submitted)
    assert sluice.drain(max_ms=10 * HOUR_MS), "did not drain"
    assert {job_id: row.state for job_id, row in sluice.rows.items()} == {job.job_id: State.DONE for job in submitted}
    made = {key: body for key, body in sluice.blobs.objects.items() if key not in objects()}
    outputs = {
        job_id: [(output.cursor, output.body) for output in sluice.ledger.outputs(job_id)] for job_id in sluice.rows
    }
    return sluice, Result(made, outputs)
