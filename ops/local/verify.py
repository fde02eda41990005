"""What must be true after a drain, judged from evidence: pure, so that each check is known to be able to fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from ops.local.chaos import Kill
from shared.core.model import State

ETA_TOLERANCE: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvidence:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EtaClaim:
    """What a tick said at `at_ms`, and the time until nothing that waited then was unfinished."""

    said_s: float
    true_s: float

    @property
    def error(self) -> float:
        return abs(self.said_s - self.true_s) / max(self.true_s, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
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
    detail = (
        f"{report['accepted']} effects for {expected} segments, {report['texts_answered_twice']} texts under two keys"
    )
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
    said = ", ".join(f"{claim.said_s:.0f} s for {claim.true_s:.0f} s" for claim in evidence.etas)
    error = f"; median error {100 * median(claim.error for claim in evidence.etas):.0f} %" if evidence.etas else ""
    return Check(name="ETA said for ETA true", holds=2 * sum(good) >= len(good) > 0, detail=(said or "none") + error)


def _names(job_ids: Any, limit: int = 3) -> str:
    names = list(job_ids)
    return f"; wrong: {', '.join(names[:limit])}" + (" ..." if len(names) > limit else "") if names else ""
