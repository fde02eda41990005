"""The demo's verdict: gather what is stored and what the upstream remembers, then judge it.

What must be true after a drain is judged from evidence alone, so that each check is known to be able to fail.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final

from msgspec import Struct

from functions.worker.kinds.replay_summary import SEGMENT_BYTES
from ops.local.deployment import Deployment
from ops.local.scenario import UPSTREAM, Replay, segment_count
from ops.local.upstream import summarise
from shared.domain.control import TickLine
from shared.domain.job import State
from shared.domain.stats import CONTINUATIONS, WINDOW_MS, total, window_of

COMPARED: Final = ("players", "half_moves", "captures", "checks", "results", "opening_line", "closing_line")
"""What the summary of the pieces and the summary of the whole have in common."""

MAX_SUMMARY_BYTES: Final = 1_000_000
"""Far above any summary."""

ETA_TOLERANCE: Final = 0.5
"""Of the true time, how far off a forecast may be."""


class Kill(Struct, frozen=True, kw_only=True):
    """A worker process died while the upstream was working on `key` for it; nobody was there to take the answer."""

    pid: int
    key: str


class JobEvidence(Struct, frozen=True, kw_only=True):
    """One job: what it should have come to, and what is there. `finished_ms` is when its last effect was made."""

    job_id: str
    segments: int
    summary: Mapping[str, Any]
    state: State | None
    created_ms: int
    output_segments: Sequence[int]
    found_summary: Mapping[str, Any] | None
    keys: Mapping[str, int]
    finished_ms: int


class EtaClaim(Struct, frozen=True, kw_only=True):
    """What a tick said at `at_ms`, and the time until nothing that waited then was unfinished."""

    said_s: float
    true_s: float

    @property
    def error(self) -> float:
        return abs(self.said_s - self.true_s) / max(self.true_s, 1.0)


class Evidence(Struct, frozen=True, kw_only=True):
    """Everything that the judgement rests on."""

    jobs: Sequence[JobEvidence]
    summary_objects: int
    upstream: Mapping[str, Any]
    refusal_threshold: float
    batch_size: int
    continuations: int
    kill: Kill | None
    etas: Sequence[EtaClaim]
    tick_s: int


def gather(deployment: Deployment, replays: Sequence[Replay], *, kill: Kill | None, began_ms: int) -> Evidence:
    report = deployment.upstream.report(with_keys=True)
    now_ms = deployment.ports.clock.now_ms()
    keys: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for key, effect in report["keys"].items():
        keys[key.partition(":")[0]][key] = effect
    jobs = deployment.ports.parallel.map(
        lambda replay: _job(deployment, replay, keys.get(replay.job_id, {}), now_ms=now_ms), replays
    )
    windows = range(window_of(began_ms), now_ms + 1, WINDOW_MS)
    name = deployment.job_class.name
    history = deployment.ports.ledger.read_control(name).history
    return Evidence(
        jobs=jobs,
        summary_objects=_summary_objects(deployment),
        upstream=report,
        refusal_threshold=deployment.settings.upstreams[UPSTREAM].refusal_threshold,
        batch_size=deployment.job_class.batch_size,
        continuations=total(deployment.ports.ledger.read_stats(name, windows_ms=list(windows)), CONTINUATIONS),
        kill=kill,
        etas=eta_claims(history, jobs),
        tick_s=deployment.job_class.tick_interval_s,
    )


def eta_claims(history: Sequence[TickLine], jobs: Sequence[JobEvidence]) -> list[EtaClaim]:
    """What each unpaused tick said, for what was unfinished then: later arrivals are not what it spoke of."""
    claims = []
    for tick in history:
        waited = [job.finished_ms for job in jobs if job.created_ms <= tick.at_ms < job.finished_ms]
        if waited and tick.eta_s is not None and not tick.paused:
            claims.append(EtaClaim(said_s=tick.eta_s, true_s=(max(waited) - tick.at_ms) / 1000))
    return claims


def _job(
    deployment: Deployment, replay: Replay, effects: Mapping[str, Mapping[str, Any]], *, now_ms: int
) -> JobEvidence:
    row = deployment.ports.ledger.read_job(replay.job_id)
    outputs = [json.loads(output.body) for output in deployment.ports.ledger.outputs(replay.job_id)]
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
        found_summary=_stored_summary(deployment, outputs),
        keys={key: effect["calls"] for key, effect in effects.items()},
        finished_ms=now_ms - int(youngest_s * 1000),
    )


def _stored_summary(deployment: Deployment, outputs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    keys = [output["summary_key"] for output in outputs if "summary_key" in output]
    if len(keys) != 1:
        return None
    summary: dict[str, Any] = json.loads(deployment.ports.blobs.read(keys[0], start=0, length=MAX_SUMMARY_BYTES))
    return summary


def _summary_objects(deployment: Deployment) -> int:
    pages = deployment.emulator.client("s3").get_paginator("list_objects_v2")
    return sum(page["KeyCount"] for page in pages.paginate(Bucket=deployment.bucket, Prefix="summaries/"))


class Check(Struct, frozen=True, kw_only=True):
    """One line of the verdict: what must be true, whether it is, and the figures that say so."""

    name: str
    holds: bool
    detail: str


def judge(evidence: Evidence) -> list[Check]:
    """Every check, in the order in which a reader asks."""
    checks = (_done, _outputs, _contents, _effects, _no_redone_work, _continuations, _kill, _refusals, _eta)
    return [check(evidence) for check in checks]


def _done(evidence: Evidence) -> Check:
    states = Counter(job.state for job in evidence.jobs)
    open_states = ", ".join(f"{count} {state}" for state, count in states.items() if state is not State.DONE)
    detail = f"{states[State.DONE]} of {len(evidence.jobs)}" + (f"; {open_states}" if open_states else "")
    return Check(name="every job done", holds=states[State.DONE] == len(evidence.jobs) > 0, detail=detail)


def _outputs(evidence: Evidence) -> Check:
    wrong = [job for job in evidence.jobs if list(job.output_segments) != list(range(job.segments))]
    total = sum(len(job.output_segments) for job in evidence.jobs)
    holds = not wrong and evidence.summary_objects == len(evidence.jobs)
    detail = f"{total} chunk outputs, {evidence.summary_objects} summaries" + _names(job.job_id for job in wrong)
    return Check(name="each output exactly once", holds=holds, detail=detail)


def _contents(evidence: Evidence) -> Check:
    """The summary of the pieces must say what the summary of the whole replay says."""
    wrong = [job.job_id for job in evidence.jobs if job.found_summary != job.summary]
    detail = f"{len(evidence.jobs) - len(wrong)} equal to the whole replay's" + _names(wrong)
    return Check(name="each summary right", holds=not wrong, detail=detail)


def _effects(evidence: Evidence) -> Check:
    expected = sum(job.segments for job in evidence.jobs)
    wrong = [job.job_id for job in evidence.jobs if len(job.keys) != job.segments]
    report = evidence.upstream
    holds = not wrong and report["accepted"] == expected and report["texts_answered_twice"] + report["conflicts"] == 0
    twice = f"{report['texts_answered_twice']} texts under two keys"
    detail = f"{report['accepted']} effects for {expected} segments, {twice}"
    return Check(name="each upstream effect exactly once", holds=holds, detail=detail + _names(wrong))


def _no_redone_work(evidence: Evidence) -> Check:
    """Only a chunk that was open when its worker died may call again, so one at most per job of that one batch."""
    again = {job.job_id: sum(calls - 1 for calls in job.keys.values()) for job in evidence.jobs}
    repeated = [job_id for job_id, repeats in again.items() if repeats]
    holds = len(repeated) <= evidence.batch_size and all(repeats <= 1 for repeats in again.values())
    detail = f"{sum(again.values())} calls repeated under their old key, by {len(repeated)} jobs"
    return Check(name="no committed chunk ran again", holds=holds, detail=detail)


def _continuations(evidence: Evidence) -> Check:
    return Check(name="continuations used", holds=evidence.continuations > 0, detail=str(evidence.continuations))


def _kill(evidence: Evidence) -> Check:
    kill = evidence.kill
    if kill is None:
        return Check(name="one worker killed in mid-chunk", holds=False, detail="none was")
    calls = sum(job.keys.get(kill.key, 0) for job in evidence.jobs)
    detail = f"process {kill.pid} during call {kill.key}, which was made {calls} times in all"
    return Check(name="one worker killed in mid-chunk", holds=calls > 1, detail=detail)


def _refusals(evidence: Evidence) -> Check:
    report, bound = evidence.upstream, 1000 * evidence.refusal_threshold
    detail = (
        f"{report['refusals_per_1000']:.1f} ({report['refused']} of {report['calls']} calls), worst 10 minutes"
        f" {report['refusals_per_1000_worst']:.1f}, bound {bound:g}; busiest second {report['calls_per_s_max']} calls"
    )
    return Check(name="refusals per 1,000", holds=report["refusals_per_1000_worst"] <= bound, detail=detail)


def _eta(evidence: Evidence) -> Check:
    """Half of what was said is within half of the truth, or within a tick of it: a drain of minutes has few ticks."""
    good = [
        claim.error <= ETA_TOLERANCE or abs(claim.said_s - claim.true_s) <= evidence.tick_s for claim in evidence.etas
    ]
    pairs = ", ".join(f"{claim.said_s:.0f} s for {claim.true_s:.0f} s" for claim in evidence.etas)
    error = f"; median error {100 * median(claim.error for claim in evidence.etas):.0f} %" if evidence.etas else ""
    return Check(name="ETA said for ETA true", holds=2 * sum(good) >= len(good) > 0, detail=(pairs or "none") + error)


def _names(job_ids: Iterable[str], limit: int = 3) -> str:
    names = list(job_ids)
    return f"; wrong: {', '.join(names[:limit])}" + (" ..." if len(names) > limit else "") if names else ""
