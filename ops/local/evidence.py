"""Gather what `verify` judges: rows, outputs and objects as they are stored, effects as the upstream remembers them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from functions.worker.kinds.replay_summary import SEGMENT_BYTES
from ops.local.chaos import Kill
from ops.local.inference import summarise
from ops.local.replays import Replay, segment_count
from ops.local.scenario import UPSTREAM
from ops.local.stage import Stage
from ops.local.verify import EtaClaim, Evidence, JobEvidence
from shared.core.runs import TickLine
from shared.core.stats import CONTINUATIONS, WINDOW_MS, total, window_of

COMPARED: Final = ("players", "half_moves", "captures", "checks", "results", "opening_line", "closing_line")
MAX_SUMMARY_BYTES: Final = 1_000_000


def gather(stage: Stage, replays: Sequence[Replay], *, kill: Kill | None, began_ms: int) -> Evidence:
    report = stage.upstream.report(with_keys=True)
    now_ms = stage.ports.clock.now_ms()
    keys: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for key, effect in report["keys"].items():
        keys[key.partition(":")[0]][key] = effect
    jobs = stage.ports.parallel.map(
        lambda replay: _job(stage, replay, keys.get(replay.job_id, {}), now_ms=now_ms), replays
    )
    windows = range(window_of(began_ms), now_ms + 1, WINDOW_MS)
    name = stage.job_class.name
    history = stage.ports.ledger.read_control(name).history
    return Evidence(
        jobs=jobs,
        summary_objects=_summary_objects(stage),
        upstream=report,
        refusal_threshold=stage.settings.upstreams[UPSTREAM].refusal_threshold,
        batch_size=stage.job_class.batch_size,
        continuations=total(stage.ports.ledger.read_stats(name, windows_ms=list(windows)), CONTINUATIONS),
        kill=kill,
        etas=eta_claims(history, jobs),
        tick_s=stage.job_class.tick_interval_s,
    )


def eta_claims(history: Sequence[TickLine], jobs: Sequence[JobEvidence]) -> list[EtaClaim]:
    """What each unpaused tick said, for what was unfinished then: later arrivals are not what it spoke of."""
    claims = []
    for line in history:
        waited = [job.finished_ms for job in jobs if job.created_ms <= line.at_ms < job.finished_ms]
        if waited and line.eta_s is not None and not line.paused:
            claims.append(EtaClaim(said_s=line.eta_s, true_s=(max(waited) - line.at_ms) / 1000))
    return claims


def _job(stage: Stage, replay: Replay, effects: Mapping[str, Mapping[str, Any]], *, now_ms: int) -> JobEvidence:
    row = stage.ports.ledger.read_job(replay.job_id)
    outputs = [json.loads(output.body) for output in stage.ports.ledger.outputs(replay.job_id)]
    segments = segment_count(replay.body, SEGMENT_BYTES)
    whole = summarise(replay.text)["summary"]
    youngest_s = min((effect["age_s"] for effect in effects.values()), default=0.0)
    return JobEvidence(
        job_id=replay.job_id,
        segments=segments,
        summary={name: whole[name] for name in COMPARED} | {"segments": segments, "bytes": len(replay.body)},
        state=None if row is None else row.state,
        created_ms=0 if row is None else row.created_ms,
        output_segments=sorted(output["segment"] for output in outputs),
        found_summary=_stored_summary(stage, outputs),
        keys={key: effect["calls"] for key, effect in effects.items()},
        finished_ms=now_ms - int(youngest_s * 1000),
    )


def _stored_summary(stage: Stage, outputs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    keys = [output["summary_key"] for output in outputs if "summary_key" in output]
    if len(keys) != 1:
        return None
    summary: dict[str, Any] = json.loads(stage.ports.blobs.read(keys[0], start=0, length=MAX_SUMMARY_BYTES))
    return summary


def _summary_objects(stage: Stage) -> int:
    pages = stage.emulator.client("s3").get_paginator("list_objects_v2")
    return sum(page["KeyCount"] for page in pages.paginate(Bucket=stage.bucket, Prefix="summaries/"))
