"""A deployment whose kinds die on schedule: of all chunks that a kind runs, every n-th ends with its process killed.

It dies where it hurts most: the chunk's effects are there, its commit is not. Each kind keeps a line of what it ran,
a dot for a chunk and a K for one that was killed, as in `..K..K.`, so that a test can say how often and where.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from infra.bundle import Platform, stage
from ops.local.emulator import ROOT, Emulator
from tests.e2e.deployed_code import deploy_code

_DEATH = """

import fcntl as _fcntl
import os as _os
import signal as _signal

_undisturbed = process_chunk


def process_chunk(job, cursor, context):
    chunk = _undisturbed(job, cursor, context)
    with open({line!r}, "a+") as line:
        _fcntl.flock(line, _fcntl.LOCK_EX)
        line.seek(0)
        dies = (len(line.read()) + 1) % {every} == 0
        line.write("K" if dies else ".")
        line.flush()
        if dies:
            _os.kill(_os.getpid(), _signal.SIGKILL)
    return chunk
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deaths:
    """What came of it, by kind."""

    directory: Path
    every: int

    def line(self, kind: str) -> str:
        path = self.directory / f"{kind}.line"
        return path.read_text() if path.exists() else ""

    def kills(self, kind: str) -> int:
        return self.line(kind).count("K")


def deploy_deaths(emulator: Emulator, config: Path, directory: Path, *, kinds: Iterable[str], every: int) -> Deaths:
    """Every function of the deployment runs its code with deaths in these kinds from now on."""
    code = stage(root=ROOT, config=config, into=directory / "bundle", kinds=kinds, platform=Platform.HOST).code
    for kind in kinds:
        path = code / "functions" / "worker" / "kinds" / f"{kind}.py"
        path.write_text(path.read_text() + _DEATH.format(line=str(directory / f"{kind}.line"), every=every))
    deploy_code(emulator, code)
    return Deaths(directory=directory, every=every)
