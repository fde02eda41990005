"""`import`: everything or nothing of a file, never over anything, and its classes arrive paused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ops.simulator.sluice_world import SimSluice
from ops.transfer.format import chained
from shared.domain.control import RunKey, RunState
from shared.domain.job import Job, NewJob, State
from shared.errors import LedgerUnavailable
from tests.commands.test_export import HOLD, halted
from tests.commands.world import CLASS, World, settings

WHY = ("--reason", "moves to the new account")


def exported(world: World, tmp_path: Path, *options: str, name: str = "ledger.jsonl") -> Path:
    out = tmp_path / name
    assert world.run("export", "--out", out, *options).exit_code == 0
    return out


def empty(world: World) -> World:
    """Another deployment of the same configuration."""
    return World(sluice=SimSluice(world.settings(), seed=2))


def stored(world: World) -> dict[str, Any]:
    ledger = world.sluice.ledger
    rows = {job_id: (row.job, row.place, ledger.outputs(job_id)) for job_id, row in ledger.rows.items()}
    return {"rows": rows, "lines": ledger.stores.matches.orders, "places": ledger.stores.matches.places}


@pytest.mark.parametrize("ordered", [False, True])
def test_what_arrives_is_what_was_there_and_it_arrives_paused(tmp_path: Path, ordered: bool) -> None:
    source = halted(ordered=ordered)
    file, target = exported(source, tmp_path), empty(source)
    result = target.run("import", file, *WHY)
    assert result.exit_code == 0, result.output
    assert stored(target) == stored(source)
    control = target.control
    assert control.pause is not None
    assert control.pause.why.startswith("import of memory as of ")
    assert control.pause.why.endswith(": moves to the new account")
    assert control.halt is None
    assert f"python -m ops resume {CLASS}" in result.output


def test_after_a_resume_every_job_ends_each_effect_once_and_no_chunk_again(tmp_path: Path) -> None:
    source = halted()
    file, target = exported(source, tmp_path), empty(source)
    target.run("import", file, *WHY)
    before = {job_id: len(source.sluice.ledger.outputs(job_id)) for job_id in source.rows}
    target.run("resume", CLASS, *HOLD)
    assert target.sluice.drain(3_600_000)
    assert {job.state for job in target.rows.values()} == {State.DONE}
    assert all(len(target.sluice.ledger.outputs(job_id)) == 3 for job_id in target.rows)
    begun = [start for kind in target.sluice.kinds.values() for start in kind.starts]
    assert len(begun) == sum(3 - count for count in before.values()), "a committed chunk began again"


def test_a_second_import_adds_nothing(tmp_path: Path) -> None:
    source = halted()
    file, target = exported(source, tmp_path), empty(source)
    target.run("import", file, *WHY)
    once = stored(target)
    figures = target.json("import", file, *WHY)
    assert (figures["created"], figures["existing"], figures["outputs"]) == (0, 30, 0)
    assert stored(target) == once


def test_an_import_after_the_class_was_resumed_neither_pauses_it_nor_takes_a_row_back(tmp_path: Path) -> None:
    source = halted()
    file, target = exported(source, tmp_path), empty(source)
    target.run("import", file, *WHY)
    target.run("resume", CLASS, *HOLD)
    assert target.sluice.drain(3_600_000)
    assert target.run("import", file, *WHY).exit_code == 0
    assert {job.state for job in target.rows.values()} == {State.DONE}
    assert target.control.pause is None


@pytest.mark.parametrize("at_call", range(1, 12))
def test_an_import_that_dies_anywhere_is_finished_by_the_next_one(tmp_path: Path, at_call: int) -> None:
    """The store stops answering at one call after the other; the same command again makes it whole."""
    source = halted(ordered=True)
    file, target = exported(source, tmp_path), empty(source)
    ledger, calls = target.sluice.ports.ledger, iter(range(1, 100))

    class Flaky:
        def __getattr__(self, name: str) -> Any:
            return getattr(ledger, name)

        def create(self, jobs: Any) -> Any:
            if next(calls) >= at_call:
                raise LedgerUnavailable("down")
            return ledger.create(jobs[:3]) + ledger.create(jobs[3:])

    target.broken = {"ledger": Flaky()}
    first = target.run("import", file, *WHY)
    target.broken = {}
    flag = target.control.pause
    assert flag is not None
    assert (first.exit_code, "not complete" in flag.why) in ((3, True), (0, False))
    assert target.run("import", file, *WHY).exit_code == 0
    assert stored(target) == stored(source)
    flag = target.control.pause
    assert flag is not None
    assert "not complete" not in flag.why


def test_a_match_has_its_line_before_its_first_row(tmp_path: Path) -> None:
    """Who submits to the match between the two would begin a line of their own, and the import could never go on."""
    source = halted(ordered=True)
    file, target = exported(source, tmp_path), empty(source)
    ledger = target.sluice.ports.ledger

    class Down:
        def __getattr__(self, name: str) -> Any:
            return getattr(ledger, name)

        def create(self, jobs: Any) -> Any:
            raise LedgerUnavailable("down")

    target.broken = {"ledger": Down()}
    assert target.run("import", file, *WHY).exit_code == 3
    assert stored(target)["lines"] == stored(source)["lines"]


def test_producers_that_submit_during_an_interrupted_import_do_not_keep_it_from_going_on(tmp_path: Path) -> None:
    source = halted()
    file, target = exported(source, tmp_path), empty(source)
    target.run("import", file, *WHY)
    del target.sluice.ledger.rows["canary-29"]  # as if it had stopped before the last row
    target.sluice.submit([NewJob(job_id="fresh", job_class=CLASS, match_id="m", payload="{}")])
    assert target.run("import", file, *WHY).exit_code == 0
    assert set(target.rows) == {*source.rows, "fresh"}


def test_a_dry_run_says_what_would_come_and_changes_nothing(tmp_path: Path) -> None:
    source = halted()
    file, target = exported(source, tmp_path), empty(source)
    result = target.run("import", file, *WHY, "--dry-run")
    assert (result.exit_code, "30 rows would be created" in result.output) == (0, True)
    assert not target.rows
    assert target.control.admits


def test_a_ledger_with_other_rows_of_the_class_is_left_alone_without_merge(tmp_path: Path) -> None:
    source = halted()
    file, target = exported(source, tmp_path), empty(source)
    target.sluice.submit([NewJob(job_id="theirs", job_class=CLASS, match_id="m", payload="{}")])
    result = target.run("import", file, *WHY)
    assert (result.exit_code, "got 1 row that the file does not speak of" in result.output) == (1, True)
    assert set(target.rows) == {"theirs"}
    assert target.run("import", file, *WHY, "--merge").exit_code == 0
    assert set(target.rows) == {"theirs", *source.rows}


def test_an_id_that_another_job_has_is_a_conflict_and_nothing_is_written(tmp_path: Path) -> None:
    """Also the same work, submitted here by itself: its row knows nothing of the chunks that were committed there."""
    source = halted()
    file, target = exported(source, tmp_path), empty(source)
    twin = source.rows["canary-3"]
    target.sluice.run(10_000)
    target.sluice.submit([NewJob(job_id="canary-3", job_class=CLASS, match_id=twin.match_id, payload=twin.payload)])
    result = target.run("import", file, *WHY, "--merge", "--json")
    assert result.exit_code == 1
    assert "job.job_id: got an id that exists" in result.stderr
    assert (json.loads(result.stdout)["conflicting"], set(target.rows)) == (1, {"canary-3"})


def test_a_job_of_that_id_that_was_done_here_by_itself_is_a_conflict_too(tmp_path: Path) -> None:
    """Its row is further than the file's, but it did not come from there: it was created at another moment."""
    source = halted(60)
    file, target = exported(source, tmp_path), empty(source)
    twin = next(job for job in source.rows.values() if job.epoch == 0)
    target.sluice.run(10_000)
    target.sluice.submit([NewJob(job_id=twin.job_id, job_class=CLASS, match_id=twin.match_id, payload=twin.payload)])
    assert target.sluice.drain(3_600_000)
    assert target.run("import", file, *WHY).exit_code == 1
    assert set(target.rows) == {twin.job_id}


