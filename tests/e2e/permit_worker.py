"""A process that reserves one permit after the other, as a worker does: a program for test_permits.py.

Prints "ready", reads from its input when to begin and when to end (milliseconds), and prints when each of its calls may
start, with how many requests that took.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from botocore.session import get_session

from ops.local.emulator import CREDENTIAL, REGION
from shared.aws.clients import Clients
from shared.aws.limiter import DynamoLimiter
from shared.aws.table import Table
from shared.domain.settings import UpstreamSettings
from shared.domain.upstream import NoRoom
from shared.errors import LedgerUnavailable


class CountingTable(Table):
    requests = 0

    def call(self, operation: str, *, once: bool = False, **request: Any) -> Any:
        self.requests += 1
        return super().call(operation, once=once, **request)


def main(endpoint: str, table_name: str, limit_per_s: str, burst_calls: str, calls_per_shard: str) -> None:
    session = get_session()
    account = {"region_name": REGION, "endpoint_url": endpoint}
    account |= {"aws_access_key_id": CREDENTIAL, "aws_secret_access_key": CREDENTIAL}
    clients = Clients(lambda service, config: session.create_client(service, config=config, **account))
    table = CountingTable(clients, table_name)
    limiter = DynamoLimiter(table, calls_per_shard=float(calls_per_shard))
    upstream = UpstreamSettings(
        name="api", endpoint="http://api", limit_per_s=float(limit_per_s), burst_calls=int(burst_calls)
    )
    clients.dynamodb_once.describe_table(TableName=table_name)  # the first call of a client is slow
    print("ready", flush=True)
    begin_ms, end_ms = map(int, sys.stdin.readline().split())
    sleep_until(begin_ms)
    starts_ms = list(permits(limiter, upstream, end_ms))
    print(json.dumps({"starts_ms": starts_ms, "requests": table.requests}))


def permits(limiter: DynamoLimiter, upstream: UpstreamSettings, end_ms: int) -> Iterator[float]:
    while (now_ms := int(time.time() * 1000)) < end_ms:
        try:
            answer = limiter.reserve(upstream, calls=1, now_ms=now_ms, latest_ms=end_ms)
        except LedgerUnavailable:
            continue  # its permit is lost, if there was one
        if isinstance(answer, NoRoom):
            return
        yield answer.start_ms
        sleep_until(answer.start_ms)


def sleep_until(then_ms: float) -> None:
    time.sleep(max(0.0, then_ms / 1000 - time.time()))


if __name__ == "__main__":
    main(*sys.argv[1:])
