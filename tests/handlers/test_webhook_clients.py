"""The clients in docs/clients: the Node.js script against a local stub of the webhook, the two manifests as text."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

CLIENTS = Path(__file__).resolve().parents[2] / "docs" / "clients"
SCRIPT = CLIENTS / "drain-run.mjs"
NODE = shutil.which("node") or ""
TOKEN = "canary-token-0123456789"
CREATED: dict[str, Any] = {"accepted": True, "created": True, "run_id": "x"}

needs_node = pytest.mark.skipif(not NODE, reason="Node.js is not on the path")


class Stub(ThreadingHTTPServer):
    """Answers with what it was given, in order, the last one for ever; keeps what it was asked."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = list(answers)
        self.asked: list[tuple[dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/drain-runs"


class _Handler(BaseHTTPRequestHandler):
    server: Stub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.asked.append(({name.lower(): value for name, value in self.headers.items()}, body))
        status, answer = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        if status == 0:
            self.close_connection = True
            return
        self.send_response(status)
        if status == 302:
            self.send_header("location", "/elsewhere")
        sent = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, format: str, *_: Any) -> None:  # noqa: A002 - the base class's name
        return


@pytest.fixture
def stub() -> Iterator[Stub]:
    server = Stub((202, CREATED))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


CLOCK = """
// The script's clock: it stands where the test says, and only a pause moves it. No jitter, so that pauses are known.
const timers = require("node:timers/promises");
let nowMs = Date.parse(process.env.TEST_NOW);
Date.now = () => nowMs;
Math.random = () => 0;
timers.setTimeout = async (ms) => { nowMs += ms; };
require("node:module").syncBuiltinESMExports();
"""


def run(stub: Stub | None, *flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "SLUICE_WEBHOOK_URL": "" if stub is None else stub.url,
        "SLUICE_JOB_CLASS": "document_classification",
        "SLUICE_WEBHOOK_TOKEN": TOKEN,
        "SLUICE_FIRST_PAUSE_MS": "5",
    }
    ended = subprocess.run(
        [NODE, *flags, str(SCRIPT)],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert TOKEN not in ended.stdout + ended.stderr
    return ended


@needs_node
def test_it_asks_for_the_run_of_this_minute(stub: Stub) -> None:
    before = time.time()
    ended = run(stub)
    assert ended.returncode == 0, ended.stderr
    ((headers, body),) = stub.asked
    asked = json.loads(body)
    minute = datetime.fromisoformat(asked["scheduled_at"])
    assert before - 60 < minute.timestamp() <= time.time()
    assert (minute.second, minute.microsecond, minute.tzinfo) == (0, 0, UTC)
    assert asked["run_id"] == f"document_classification@{minute:%Y-%m-%dT%H:%MZ}"
    assert set(asked) == {"run_id", "scheduled_at", "job_class"}
    assert (headers["authorization"], headers["content-type"]) == (f"Bearer {TOKEN}", "application/json")
    assert ended.stdout == f"{asked['run_id']} attempt 1: 202 (created: true)\n"


@needs_node
def test_what_can_pass_is_tried_again_with_the_same_bytes(stub: Stub) -> None:
    stub.answers = [
        (503, {"reason": "ledger_unavailable"}),
        (429, {"message": "x"}),
        (502, b"<html>"),
        (0, b""),
        (202, CREATED),
    ]
    ended = run(stub)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(stub.asked) == 5
    assert len({body for _, body in stub.asked}) == 1


@needs_node
@pytest.mark.parametrize(
    ("start", "at_s"),
    [
        ("12:05:00.000", (0, 1, 3, 7, 15, 30, 45, 60, 75, 90)),  # the next one would come at 105 s
        ("12:05:50.000", (50, 51, 53, 57, 65, 80, 95)),
        ("12:05:59.900", (59.9, 60.9, 62.9, 66.9, 74.9, 89.9)),  # late in its minute: fewer, and none too old
    ],
)
def test_its_patience_ends_100_s_after_the_minute_began_however_late_it_started(
    stub: Stub, tmp_path: Path, start: str, at_s: tuple[float, ...]
) -> None:
    stub.answers = [(503, {"reason": "fault"})]
    (tmp_path / "clock.cjs").write_text(CLOCK)
    ended = run(
        stub,
        f"--require={tmp_path / 'clock.cjs'}",
        TEST_NOW=f"2026-11-30T{start}Z",
        SLUICE_FIRST_PAUSE_MS="1000",
    )
    assert (ended.returncode, len(stub.asked)) == (3, len(at_s)), ended.stdout + ended.stderr
    assert {json.loads(body)["run_id"] for _, body in stub.asked} == {"document_classification@2026-11-30T12:05Z"}
    assert at_s[-1] < 100 <= at_s[-1] + 15


@needs_node
def test_a_node_that_is_too_old_is_told_so_and_asks_nobody(stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "old.cjs").write_text(
        'Object.defineProperty(process, "versions", { value: { ...process.versions, node: "16.20.2" } });\n'
        "delete globalThis.fetch;\n"
    )
    ended = run(stub, f"--require={tmp_path / 'old.cjs'}")
    assert (ended.returncode, ended.stdout, stub.asked) == (2, "", [])
    assert ended.stderr == "error: Node.js 18 or newer is needed: this is 16.20.2\n"


@needs_node
@pytest.mark.parametrize("status", [400, 401, 405, 409, 413, 415])
def test_what_was_refused_is_not_tried_again(stub: Stub, status: int) -> None:
    stub.answers = [(status, {"accepted": False, "reason": "stale"})]
    ended = run(stub)
    assert (ended.returncode, len(stub.asked)) == (1, 1)
    assert f"{status} (stale)" in ended.stdout


@needs_node
def test_the_token_never_follows_a_redirect(stub: Stub) -> None:
    stub.answers = [(302, {}), (400, {})]
    assert run(stub).returncode == 1
    assert len(stub.asked) == 2  # the redirect counted as no answer, and nobody went elsewhere


@needs_node
def test_a_mounted_token_is_read_without_its_newline(stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert run(stub, SLUICE_WEBHOOK_TOKEN="", SLUICE_WEBHOOK_TOKEN_FILE=str(tmp_path / "token")).returncode == 0
    assert stub.asked[0][0]["authorization"] == f"Bearer {TOKEN}"


@needs_node
@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"SLUICE_WEBHOOK_URL": ""}, "SLUICE_WEBHOOK_URL is not set"),
        ({"SLUICE_WEBHOOK_URL": "drain-runs"}, "SLUICE_WEBHOOK_URL is not a URL"),
        ({"SLUICE_WEBHOOK_URL": "http://sluice.example/drain-runs"}, "SLUICE_WEBHOOK_URL must be https"),
        ({"SLUICE_JOB_CLASS": ""}, "SLUICE_JOB_CLASS is not set"),
        ({"SLUICE_WEBHOOK_TOKEN": " "}, "neither SLUICE_WEBHOOK_TOKEN_FILE nor SLUICE_WEBHOOK_TOKEN holds a token"),
        ({"SLUICE_WEBHOOK_TOKEN_FILE": "/nowhere"}, "neither SLUICE_WEBHOOK_TOKEN_FILE"),
    ],
)
def test_wrong_settings_are_one_sentence_and_no_request(stub: Stub, variables: dict[str, str], sentence: str) -> None:
    ended = run(stub, **variables)
    assert (ended.returncode, ended.stdout, stub.asked) == (2, "", [])
    assert ended.stderr.startswith(f"error: {sentence}")


