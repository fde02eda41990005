"""The emulator itself: nothing of it outlives its owner, and it needs nothing of the developer's."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ops.local import processes
from ops.local.emulator import DEFAULT_VENV, ROOT, Emulator

pytestmark = pytest.mark.e2e


HOST = """
import pathlib, signal, sys, time
from ops.local.emulator import Emulator
signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background has it ignored
with Emulator(pathlib.Path(sys.argv[1])) as emulator:
    print(emulator._process.pid, emulator.tmp, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("ending", (signal.SIGINT, None))
def test_nothing_of_the_emulator_outlives_its_owner(ending: signal.Signals | None) -> None:
    code = HOST if ending else HOST.replace("time.sleep(60)", "raise SystemExit(3)")
    command = [sys.executable, "-c", code, str(DEFAULT_VENV)]
    owner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert owner.stdout is not None
    group, tmp = owner.stdout.readline().decode().split()
    if ending:
        assert list(processes.members(int(group)))
        owner.send_signal(ending)
    owner.communicate(timeout=10)
    assert list(processes.members(int(group))) == []
    assert not Path(tmp).exists()


def test_without_its_environment_the_emulator_says_in_one_line_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(processes.NotInstalled) as caught, Emulator(tmp_path):
        pass
    assert str(caught.value) == (f"Something is not installed, run `make setup`: {tmp_path}/bin/ministack is missing")


def test_an_environment_for_clients_holds_no_credentials_of_the_developer(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "real")
    scrubbed = processes.scrubbed_environment(**emulator.environment())
    assert "real" not in json.dumps(scrubbed)
    assert "AWS_PROFILE" not in scrubbed
    assert {scrubbed["AWS_ENDPOINT_URL"], scrubbed["AWS_ENDPOINT_URL_S3"]} == {emulator.endpoint}
