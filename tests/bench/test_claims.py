"""A whole tick that claims and sends 2,400 rows, against the bare calls that it cannot do without, on one endpoint."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ops.local.emulator import DEFAULT_VENV, Emulator
from shared.aws.clients import Clients
from shared.aws.ledger import DynamoLedger
from shared.aws.runtime import SystemClock
from shared.aws.table import Table
from shared.core.model import Job, Lane
from tests.bench.claims import CLASS, ROWS
from tests.bench.conftest import ROOT, Results
from tests.contract.worlds import create_table

pytestmark = pytest.mark.bench

ROUNDS = 3
MOST = 1.3
MOST_MIB = 150


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """SLUICE_EMULATOR names another environment than `make setup` builds."""
    with Emulator(Path(os.environ.get("SLUICE_EMULATOR", DEFAULT_VENV))) as running:
        yield running


def fill(emulator: Emulator, name: str) -> None:
    """A ledger with 2,400 rows that became due just now, each of a match of its own, and the queues of its class."""
    clients = Clients(emulator.client)
    create_table(clients.dynamodb, name)
    for lane in Lane:
        attributes = {
            "FifoQueue": "true",
            "DeduplicationScope": "messageGroup",
            "FifoThroughputLimit": "perMessageGroupId",
        }
        clients.sqs.create_queue(QueueName=f"{name}-{lane}.fifo", Attributes=attributes)
    now_ms = SystemClock().now_ms()
    rows = [
        Job(
            job_id=f"job-{n:04d}",
            job_class=CLASS,
            match_id=f"Köln vs. 1. FC – Runde {n}",
            payload=json.dumps({"replay_key": f"replays/{n:04d}.pgn"}),
            due_ms=now_ms - n,
            eligible_ms=now_ms - n,
            created_ms=now_ms,
        )
        for n in range(ROWS)
    ]
    ledger = DynamoLedger(Table(clients, name))
    for start in range(0, ROWS, 25):
        ledger.create(rows[start : start + 25])


def measure(emulator: Emulator, side: str, number: int) -> dict[str, float]:
    name = f"{side}-{number}"
    fill(emulator, name)
    environment = {"PATH": os.environ["PATH"], **emulator.environment()}
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.claims", side, name],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["messages"] == ROWS, f"{side} sent {found['messages']} of {ROWS}"
    return found


def test_claiming_and_sending_costs_little_more_than_the_bare_calls(emulator: Emulator, results: Results) -> None:
    rounds: dict[str, list[dict[str, float]]] = {"bare": [], "ours": []}
    for number in range(ROUNDS):
        for side, measured in rounds.items():
            measured.append(measure(emulator, side, number))

    def median(side: str, figure: str) -> float:
        return statistics.median(each[figure] for each in rounds[side])

    wall, cpu = (median("ours", figure) / median("bare", figure) for figure in ("wall_s", "cpu_s"))
    peak_mib = max(each["peak_mib"] for each in rounds["ours"])
    calls = f"{ROWS:,} UpdateItem + {ROWS // 10} SendMessageBatch"
    results.add(
        "claims", f"bare boto3: {calls}", f"{median('bare', 'wall_s'):.1f} s, {median('bare', 'cpu_s'):.1f} s CPU"
    )
    ours = f"{median('ours', 'wall_s'):.1f} s, {median('ours', 'cpu_s'):.1f} s CPU"
    results.add("claims", f"a tick that claims and sends {ROWS:,} rows", f"{ours}; {wall:.2f} x", f"{MOST} x")
    results.add("claims", "the same in CPU time of the client", f"{cpu:.2f} x")
    results.add(
        "claims",
        "its peak memory (the bare calls')",
        f"{peak_mib:.0f} MiB ({max(each['peak_mib'] for each in rounds['bare']):.0f})",
        f"{MOST_MIB} MiB",
    )
    assert wall <= MOST
    assert peak_mib <= MOST_MIB