def test_what_operators_wanted_comes_along_and_what_ticks_saw_does_not(tmp_path: Path) -> None:
    source = halted()
    source.run("rate", CLASS, "2.5", *HOLD)
    file, target = exported(source, tmp_path), empty(source)
    target.run("import", file, *WHY)
    control = target.control
    assert control.rate is not None
    assert control.rate.rate_per_s == 2.5
    assert (control.history, control.recent, control.lock_owner) == ((), (), "")


def test_a_minute_that_was_run_there_is_not_run_again_here(tmp_path: Path) -> None:
    source = halted()
    file, target = exported(source, tmp_path), empty(source)
    closed = [run.key for run in source.sluice.ledger.runs if run.state is RunState.CLOSED]
    target.run("import", file, *WHY)
    assert closed
    for key in closed:
        assert not target.sluice.ledger.admit_run(key, source="webhook", now_ms=key.minute_ms)
    fresh = RunKey(job_class=CLASS, minute_ms=closed[-1].minute_ms + 3_600_000)
    assert target.sluice.ledger.admit_run(fresh, source="webhook", now_ms=fresh.minute_ms)


def test_pointers_need_their_objects_and_payloads_bring_them_along(tmp_path: Path) -> None:
    source, large = World(), json.dumps({"text": "x" * 5000})
    source.sluice.submit([NewJob(job_id="j", job_class=CLASS, match_id="m", payload=large)])
    source.run("pause", CLASS, *HOLD)
    target = empty(source)
    result = target.run("import", exported(source, tmp_path), *WHY)
    assert (result.exit_code, target.rows) == (2, {})
    assert "line 2: job.payload_key: got nothing, expected its object in this bucket" in result.output
    assert target.run("import", exported(source, tmp_path, "--with-payloads", name="whole"), *WHY).exit_code == 0
    assert target.sluice.blobs.objects == source.sluice.blobs.objects


