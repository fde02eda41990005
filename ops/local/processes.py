"""Child processes that never outlive the command which started them.

Each child leads its own session: ctrl-C at the terminal reaches only us, and `stop` ends the child together with
whatever it has started itself.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from shared.errors import Permanent, SluiceError

PASSED_ON = ("PATH", "LANG", "LC_ALL", "TERM")
"""All that a child sees of our environment: a developer's real credentials and endpoints must not reach it."""

ERROR_TAIL_LINES = 25
"""Of a failed child's output, what its error shows."""


class NotInstalled(Permanent):
    """Something is not installed, run `make setup`:"""

    code = "not_installed"


class ProcessError(SluiceError):
    """A program that this needs failed:"""

    code = "process_failed"


def scrubbed_environment(**extra: str) -> dict[str, str]:
    """The few harmless variables of our own environment, and `extra`."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ} | extra


def require(path: Path) -> Path:
    """`path`, or `NotInstalled` when nothing is there."""
    if not path.exists():
        raise NotInstalled(f"{path} is missing")
    return path


def start(
    command: Sequence[str | Path], *, env: Mapping[str, str], log: Path, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start `command` as the leader of a new session, its output going to `log`."""
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(part) for part in command],
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def stop(process: subprocess.Popen[bytes]) -> None:
    """Kill the session's whole process group, at once: its members hold nothing that is worth a goodbye."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run(command: Sequence[str | Path], *, env: Mapping[str, str], log: Path, cwd: Path, timeout_s: float) -> None:
    """Run `command` to its end. A failure shows the end of its log; any exception here stops it and its children."""
    process = start(command, env=env, log=log, cwd=cwd)
    try:
        code = process.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise ProcessError(f"{command[0]} took longer than {timeout_s:.0f} s\n{tail(log)}") from None
    finally:
        stop(process)
    if code != 0:
        raise ProcessError(f"{command[0]} ended with code {code}\n{tail(log)}")


def tail(log: Path, lines: int = ERROR_TAIL_LINES) -> str:
    """The last lines of a child's output."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def wait_until_healthy(process: subprocess.Popen[bytes], url: str, *, log: Path, timeout_s: float) -> None:
    """Return when `url` answers 200; `ProcessError` when the process ends before, or time is up."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        if _answers(url):
            return
        time.sleep(0.05)
    raise ProcessError(f"{url} did not become healthy within {timeout_s:.0f} s\n{tail(log)}")


def _answers(url: str) -> bool:
    host = urlsplit(url)
    connection = http.client.HTTPConnection(host.hostname or "", host.port, timeout=2)
    try:
        connection.request("GET", host.path)
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def members(group: int) -> Iterator[tuple[int, str]]:
    """(pid, command line) of every process in a process group, from `ps`: the only view that Linux and macOS share."""
    command = ["ps", "-A", "-ww", "-o", "pid=", "-o", "pgid=", "-o", "args="]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    for line in listing.stdout.splitlines():
        pid, pgid, args = [*line.split(maxsplit=2), ""][:3]
        if int(pgid) == group:
            yield int(pid), args


def kill(pid: int) -> bool:
    """SIGKILL one process, as the kernel does when memory runs out; False when it was gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
