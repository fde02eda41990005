"""50 processes share one upstream's permits on the emulator: never more than is allowed, and hardly less (I7)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence

import pytest

from ops.local.emulator import ROOT, Emulator
from tests.contract.worlds import AwsWorld, aws_client
from tests.worker.permit_items import most_in

pytestmark = pytest.mark.e2e

PROCESSES, SECONDS, LIMIT_PER_S = 50, 20, 20
"""All 50 together are 2.5 s ahead with their permits, so that a busy machine leaves no slot unasked for."""


@pytest.mark.parametrize(
    ("burst_calls", "calls_per_shard", "items"),
    [
        (1, 500.0, 1),  # as a limit of 20/s is deployed
        (4, 10.0, 2),
    ],
)
def test_50_processes_get_the_limit_and_in_no_second_more(
    emulator: Emulator, burst_calls: int, calls_per_shard: float, items: int
) -> None:
    aws = AwsWorld(aws_client(emulator.endpoint))
    command = [sys.executable, "-m", "tests.e2e.permit_worker", emulator.endpoint, aws.name]
    command += [str(LIMIT_PER_S), str(burst_calls), str(calls_per_shard)]
    workers = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    try:
        starts_ms, requests = granted(workers)
    finally:
        for worker in workers:
            worker.kill()
    allowed = LIMIT_PER_S * SECONDS
    most = most_in([round(ms * 1000) for ms in starts_ms], 1_000_000)
    print(f"{items} items: {len(starts_ms)} of {allowed} granted, {most} in a second, {requests} requests")

    assert len(aws.clients.dynamodb.scan(TableName=aws.name)["Items"]) == items
    assert most <= LIMIT_PER_S + burst_calls
    assert len(starts_ms) >= 0.95 * allowed


def granted(workers: Sequence[subprocess.Popen[str]]) -> tuple[list[float], int]:
    """When each call of all of them may start, within the 20 s, and how many requests that took."""
    pipes = [(worker.stdin, worker.stdout) for worker in workers if worker.stdin and worker.stdout]
    assert [out.readline() for _, out in pipes] == ["ready\n"] * PROCESSES
    begin_ms = int(time.time() * 1000) + 1_000
    for start, _ in pipes:
        start.write(f"{begin_ms} {begin_ms + SECONDS * 1000}\n")
        start.flush()
    told = [json.loads(worker.communicate(timeout=SECONDS + 60)[0]) for worker in workers]
    starts_ms = [ms for each in told for ms in each["starts_ms"]]
    assert all(begin_ms <= ms <= begin_ms + SECONDS * 1000 for ms in starts_ms)
    return starts_ms, sum(each["requests"] for each in told)