# -- the manifests


def test_the_cron_job_never_overlaps_gives_up_late_starts_and_backs_off() -> None:
    job = yaml.safe_load((CLIENTS / "kubernetes-cronjob.yaml").read_text())
    spec = job["spec"]
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    assert (spec["schedule"], spec["timeZone"]) == ("* * * * *", "Etc/UTC")
    assert spec["concurrencyPolicy"] == "Forbid"
    assert 10 <= spec["startingDeadlineSeconds"] < 60  # below 10 s the controller may never start it
    assert spec["jobTemplate"]["spec"]["backoffLimit"] == 2
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["restartPolicy"] == "Never"
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert mounts == {"/opt/drain-run": "script", "/run/secrets/drain-run": "token"}
    assert set(variables) == variables_read() - {"SLUICE_WEBHOOK_TOKEN", "SLUICE_FIRST_PAUSE_MS"}
    assert container["command"] == ["node", f"/opt/drain-run/{SCRIPT.name}"]


def test_the_workflow_runs_the_script_with_a_masked_token() -> None:
    workflow = yaml.safe_load((CLIENTS / "github-actions.yml").read_text())
    (job,) = workflow["jobs"].values()
    step = next(step for step in job["steps"] if "run" in step)
    assert step["run"] == f"node docs/clients/{SCRIPT.name}"
    assert set(step["env"]) == variables_read() - {"SLUICE_WEBHOOK_TOKEN_FILE", "SLUICE_FIRST_PAUSE_MS"}
    assert step["env"]["SLUICE_WEBHOOK_TOKEN"] == "${{ secrets.SLUICE_WEBHOOK_TOKEN }}"
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["cancel-in-progress"] is False


def variables_read() -> set[str]:
    return set(re.findall(r"\bSLUICE_[A-Z_]+", SCRIPT.read_text()))
