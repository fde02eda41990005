"""What our own code adds to a cold start: the import of each handler against that of the libraries it stands on."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

import pytest

from tests.bench.conftest import ROOT, Results

pytestmark = pytest.mark.bench

ROUNDS = 15
MOST = 1.15
LIBRARIES = "import boto3\nfrom aws_lambda_powertools import Logger, Metrics"
HANDLERS = sorted(path.parent.name for path in (ROOT / "functions").glob("*/handler.py"))


def import_ms(statement: str) -> float:
    """CPU time in a process of its own: importing does nothing but compute, and the cores are shared with others."""
    script = f"import time\nbegun = time.process_time()\n{statement}\nprint(time.process_time() - begun)"
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout) * 1000


def test_importing_a_handler_costs_little_more_than_the_libraries_alone(results: Results) -> None:
    statements = {"boto3 + Powertools": LIBRARIES} | {name: f"import functions.{name}.handler" for name in HANDLERS}
    times_ms: dict[str, list[float]] = {name: [] for name in statements}
    for each in statements.values():
        import_ms(each)  # compiles what has changed
    for _ in range(ROUNDS):  # in turns, so that a busy moment meets all of them
        for name, statement in statements.items():
            times_ms[name].append(import_ms(statement))
    medians = {name: statistics.median(times) for name, times in times_ms.items()}
    base_ms = medians.pop("boto3 + Powertools")
    results.add("imports", "import of boto3 + Powertools alone", f"{base_ms:.0f} ms CPU")
    for name, median_ms in medians.items():
        measured = f"{median_ms:.0f} ms CPU, {median_ms / base_ms:.2f} x"
        results.add("imports", f"import of the {name} handler", measured, f"{MOST} x")
    assert {name: ms for name, ms in medians.items() if ms > MOST * base_ms} == {}
