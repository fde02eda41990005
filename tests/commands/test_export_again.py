"""`export` that stops at a bad moment or finds a line that is none: what it leaves, and what it does when run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ops.simulator.sluice_world import SimSluice
from ops.transfer.export import PartFile
from shared.domain.job import Flag, NewJob, Output
from tests.commands.test_export import HOLD, Resumed, halted, lines_of
from tests.commands.world import CLASS, World, settings


def test_an_export_that_is_interrupted_behind_its_last_page_is_not_read_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, out, whole = halted(), tmp_path / "ledger.jsonl", tmp_path / "whole.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr(PartFile, "finish", _interrupted)
        assert world.run("export", "--out", out).exit_code == 130
    assert world.run("export", "--out", out).exit_code == 0
    assert world.run("export", "--out", whole).exit_code == 0
    assert out.read_text().splitlines()[1:-1] == whole.read_text().splitlines()[1:-1]


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_after_a_class_was_resumed_meanwhile_the_same_command_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, out = halted(), tmp_path / "ledger.jsonl"
    copy = Resumed(world.sluice.ledger)
    copy.world = world
    with monkeypatch.context() as patched:
        patched.setattr(World, "ledger_copy", lambda _: copy)
        assert world.run("export", "--out", out).exit_code == 2
    world.run("halt", CLASS, *HOLD)
    world.sluice.run(60_000)
    result = world.run("export", "--out", out, "--json")
    assert (result.exit_code, json.loads(result.stdout)["resumed"]) == (0, False), result.output
    assert len([line for line in lines_of(out) if "job" in line]) == 30


def joined_later(world: World, job_id: str) -> None:
    """The row as a submitter would have written it whose clock goes ahead."""
    row, now_ms = world.sluice.ledger.rows[job_id], world.sluice.ports.clock.now_ms()
    world.sluice.ledger.rows[job_id] = replace(row, job=replace(row.job, created_ms=now_ms + 60_000))


def test_a_job_that_joined_an_ordered_match_meanwhile_is_left_out_and_said(tmp_path: Path) -> None:
    world = halted(ordered=True)
    joined_later(world, "canary-29")  # the last of its match
    result = world.run("export", "--out", tmp_path / "a.jsonl")
    assert (result.exit_code, "29 jobs" in result.stdout, "exact" in result.stdout) == (0, True, False)
    assert "without 1 job that joined an ordered match meanwhile" in result.stdout
    assert json.loads(world.run("export", "--out", tmp_path / "b.jsonl", "--json").stdout)["left_out"] == 1


def test_a_file_that_import_would_refuse_does_not_get_its_name(tmp_path: Path) -> None:
    world, out = halted(ordered=True), tmp_path / "ledger.jsonl"
    joined_later(world, "canary-24")  # and then another
    result = world.run("export", "--out", out)
    assert (result.exit_code, "got jobs that are no line" in result.output) == (2, True)
    assert [each.name for each in tmp_path.iterdir()] == ["ledger.jsonl.part"]
    joined_later(world, "canary-29")
    assert world.run("export", "--out", out).exit_code == 0, "it begins anew"


def test_a_live_job_that_commits_while_its_outputs_are_read_is_read_again(tmp_path: Path) -> None:
    """A row and its outputs are two reads, and a chunk may be committed in between."""
    world = World(sluice=SimSluice(settings(declared_service_s=20.0), seed=1))
    payload = '{"chunk_ms": 900, "chunks": 25}'
    world.sluice.submit([NewJob(job_id="j", job_class=CLASS, match_id="m", payload=payload)])
    world.sluice.run(64_000)
    world.broken = {"ledger": Moving(world)}
    assert world.run("export", "--live", "--out", tmp_path / "ledger.jsonl").exit_code == 0
    lines = lines_of(tmp_path / "ledger.jsonl")
    (job,) = (line["job"] for line in lines if "job" in line)
    cursors = {int(line["output"]["output"]["cursor"] or 0) for line in lines if "output" in line}
    assert (job["state"], cursors) == ("queued", set(range(int(job["cursor"]))))


class Moving:
    """A ledger that goes on for three seconds after outputs were read, the first time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._moves = 1

    def outputs(self, job_id: str) -> list[Output]:
        found = self._world.sluice.ledger.outputs(job_id)
        if self._moves:
            self._moves -= 1
            self._world.sluice.run(3000)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.sluice.ledger, name)


def test_a_stop_that_a_tick_may_not_have_seen_yet_is_none(tmp_path: Path) -> None:
    world = World()
    world.sluice.submit([NewJob(job_id="j", job_class=CLASS, match_id="m", payload="{}")])
    world.sluice.ledger.set_halt(CLASS, Flag(by="ada", why="now", at_ms=world.sluice.ports.clock.now_ms()))
    result = world.run("export", "--out", tmp_path / "ledger.jsonl")
    assert (result.exit_code, "got a class that is running" in result.output) == (2, True)
    world.sluice.run(60_000)
    assert world.run("export", "--out", tmp_path / "ledger.jsonl").exit_code == 0
