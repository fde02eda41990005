"""The demo's verdict: it holds for a right drain, and every single check can fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ops.local.verify import Check, EtaClaim, Evidence, JobEvidence, Kill, judge
from shared.domain.job import State

JOB = JobEvidence(
    job_id="j1",
    segments=2,
    summary={"segments": 2},
    state=State.DONE,
    created_ms=0,
    output_segments=(0, 1),
    found_summary={"segments": 2},
    keys={"j1::0": 1, "j1:000001:9:0": 2},
    finished_ms=9,
)
UPSTREAM: dict[str, Any] = {
    "accepted": 2,
    "calls": 3,
    "refused": 0,
    "texts_answered_twice": 0,
    "conflicts": 0,
    "refusals_per_1000": 0.0,
    "refusals_per_1000_worst": 0.0,
    "calls_per_s_max": 2,
}
RIGHT = Evidence(
    jobs=[JOB],
    summary_objects=1,
    upstream=UPSTREAM,
    refusal_threshold=0.02,
    batch_size=10,
    continuations=1,
    kill=Kill(pid=7, key="j1:000001:9:0"),
    etas=[EtaClaim(said_s=100, true_s=110)],
    tick_s=60,
)


def job(**changes: Any) -> Callable[[Evidence], Evidence]:
    return lambda evidence: replace(evidence, jobs=[replace(JOB, **changes)])


def upstream(**changes: Any) -> Callable[[Evidence], Evidence]:
    return lambda evidence: replace(evidence, upstream=UPSTREAM | changes)


def failed(checks: list[Check]) -> list[str]:
    return [check.name for check in checks if not check.holds]


def test_a_right_drain_passes_every_check() -> None:
    assert failed(judge(RIGHT)) == []


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (job(state=State.DEAD), "every job done"),
        (job(output_segments=(0,)), "each output exactly once"),
        (lambda evidence: replace(evidence, summary_objects=2), "each output exactly once"),
        (job(found_summary={"segments": 1}), "each summary right"),
        (job(found_summary=None), "each summary right"),
        (upstream(accepted=3), "each upstream effect exactly once"),
        (upstream(texts_answered_twice=1), "each upstream effect exactly once"),
        (job(keys={"j1::0": 3, "j1:000001:9:0": 2}), "no committed chunk ran again"),
        (lambda evidence: replace(evidence, continuations=0), "continuations used"),
        (lambda evidence: replace(evidence, kill=None), "one worker killed in mid-chunk"),
        (job(keys={"j1::0": 1, "j1:000001:9:0": 1}), "one worker killed in mid-chunk"),  # nobody made the call again
        (upstream(refusals_per_1000_worst=21.0), "refusals per 1,000"),
        (lambda evidence: replace(evidence, etas=[EtaClaim(said_s=300, true_s=100)]), "ETA said for ETA true"),
        (lambda evidence: replace(evidence, etas=[]), "ETA said for ETA true"),
        (lambda evidence: replace(evidence, jobs=[]), "every job done"),
    ],
)
def test_each_check_can_fail(broken: Callable[[Evidence], Evidence], name: str) -> None:
    assert name in failed(judge(broken(RIGHT)))
