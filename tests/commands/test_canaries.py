"""I12 on the command line: what it says of a file never quotes one of its values."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.domain.job import NewJob
from tests.commands.world import CLASS, World, line
from tests.handlers.canaries import GUILD, JOB, MATCH, OBJECT, PATIENT, PAYLOAD, TOKEN, leaks

BAD_VALUES: dict[str, list[Any]] = {
    "job_class": [PAYLOAD, [PAYLOAD], {PAYLOAD: 1}],
    "job_id": [PATIENT * 60, [PATIENT], f"{PATIENT}\0", f"{PATIENT}\ud800"],
    "match_id": [MATCH * 60, {"match": MATCH}, f"{MATCH}\0"],
    "due": [PATIENT, f"2026-11-30T12:00:00Z {TOKEN}", [TOKEN]],
    "priority": [PAYLOAD, [PAYLOAD]],
}
BAD_TEXTS = (
    f'{{"job_id": "{PATIENT}",',
    f'{{"job_id": "{PATIENT}", "job_id": "{PATIENT}"}}',
    f'"{PAYLOAD}"',
    f"{PAYLOAD}",
    f'{{"job_id": "a", "job_class": "replays", "match_id": "m", "payload": {{"x": NaN, "note": "{PAYLOAD}"}}}}',
    f'{{"job_id": "a", "job_class": "replays", "match_id": "m", "payload": {{"{PAYLOAD}": 1, "{PAYLOAD}": 2}}}}',
)
BAD_CSV = (
    f"{PATIENT},{MATCH}",
    f"{PATIENT},{MATCH},{OBJECT},{TOKEN}",
    f'{PATIENT},{MATCH},"{OBJECT}"{PAYLOAD},',
    f'{PATIENT},"{MATCH},{OBJECT},',
)


def submit_lines(_: World, directory: Path) -> list[Any]:
    bad = [line(**{name: value}) for name, values in BAD_VALUES.items() for value in values]
    bad += [f"{text}\n".encode() for text in BAD_TEXTS] + [PAYLOAD.encode("latin-1") + b"\n"]
    # The same id with other contents, at last.
    good = [line(job_id=JOB, match_id=MATCH, payload={"note": PAYLOAD}), line(job_id=JOB, match_id=MATCH)]
    path = directory / "jobs.jsonl"
    path.write_bytes(b"".join([*good, *bad]))
    return ["submit", path]


def submit_csv(_: World, directory: Path) -> list[Any]:
    path = directory / "jobs.csv"
    path.write_text("\n".join(["id,match,object,when", f"{JOB},{MATCH},{OBJECT},", *BAD_CSV]) + "\n", encoding="utf-8")
    columns = [f"--map={each}" for each in ("job_id=id", "match_id=match", "payload.key=object", "due=when")]
    return ["submit", path, "--job-class", CLASS, *columns]


def replay_csv(_: World, directory: Path) -> list[Any]:
    path = directory / "day.csv"
    path.write_text(f"when,in\n2026-11-30T12:00:00Z,{PAYLOAD}\n{PATIENT},1\n", encoding="utf-8")
    return ["replay", path, "--time=when", "--tokens=in", "--limit=8"]


def export_all(world: World, directory: Path) -> list[Any]:
    world.sluice.submit(
        [
            NewJob(
                job_id=JOB, job_class=CLASS, match_id=MATCH, payload=json.dumps({"note": PAYLOAD}, ensure_ascii=False)
            ),
            NewJob(job_id=PATIENT, job_class=CLASS, match_id=GUILD, payload=json.dumps({"note": TOKEN * 5_000})),
        ]
    )
    world.sluice.pause(CLASS)
    return ["export", "--out", directory / "ledger.jsonl", "--with-payloads"]


def import_spoilt(world: World, directory: Path) -> list[Any]:
    """Each line of an export with each of its values spoilt in turn."""
    assert world.run(*export_all(world, directory)).exit_code == 0
    path, spoilt = directory / "ledger.jsonl", directory / "spoilt.jsonl"
    lines = [json.loads(each) for each in path.read_text(encoding="utf-8").splitlines()]
    assert any(PAYLOAD in json.dumps(each, ensure_ascii=False) for each in lines)
    bad = [each | {name: value} for each in lines[1:] for name in each for value in (PAYLOAD, [PATIENT], {"a": TOKEN})]
    spoilt.write_text("".join(f"{json.dumps(each)}\n" for each in [*lines, *bad]), encoding="utf-8")
    return ["import", spoilt, "--reason", "test"]


COMMANDS: tuple[tuple[Callable[[World, Path], list[Any]], int], ...] = (
    (submit_lines, 1),
    (submit_csv, 1),
    (replay_csv, 2),
    (export_all, 0),
    (import_spoilt, 2),
)


@pytest.mark.parametrize(("command", "code"), COMMANDS, ids=[each.__name__ for each, _ in COMMANDS])
def test_a_file_of_canaries_on_the_command_line(
    world: World,
    command: Callable[[World, Path], list[Any]],
    code: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    result = world.run(*command(world, tmp_path))
    printed = result.output + result.stderr + caplog.text
    assert (result.exit_code, leaks(printed)) == (code, []), printed
    assert result.output
