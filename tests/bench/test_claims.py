"""A whole tick that claims and sends 2,400 rows, against the bare calls that it cannot do without, on one endpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shared.aws.runtime import SystemClock
from tests.bench.conftest import ROOT, Results
from tests.bench.endpoint import LATENCY_S, ROWS

pytestmark = pytest.mark.bench

ROUNDS = 5
MOST = 1.3
MOST_MIB = 150


@contextmanager
def endpoint() -> Iterator[str]:
    """A fresh endpoint, in whose ledger 2,400 rows became due just now, each of a match of its own."""
    command = [sys.executable, "-m", "tests.bench.endpoint", str(SystemClock().now_ms())]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def measure(side: str) -> dict[str, float]:
    with endpoint() as url:
        environment = {
            "PATH": os.environ["PATH"],
            "AWS_ENDPOINT_URL": url,
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }
        command = [sys.executable, "-m", "tests.bench.claims", side, url]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["messages"] == ROWS, f"{side} sent {found['messages']} of {ROWS}"
    return found


def test_claiming_and_sending_costs_little_more_than_the_bare_calls(results: Results) -> None:
    rounds: dict[str, list[dict[str, float]]] = {"bare": [], "ours": []}
    for _ in range(ROUNDS):  # in turns, so that a busy moment meets both
        for side, measured in rounds.items():
            measured.append(measure(side))
    best = {  # other load only ever adds
        (side, figure): min(each[figure] for each in measured)
        for side, measured in rounds.items()
        for figure in ("wall_s", "cpu_s")
    }
    wall, cpu = (best["ours", figure] / best["bare", figure] for figure in ("wall_s", "cpu_s"))
    peak_mib = max(each["peak_mib"] for each in rounds["ours"])
    took = {side: f"{best[side, 'wall_s']:.2f} s, {best[side, 'cpu_s']:.2f} s CPU" for side in rounds}
    calls = f"bare boto3: {ROWS:,} UpdateItem + {ROWS // 10} SendMessageBatch of {LATENCY_S * 1000:.0f} ms, 32 threads"
    results.add("claims", calls, took["bare"])
    results.add("claims", f"a tick that claims and sends {ROWS:,} rows", f"{took['ours']}: {wall:.2f} x", f"{MOST} x")
    results.add("claims", "the same in CPU time", f"{cpu:.2f} x")
    results.add("claims", "its process's peak memory", f"{peak_mib:.0f} MiB", f"{MOST_MIB} MiB")
    assert wall <= MOST
    assert peak_mib <= MOST_MIB
