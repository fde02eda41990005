"""One process of the claims benchmark, so that its memory is its own: python -m tests.bench.claims {ours|bare} URL

`ours` is a whole tick on the real adapters. `bare` makes the same requests, built beforehand, by boto3 alone, in a pool
of as many threads: it reads no index, decides nothing, keeps no lock, checks no answer, and goes through a batch as
soon as there is one. Prints what it took as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.config import Config

from shared.aws.clients import POOL_CONNECTIONS
from shared.aws.ledger import request_of
from shared.aws.queue import _entry
from shared.aws.runtime import DEFAULT_THREADS
from shared.aws.wiring import Environment, Host, wire
from shared.domain import lifecycle
from shared.domain.job import Lane
from shared.domain.messages import Message, Outgoing, group_id
from shared.domain.settings import ClassSettings, Settings
from shared.domain.stats import window_of
from shared.domain.work_index import Nominee
from shared.pacer.tick import TickRequest, run_tick
from shared.steps.counting import waiting_partitions
from tests.bench.endpoint import CLASS, ROWS

TABLE: Final = "ledger"
SETTINGS: Final = Settings(
    classes={CLASS: ClassSettings(name=CLASS, kind="none", slots=2_000, max_inflight=ROWS, live_window_s=86_400)}
)


def host_of(endpoint: str) -> Host:
    urls = {lane: f"{endpoint}/000000000000/{lane}.fifo" for lane in Lane}
    environment = Environment(table=TABLE, bucket=TABLE, queues={CLASS: urls}, config_path=Path())
    return wire(environment, SETTINGS)


def ours(host: Host) -> Callable[[], int]:
    now_ms = host.ports.clock.now_ms()
    request = TickRequest(scheduled_ms=window_of(now_ms), source="bench", nonce="bench-1", deadline_ms=now_ms + 600_000)
    return lambda: run_tick(host.ports, SETTINGS.classes[CLASS], None, request).confirmed


def bare(host: Host, endpoint: str) -> Callable[[], int]:
    config = Config(max_pool_connections=POOL_CONNECTIONS)
    dynamodb, sqs = boto3.client("dynamodb", config=config), boto3.client("sqs", config=config)
    url = f"{endpoint}/000000000000/{Lane.LIVE}.fifo"
    nominees = waiting(host)
    updates = [update_of(nominee) for nominee in nominees]
    batches = [entries_of(nominees[start : start + 10]) for start in range(0, len(nominees), 10)]

    def send(entries: Sequence[dict[str, str]]) -> int:
        return len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"])

    def run() -> int:
        with ThreadPoolExecutor(DEFAULT_THREADS) as pool:
            list(pool.map(lambda update: dynamodb.update_item(**update), updates))
            return sum(pool.map(send, batches))

    return run


def waiting(host: Host) -> list[Nominee]:
    found: list[Nominee] = []
    for partition in waiting_partitions(SETTINGS.classes[CLASS], retried=False, priority=0):
        resume: str | None = None
        while True:
            page = host.ports.ledger.page(partition, low="0", high="~", limit=1_000, resume=resume)
            found += page.nominees
            resume = page.resume
            if resume is None:
                break
    return found


def update_of(nominee: Nominee) -> dict[str, Any]:
    move = lifecycle.claim(
        nominee, job_class=CLASS, lane=Lane.LIVE, run_id="run", nonce="bench-1", now_ms=1, hand_until_ms=1
    )
    wanted = {"ReturnValues": "ALL_NEW", "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    return {"TableName": TABLE, **wanted, **request_of(move)}


def entries_of(nominees: Sequence[Nominee]) -> list[dict[str, str]]:
    return [
        _entry(
            position,
            Outgoing(
                message=Message(job_id=each.job_id, job_class=CLASS, cursor="", epoch=each.epoch + 1, copy=0),
                group=group_id(each.match_id),
            ),
        )
        for position, each in enumerate(nominees)
    ]


def peak_mib() -> float:
    """This program's own peak: what `getrusage` says begins with the peak of whoever started it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmHWM: this benchmark measures memory on Linux only")


def main(side: str, endpoint: str) -> None:
    host = host_of(endpoint)
    host.ports.ledger.read_control(CLASS)  # the first client of a process takes as long as many calls
    run = ours(host) if side == "ours" else bare(host, endpoint)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    messages = run()
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "messages": messages, "peak_mib": peak_mib()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
