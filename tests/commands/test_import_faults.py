"""Files that are not what `export` wrote: each fault is named with its line, and nothing of the file is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ops.transfer.format import chained
from tests.commands.test_export import halted
from tests.commands.test_import import WHY, empty, exported
from tests.commands.world import CLASS

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
    assert target.sluice.ledger.read_control(CLASS).admits


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
