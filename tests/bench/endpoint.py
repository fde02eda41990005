"""A stand-in for DynamoDB and SQS that costs its callers little but its latency: python -m tests.bench.endpoint

It knows what one tick asks for and believes every condition. The emulator would be the wrong yardstick here: its index
query reads the whole table, so that it would measure its own reads. The first line of output is its address.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from typing import Any, Final

from shared.aws.items import item_of_job
from shared.aws.keys import PARTITION, POSITION, Item
from shared.domain.job import Job

ROWS: Final = 2_400
CLASS: Final = "bench"
LATENCY_S: Final = 0.005
"""What DynamoDB and SQS take for one small request, about."""

Request = dict[str, Any]


class Store:
    """Items by key; the index in the order of its positions, as it was in the beginning: no caller reads it twice."""

    def __init__(self, now_ms: int) -> None:
        self.items: dict[str, Item] = {}
        self.index: dict[str, list[Item]] = {}
        for number in range(ROWS):
            self._add(item_of_job(a_job(number, now_ms)))

    def _add(self, item: Item) -> None:
        self.items[_key(item)] = item
        seen = {name: item[name] for name in ("pk", "sk", "match_id", "epoch", PARTITION, POSITION)}
        partition = self.index.setdefault(item[PARTITION]["S"], [])
        partition.append(seen)
        partition.sort(key=lambda each: str(each[POSITION]["S"]))

    def get_item(self, request: Request) -> Request:
        item = self.items.get(_key(request["Key"]))
        return {} if item is None else {"Item": item}

    def put_item(self, request: Request) -> Request:
        self.items[_key(request["Item"])] = request["Item"]
        return {}

    def update_item(self, request: Request) -> Request:
        item = self.items.setdefault(_key(request["Key"]), dict(request["Key"]))
        for name, value in request["ExpressionAttributeValues"].items():
            if name.startswith(":new_"):
                item[name.removeprefix(":new_")] = value
        return {"Attributes": item}

    def transact_write_items(self, request: Request) -> Request:
        for action in request["TransactItems"]:
            self.update_item(action["Update"])
        return {}

    def batch_get_item(self, request: Request) -> Request:
        return {"Responses": {}, "UnprocessedKeys": {}}

    def query(self, request: Request) -> Request:
        values = request["ExpressionAttributeValues"]
        low, high = values[":low"]["S"], values[":high"]["S"]
        rows = self.index.get(values[":partition"]["S"], [])
        rows = [row for row in rows if low <= row[POSITION]["S"] <= high]
        if request.get("Select") == "COUNT":
            return {"Count": len(rows), "ScannedCount": len(rows)}
        if "ExclusiveStartKey" in request:
            rows = [row for row in rows if row[POSITION]["S"] > request["ExclusiveStartKey"][POSITION]["S"]]
        page = rows[: request.get("Limit", len(rows))]
        more = {"LastEvaluatedKey": page[-1]} if len(page) < len(rows) else {}
        return {"Items": page, "Count": len(page), "ScannedCount": len(page), **more}

    def send_message_batch(self, request: Request) -> Request:
        return {"Successful": [{"Id": entry["Id"], "MessageId": entry["Id"]} for entry in request["Entries"]]}


def a_job(number: int, now_ms: int) -> Job:
    return Job(
        job_id=f"job-{number:04d}",
        job_class=CLASS,
        match_id=f"Köln vs. 1. FC – Runde {number}",
        payload=json.dumps({"replay_key": f"replays/{number:04d}.pgn"}),
        due_ms=now_ms - number,
        eligible_ms=now_ms - number,
        created_ms=now_ms,
    )


def _key(item: Item) -> str:
    return f"{item['pk']['S']}|{item['sk']['S']}"


async def serve(store: Store) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode("latin-1"):
                body = await reader.readexactly(int(_header(head, "content-length")))
                await asyncio.sleep(LATENCY_S)
                writer.write(_response(_operation(store, head)(json.loads(body))))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def _operation(store: Store, head: str) -> Callable[[Request], Request]:
    camel = _header(head, "x-amz-target").split(".")[-1]
    operation: Callable[[Request], Request] = getattr(store, re.sub(r"(?<!^)(?=[A-Z])", "_", camel).lower())
    return operation


def _header(head: str, name: str) -> str:
    found = re.search(rf"^{name}: *(.*)\r$", head, re.IGNORECASE | re.MULTILINE)
    assert found is not None, f"a request without {name}"
    return found[1]


def _response(answer: Request) -> bytes:
    body = json.dumps(answer).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


if __name__ == "__main__":
    asyncio.run(serve(Store(int(sys.argv[1]))))
