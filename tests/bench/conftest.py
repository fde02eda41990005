"""Benchmarks measure and assert; what they measured becomes the table in docs/performance.md.

The table is written when all of them ran and all bounds held, so that it is never a mixture of two runs.
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
PARTS = ("imports", "claims", "tick", "assets")


@dataclass(slots=True)
class Results:
    """Rows of the table, by the benchmark that measured them."""

    rows: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)

    def add(self, part: str, what: str, measured: str, bound: str = "") -> None:
        self.rows.setdefault(part, []).append((what, measured, bound))

    def table(self) -> str:
        ran_on = f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}"
        lines = [f"`make bench` on {ran_on}:", "", "| what | measured | bound |", "|---|---|---|"]
        for part in PARTS:
            lines += [f"| {what} | {measured} | {bound} |" for what, measured, bound in self.rows.get(part, [])]
        return "\n".join(lines)


_RESULTS = pytest.StashKey[Results]()


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest) -> Results:
    return request.config.stash.setdefault(_RESULTS, Results())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    found = config.stash.get(_RESULTS, None)
    if found is None:
        return
    terminalreporter.write_line(f"\n{found.table()}\n")
    if exitstatus == 0 and set(found.rows) == set(PARTS):
        text = DOCUMENT.read_text(encoding="utf-8")
        measured = f"{BEGIN}\n{found.table()}\n{END}"
        DOCUMENT.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: measured, text, flags=re.DOTALL), encoding="utf-8")
