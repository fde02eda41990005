"""What our own code adds to a cold start: the import of each handler against that of the libraries it stands on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.bench.conftest import ROOT, Results

pytestmark = pytest.mark.bench

ROUNDS = 15
MOST = 1.25
"""Of boto3 and Powertools alone. The larger part of what is added is the value library, msgspec, and the classes made
with it."""

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
    """The shortest time of many counts: an import always computes the same, and what is above that is the neighbours'
    (caches, hyper-threads), whose noise on a busy machine is larger than what is measured here."""
    statements = {"boto3 + Powertools": LIBRARIES} | {name: f"import functions.{name}.handler" for name in HANDLERS}
    times_ms: dict[str, list[float]] = {name: [] for name in statements}
    for statement in statements.values():
        import_ms(statement)  # compiles what has changed
    for _ in range(ROUNDS):  # in turns, so that a busy moment meets all of them
        for name, statement in statements.items():
            times_ms[name].append(import_ms(statement))
    shortest_ms = {name: min(times) for name, times in times_ms.items()}
    base_ms = shortest_ms.pop("boto3 + Powertools")
    results.add("imports", "import of boto3 + Powertools alone", f"{base_ms:.0f} ms CPU")
    for name, handler_ms in shortest_ms.items():
        measured = f"{handler_ms:.0f} ms CPU, {handler_ms / base_ms:.2f} x"
        results.add("imports", f"import of the {name} handler", measured, f"{MOST} x")
    assert {name: ms for name, ms in shortest_ms.items() if ms > MOST * base_ms} == {}
