"""Known vulnerabilities in what is pinned: `python -m ops.audit`, a step of `make check`.

A finding fails. Where pip-audit's service cannot be asked (no network, a mirror without advisories), one line says so
and the step passes: a check that fails without a network is one that people learn to skip.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

ROOT: Final = Path(__file__).resolve().parent.parent
SHIPPED: Final = "functions/requirements.txt"
"""What runs on AWS."""

TIME_S: Final = 20.0
"""For all of it. Each package is one request."""

_UNREACHABLE: Final = ("requests.exceptions.", "Could not connect", "not redirecting")
"""In pip-audit's last line, where nobody answers."""


class Verdict(Struct, frozen=True, kw_only=True):
    """What to say, whether it is a failure, and whether anything was looked up at all."""

    lines: tuple[str, ...]
    failed: bool = False
    looked_up: int = 0


def files() -> list[Path]:
    """Every pinned requirements file. What ships comes first: it is short, and tells whether anybody answers."""
    kinds = sorted((ROOT / "functions/worker/kinds").glob("*.requirements.txt"))
    return [ROOT / SHIPPED, *kinds, ROOT / "ops/local/requirements.txt", ROOT / "requirements.txt"]


def judge(name: str, answer: str, complaint: str) -> Verdict:
    """What pip-audit's answer about one file means: `answer` is its JSON, `complaint` its stderr."""
    try:
        packages: list[dict[str, Any]] = json.loads(answer)["dependencies"]
    except (ValueError, KeyError):
        last = complaint.strip().rpartition("\n")[2]
        if any(mark in last for mark in _UNREACHABLE):
            return Verdict(lines=())
        return Verdict(lines=(f"audit: {name}: pip-audit failed: {last}",), failed=True)
    known = [package for package in packages if "skip_reason" not in package]
    bad = tuple(
        f"audit: {name}: {package['name']} {package['version']} has {fault['id']},"
        f" fixed in {', '.join(fault['fix_versions']) or 'no version yet'}"
        for package in known
        for fault in package["vulns"]
    )
    return Verdict(lines=bad, failed=bool(bad), looked_up=len(known))


def ask(path: Path, *, timeout_s: float) -> Verdict:
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps", "--progress-spinner", "off"]
    command += ["--format", "json", "--timeout", "5", "--requirement", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return Verdict(lines=())
    return judge(path.relative_to(ROOT).as_posix(), done.stdout, done.stderr)


def audit(paths: Sequence[Path]) -> Verdict:
    """Of all files, until one of them cannot be looked up."""
    lines: list[str] = []
    ends = time.monotonic() + TIME_S
    looked_up, failed = 0, False
    for path in paths:
        verdict = ask(path, timeout_s=max(0.0, ends - time.monotonic()))
        lines += verdict.lines
        looked_up, failed = looked_up + verdict.looked_up, failed or verdict.failed
        if not verdict.looked_up and not verdict.failed:
            where = path.relative_to(ROOT).as_posix()
            lines.append(f"audit: skipped from {where} on: no answer from where advisories are looked up")
            break
    else:
        lines.append(f"audit: {looked_up} pinned packages looked up")
    return Verdict(lines=tuple(lines), failed=failed, looked_up=looked_up)


if __name__ == "__main__":
    result = audit(files())
    print("\n".join(result.lines))
    sys.exit(result.failed)
