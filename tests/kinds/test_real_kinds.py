"""The project's own kinds, killed again and again: what they leave behind is that of an undisturbed run."""

from __future__ import annotations

from functools import cache

import pytest

from functions.worker.kinds import screenshot_thumbnails
from ops.simulator.faults import Call, CrashAt, Die, Fault, FaultHook, When
from tests.kinds.real_kinds import Result, run

KINDS = ("screenshot_thumbnails", "replay_summary", "guild_weekly_report", "document_classification")
MADE = {
    "screenshot_thumbnails": 2 * (9 + 1),  # a PNG per good screenshot and an index per job
    "replay_summary": 3,
    "guild_weekly_report": 2 * 2,
    "document_classification": 9,
}


def every(number: int, point: str, at: When) -> FaultHook:
    def kill(call: Call, when: When) -> Fault | None:
        return Die() if call.point == point and call.nth % number == 0 and when is at else None

    return kill


thumbnail_once = cache(screenshot_thumbnails.thumbnail)


@cache
def undisturbed(name: str, count: int | None = None) -> Result:
    return run(name, count=count)[1]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    "kill",
    [
        every(3, "kind.begin", When.BEFORE),
        every(3, "kind.end", When.AFTER),  # all of the chunk's effects are there, and its commit is not
        every(3, "ledger.move", When.AFTER),  # committed, and nobody knows
    ],
    ids=["at its begin", "before its commit", "after a move"],
)
def test_killed_at_every_third_chunk_what_is_left_is_byte_for_byte_the_same(name: str, kill: FaultHook) -> None:
    sluice, result = run(name, kill)
    report = sluice.report()
    assert report.crashes >= 2
    assert report.redone_chunks == 0, "a committed chunk never runs again"
    assert result == undisturbed(name)
    assert len(result.objects) == MADE[name]
    chunks = sum(map(len, result.outputs.values()))
    print(f"{name}: {report.crashes} kills, {chunks} chunks, {len(result.objects)} objects: the same bytes")


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (
            "screenshot_thumbnails",
            7,
        ),  # amid the four of a chunk; at every third one no chunk would ever come to its end
        ("replay_summary", 3),
        ("guild_weekly_report", 3),  # between a report's two forms
        ("document_classification", 3),
    ],
)
@pytest.mark.parametrize("when", list(When))
def test_killed_at_an_object_the_one_that_is_there_is_the_right_one(name: str, number: int, when: When) -> None:
    sluice, result = run(name, every(number, "blobs.put_once", when))
    assert sluice.report().crashes >= 1
    assert result == undisturbed(name)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("when", list(When))
def test_a_kill_at_every_call_of_one_job_changes_nothing(
    name: str, when: When, monkeypatch: pytest.MonkeyPatch
) -> None:
    # That the same image gives the same thumbnail is for others to say: here it would be made some hundred times.
    monkeypatch.setattr(screenshot_thumbnails, "thumbnail", thumbnail_once)
    clean, _ = run(name, count=1)
    for call in range(1, clean.world.calls + 1):
        _, result = run(name, CrashAt(call, when), count=1)
        assert result == undisturbed(name, 1), f"crash {when} call {call}"


@pytest.mark.parametrize("name", KINDS)
def test_another_seed_another_order_the_same_bytes(name: str) -> None:
    assert run(name, seed=11)[1] == undisturbed(name)
