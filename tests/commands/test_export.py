"""`export`: what it asks for, what it writes, and that it can be interrupted."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ops.simulator.sluice_world import SimSluice
from ops.transfer.export import PartFile
from shared.domain.job import Flag, Job, NewJob, Output, State
from shared.domain.records import Record, RecordPage, StoredOutput
from shared.memory.copy import MemoryCopy
from tests.commands.world import CLASS, World, settings

HOLD = ("--reason", "a test")


def halted(jobs: int = 30, *, minutes: int = 2, **changes: Any) -> World:
    """Some jobs of three chunks done, some begun, some waiting; then halted, and settled."""
    world = World(sluice=SimSluice(settings(**({"declared_service_s": 20.0} | changes)), seed=1))
    payload = '{"chunk_ms": 7000, "chunks": 3, "note": "canary-payload"}'
    new = [NewJob(job_id=f"canary-{n}", job_class=CLASS, match_id=f"m{n % 5}", payload=payload) for n in range(jobs)]
    world.sluice.submit(new)
    world.sluice.run(minutes * 60_000 + 10_000)
    assert world.run("halt", CLASS, *HOLD).exit_code == 0
    world.sluice.run(60_000)
    return world


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_export_holds_every_job_in_every_state_with_its_outputs(tmp_path: Path) -> None:
    world, out = halted(), tmp_path / "ledger.jsonl"
    result = world.run("export", "--out", out, "--json")
    assert result.exit_code == 0, result.output
    lines = lines_of(out)
    jobs = [line["job"] for line in lines if "job" in line]
    states = {job["state"] for job in jobs}
    assert len(jobs) == 30
    assert {State.DONE, State.WAITING} <= states
    outputs = [line["output"]["job_id"] for line in lines if "output" in line]
    assert len(outputs) == sum(len(world.sluice.ledger.outputs(job_id)) for job_id in world.rows) > 30
    assert any(job["cursor"] and job["state"] == "waiting" for job in jobs), "some were begun, and given back"
    figures = json.loads(result.stdout)
    assert (figures["job"], figures["output"], figures["live"]) == (30, len(outputs), False)
    assert list(lines[0]) == ["header"]
    assert list(lines[-1]) == ["end"]
    assert [lines[0]["header"]["classes"][0]["in_flight"], lines[-1]["end"]["classes"][0]["in_flight"]] == [0, 0]


def test_ids_and_payloads_are_in_the_file_alone_and_the_file_is_its_owners(tmp_path: Path) -> None:
    world, out = halted(), tmp_path / "ledger.jsonl"
    result = world.run("export", "--out", out)
    assert "canary" not in result.output
    assert "canary-payload" in out.read_text()
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["ledger.jsonl"]


def test_a_class_that_runs_is_not_exported_without_live(tmp_path: Path) -> None:
    world = World()
    world.sluice.submit([NewJob(job_id="j1", job_class=CLASS, match_id="m", payload="{}")])
    result = world.run("export", "--out", tmp_path / "ledger.jsonl")
    assert result.exit_code == 2
    assert "got a class that is running, expected a class that is paused or halted" in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_halt_is_not_enough_before_everything_has_settled(tmp_path: Path) -> None:
    world = World(sluice=SimSluice(settings(), seed=1))
    payload = '{"chunk_ms": 50000}'
    world.submit(9, payload)
    world.sluice.run(70_000)
    world.run("halt", CLASS, *HOLD)
    assert world.run("export", "--out", tmp_path / "one.jsonl").exit_code == 2
    world.sluice.run(60_000)
    assert world.run("export", "--out", tmp_path / "two.jsonl").exit_code == 0


class Resumed(MemoryCopy):
    """Somebody resumes the class while it is exported."""

    def __init__(self, world: World) -> None:
        super().__init__(world.sluice.ledger)
        self.world = world

    def page(self, resume: str | None) -> RecordPage:
        self.world.run("resume", CLASS, *HOLD)
        return super().page(resume)


def test_a_class_that_is_resumed_meanwhile_leaves_no_file(tmp_path: Path) -> None:
    world = halted()
    world.copy = Resumed(world)
    result = world.run("export", "--out", tmp_path / "ledger.jsonl")
    assert result.exit_code == 2
    assert not (tmp_path / "ledger.jsonl").exists()


class Interrupted(MemoryCopy):
    """Ctrl-C at a page, once."""

    at_page = 4

    def page(self, resume: str | None) -> RecordPage:
        self.at_page -= 1
        if self.at_page == 0:
            raise KeyboardInterrupt
        return super().page(resume)


def test_an_interrupted_export_goes_on_and_gives_the_same_file(tmp_path: Path) -> None:
    world, out, whole = halted(), tmp_path / "ledger.jsonl", tmp_path / "whole.jsonl"
    world.copy = Interrupted(world.sluice.ledger)
    assert world.run("export", "--out", out).exit_code == 130
    assert not out.exists()
    part = tmp_path / "ledger.jsonl.part"
    with part.open("ab") as stream:
        stream.write(b'{"job": half a line')  # written, and killed before the state was
    result = world.run("export", "--out", out, "--json")
    assert (result.exit_code, json.loads(result.stdout)["resumed"]) == (0, True)
    assert world.run("export", "--out", whole).exit_code == 0
    assert out.read_text().splitlines()[1:-1] == whole.read_text().splitlines()[1:-1]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ledger.jsonl", "whole.jsonl"]


def test_the_beginning_of_another_export_is_not_gone_on_from(tmp_path: Path) -> None:
    world, out = halted(), tmp_path / "ledger.jsonl"
    world.copy = Interrupted(world.sluice.ledger)
    world.run("export", "--out", out)
    result = world.run("export", "--out", out, "--with-payloads")
    assert (result.exit_code, "the beginning of another export" in result.output) == (2, True)


def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    out = tmp_path / "ledger.jsonl"
    out.write_text("mine")
    result = halted().run("export", "--out", out)
    assert (result.exit_code, out.read_text()) == (2, "mine")


def test_a_pipe_gets_the_lines_and_nothing_else() -> None:
    result = halted().run("export", "--out", "-")
    assert result.exit_code == 0
    assert all(len(json.loads(line)) == 1 for line in result.stdout.splitlines())
    assert "standard output: 30 jobs" in result.stderr


def test_large_payloads_stay_behind_as_pointers_unless_they_are_asked_for(tmp_path: Path) -> None:
    world = World()
    large = json.dumps({"text": "x" * 5000})
    world.submit(3, large)
    world.run("pause", CLASS, *HOLD)
    for name, options in (("small", ()), ("whole", ("--with-payloads",))):
        assert world.run("export", "--out", tmp_path / name, *options).exit_code == 0
    small, whole = (lines_of(tmp_path / name) for name in ("small", "whole"))
    assert [line["payload"]["text"] for line in whole if "payload" in line] == [large], "once for three jobs"
    assert not any("payload" in line for line in small)
    assert len({line["job"]["payload_key"] for line in small if "job" in line}) == 1


def test_a_live_export_takes_each_job_with_the_outputs_that_it_had_then(tmp_path: Path) -> None:
    """Jobs commit while they are read: the cursor in the file is always behind the last output in it, by one."""

    class Torn(MemoryCopy):
        """Between a row and its outputs on a page three seconds pass, as they may on a page of a table."""

        def page(self, resume: str | None) -> RecordPage:
            found = super().page(resume)
            world.sluice.run(3000)
            return replace(found, records=tuple(self._later(found.records)))

        def _later(self, records: Sequence[Record]) -> Iterator[Record]:
            for record in (each for each in records if not isinstance(each, StoredOutput)):
                yield record
                if isinstance(record, Job):
                    outputs = world.sluice.ledger.outputs(record.job_id)
                    yield from (StoredOutput(job_id=record.job_id, output=each) for each in outputs)

    world = World(sluice=SimSluice(settings(declared_service_s=20.0), seed=1))
    payload = '{"chunk_ms": 900, "chunks": 25}'
    world.submit(8, payload)
    world.sluice.run(64_000)
    world.copy = Torn(world.sluice.ledger)
    assert world.run("export", "--live", "--out", tmp_path / "ledger.jsonl").exit_code == 0
    lines = lines_of(tmp_path / "ledger.jsonl")
    begun = [line["job"] for line in lines if "job" in line and line["job"]["state"] == "queued"]
    assert begun, "the world must move while it is read"
    for job in begun:
        cursors = {int(line["output"]["output"]["cursor"] or 0) for line in lines if _is_output_of(line, job["job_id"])}
        assert cursors == set(range(int(job["cursor"] or 0))), job["job_id"]


def _is_output_of(line: dict[str, Any], job_id: str) -> bool:
    return "output" in line and line["output"]["job_id"] == job_id


def test_an_ordered_class_is_never_exported_while_it_runs(tmp_path: Path) -> None:
    world = World(sluice=SimSluice(settings(ordered=True), seed=1))
    result = world.run("export", "--live", "--out", tmp_path / "ledger.jsonl")
    assert (result.exit_code, "got an ordered class" in result.output) == (2, True)


def test_a_job_that_joins_its_match_during_the_export_stays_out_of_it(tmp_path: Path) -> None:
    class Busy(MemoryCopy):
        def page(self, resume: str | None) -> RecordPage:
            late = NewJob(job_id=f"late-{resume}", job_class=CLASS, match_id="m1", payload="{}")
            world.sluice.submit([late])
            return super().page(resume)

    world = halted(ordered=True)
    world.copy = Busy(world.sluice.ledger)
    assert world.run("export", "--out", tmp_path / "ledger.jsonl").exit_code == 0
    jobs = [line["job"]["job_id"] for line in lines_of(tmp_path / "ledger.jsonl") if "job" in line]
    assert len(jobs) == 30
    assert any(job_id.startswith("late") for job_id in world.rows)


def test_unknown_classes_are_named_with_the_right_one(tmp_path: Path) -> None:
    result = halted().run("export", "--class", "replais", "--out", tmp_path / "x")
    assert (result.exit_code, f"did you mean {CLASS}?" in result.output) == (2, True)


def test_an_index_that_hides_a_row_in_flight_does_not_make_the_export_inexact(tmp_path: Path) -> None:
    """The count before it is of the index, which is late; the row itself says that it is in flight."""
    world = halted()
    job_id, row = next((key, row) for key, row in world.sluice.ledger.rows.items() if row.job.state is State.WAITING)
    world.sluice.ledger.rows[job_id] = replace(row, job=replace(row.job, state=State.QUEUED))
    result = world.run("export", "--out", tmp_path / "ledger.jsonl")
    assert (result.exit_code, "got a job in flight" in result.output) == (2, True)


def test_the_simulator_drains_what_was_exported(tmp_path: Path) -> None:
    world, out = halted(), tmp_path / "ledger.jsonl"
    world.run("export", "--out", out)
    result = world.run("simulate", "--ledger", out, "--scenario", "planning-2400", "--json")
    figures = json.loads(result.stdout)
    assert (result.exit_code, figures["jobs"], figures["done"], figures["violations"]) == (0, 30, 30, {})
    assert figures["redone_chunks"] == figures["duplicate_effects"] == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "--scenario: got nothing, expected a file or one of"),
        (("--scenario", "planning-2400", "--class", "replais"), "--class: got a class that the file has not got"),
        (("--scenario", "planning-2400", "--policy", "all"), "--policy: got the option beside --ledger"),
    ],
)
def test_what_the_simulator_needs_beside_the_file_is_said(tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    world, out = halted(3), tmp_path / "ledger.jsonl"
    world.run("export", "--out", out)
    result = world.run("simulate", "--ledger", out, *options)
    assert (result.exit_code, says in result.output) == (2, True), result.output


# -- an export that stops at a bad moment, or finds a line that is none: what it leaves, and what it does when run again


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


def test_after_a_class_was_resumed_meanwhile_the_same_command_begins_anew(tmp_path: Path) -> None:
    world, out = halted(), tmp_path / "ledger.jsonl"
    world.copy = Resumed(world)
    assert world.run("export", "--out", out).exit_code == 2
    world.copy = None
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
    assert world.json("export", "--out", tmp_path / "b.jsonl")["left_out"] == 1


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