def test_an_order_that_exists_here_already_is_not_mixed_with(tmp_path: Path) -> None:
    source = halted(ordered=True)
    file, target = exported(source, tmp_path), empty(source)
    target.sluice.submit([NewJob(job_id="theirs", job_class=CLASS, match_id="m1", payload="{}")])
    result = target.run("import", file, *WHY, "--merge")
    assert (result.exit_code, set(target.rows)) == (2, {"theirs"})
    assert "match: got jobs in another order" in result.output


def test_an_operators_own_pause_stays_hers(tmp_path: Path) -> None:
    source = halted()
    file, target = exported(source, tmp_path), empty(source)
    target.run("pause", CLASS, "--reason", "not before noon")
    flag = target.control.pause
    assert target.run("import", file, *WHY).exit_code == 0
    assert target.control.pause == flag


@pytest.mark.parametrize("older", [lambda job: {"epoch": job.epoch - 1}, lambda _: {"state": State.QUEUED}])
def test_an_older_state_of_a_row_is_not_taken_for_the_row(
    tmp_path: Path, older: Callable[[Job], dict[str, Any]]
) -> None:
    """Of an earlier epoch, or of the same one: the file says that the job is done."""
    source = halted()
    file, target = exported(source, tmp_path), empty(source)
    target.run("import", file, *WHY)
    job_id, row = next((key, row) for key, row in target.sluice.ledger.rows.items() if row.job.state is State.DONE)
    target.sluice.ledger.rows[job_id] = replace(row, job=replace(row.job, **older(row.job)))
    assert target.run("import", file, *WHY).exit_code == 1


def test_settings_that_differ_in_order_refuse_the_file(tmp_path: Path) -> None:
    file = exported(halted(ordered=True), tmp_path)
    result = World(sluice=SimSluice(settings(), seed=2)).run("import", file, *WHY)
    assert (result.exit_code, "job.seq: got a number, expected 0" in result.output) == (2, True)


# -- files that are not what `export` wrote: each fault is named with its line, and nothing of the file is written

Change = Callable[[list[dict[str, Any]]], object]


def _of(lines: list[dict[str, Any]], word: str) -> Any:
    return next(line[word] for line in lines if word in line)


def _set(word: str, name: str, value: object) -> Change:
    return lambda lines: _of(lines, word).__setitem__(name, value)


FAULTS: list[tuple[str, Change, str]] = [
    ("another class", _set("job", "job_class", "others"), "job.job_class: got an unknown class, expected one of repl"),
    ("a state that is none", _set("job", "state", "canary"), "job.state: got other text, expected one of waiting,"),
    ("a cursor that is a number", _set("job", "cursor", 5), "job.cursor: got a whole number, expected a string"),
    ("an epoch below 0", _set("job", "epoch", -1), "job.epoch: got a number out of range, expected a count"),
    ("true for a number", _set("job", "attempts", True), "job.attempts: got a boolean, expected a whole number"),
    ("a field of nobody's", _set("job", "canary", 1), "job: got an unknown field, expected only job_id,"),
    ("a payload that is no JSON", _set("job", "payload", "{"), "job.payload: got text that is not JSON"),
    ("a place in no line", _set("job", "seq", 3), "job.seq: got a number, expected 0: its class is not ordered"),
    ("an output of another job", _set("output", "job_id", "canary-x"), "output: got one of another job"),
    ("half a minute", lambda lines: _of(lines, "run")["key"].update(minute_ms=30_000), "run.key.minute_ms: got a time"),
    ("no id", lambda lines: _of(lines, "job").pop("job_id"), "job.job_id: got nothing, expected a string"),
    ("a line less", lambda lines: lines.pop(5), "end.digest: got another one"),
    ("an order changed", lambda lines: lines.insert(-2, lines.pop(1)), "end.digest: got another one"),
]


@pytest.mark.parametrize(("change", "says"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
def test_a_file_with_a_fault_is_named_with_its_line_and_nothing_of_it_is_written(
    tmp_path: Path, change: Change, says: str
) -> None:
    source = halted()
    file, target = exported(source, tmp_path), empty(source)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    change(lines)
    file.write_text("".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines))
    result = target.run("import", file, *WHY)
    assert result.exit_code == 2, result.output
    assert says in result.output
    assert "error: line " in result.output
    assert "canary" not in result.output, "a fault never shows what stands in the file (I12)"
    assert not target.rows
    assert target.control.admits


@pytest.mark.parametrize(
    ("cut", "says"),
    [
        (lambda raw: raw[: raw.rindex(b"\n", 0, -1) + 1], "file: got one without its end"),
        (lambda raw: raw[: len(raw) // 2], "line: got text that is not JSON"),
        (lambda raw: b"", "file: got one without its end"),
        (lambda raw: raw + raw.splitlines()[1], "line: got more, expected nothing behind the end"),
        (lambda raw: raw[raw.index(b"\n") + 1 :], "file: got something else, expected the header"),
        (lambda raw: raw.replace(b'"format":1', b'"format":2', 1), "header.format: got another format"),
        (lambda raw: b"\x1f\x8b" + raw, "file: got a gzip file"),
        (lambda raw: b"[" * 100_000, "line: got JSON nested deeper than 100 levels"),
    ],
)
def test_a_file_that_is_no_whole_export_is_refused(tmp_path: Path, cut: Callable[[bytes], bytes], says: str) -> None:
    source = halted()
    file, target = exported(source, tmp_path), empty(source)
    file.write_bytes(cut(file.read_bytes()))
    result = target.run("import", file, *WHY)
    assert (result.exit_code, target.rows) == (2, {}), result.output
    assert says in result.output


def test_a_match_whose_line_is_broken_is_refused(tmp_path: Path) -> None:
    """As a submission leaves it that the export met with one row and without another."""
    source = halted(ordered=True)
    file, target = exported(source, tmp_path), empty(source)
    lines = file.read_text().splitlines()
    gone = next(number for number, line in enumerate(lines) if '"state":"behind"' in line and '"seq":6,' not in line)
    del lines[gone]
    end = json.loads(lines.pop())["end"]
    end["counts"]["job"] -= 1
    end["digest"] = ""
    for line in lines:
        end["digest"] = chained(end["digest"], line.encode())
    file.write_text("\n".join([*lines, json.dumps({"end": end})]) + "\n")
    result = target.run("import", file, *WHY)
    assert (result.exit_code, target.rows) == (2, {})
    assert "match: got jobs that are no line, expected one unbroken order" in result.output
