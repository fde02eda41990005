"""The one table as four verbs: get, update, put, transact. Conditions that fail are answers here, not exceptions.

A conflict with another's transaction wrote nothing and passes in milliseconds, so it is tried again here, briefly.

Every read that comes in pages goes through here too, also of a table of the game's: a page forgotten is a count that
lies (fact F19).
"""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from botocore.exceptions import ClientError
from msgspec import Struct

from shared.aws.clients import Clients, answered, cancellation_codes, code_of, is_conflict
from shared.aws.items import encode, present
from shared.aws.keys import Item
from shared.errors import LedgerUnavailable, StorageUnavailable

PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2)
"""Between attempts at something that passes by itself; with jitter, or two that collided would collide again."""

CONDITION_FAILED: Final = "ConditionalCheckFailed"
"""What a cancelled transaction says of an item whose condition did not hold."""


class Written(Struct, frozen=True, kw_only=True):
    """The condition held. `item` is what the request asked to see of the row."""

    item: Item


class Unmet(Struct, frozen=True, kw_only=True):
    """The condition did not hold for the row as it is in `old`; empty if there is none."""

    old: Item


Answer: TypeAlias = Written | Unmet


def update_of(
    key: Item,
    *,
    values: Mapping[str, object] | None = None,
    add: Mapping[str, int] | None = None,
    condition: str = "",
    was: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """An update of one item: `values` are set (removed where None), `add` added.

    `condition` may speak of every attribute as #name, of the values in `was` as :was_name, and of the new ones as
    :new_name. All names are placeholders, because `state`, `copy` and others are reserved words.
    """
    attributes, added = present(values or {}), add or {}
    puts = {name: attribute for name, attribute in attributes.items() if attribute is not None}
    clauses = {
        "SET": [f"#{name} = :new_{name}" for name in puts],
        "REMOVE": [f"#{name}" for name in attributes if name not in puts],
        "ADD": [f"#{name} :add_{name}" for name in added],
    }
    expression = " ".join(f"{verb} {', '.join(parts)}" for verb, parts in clauses.items() if parts)
    return {
        "Key": key,
        "UpdateExpression": expression,
        "ExpressionAttributeNames": {f"#{name}": name for name in re.findall(r"#(\w+)", f"{expression} {condition}")},
        "ExpressionAttributeValues": {f":new_{name}": attribute for name, attribute in puts.items()}
        | {f":add_{name}": encode(amount) for name, amount in added.items()}
        | {f":was_{name}": encode(value) for name, value in (was or {}).items()},
        **({"ConditionExpression": condition} if condition else {}),
    }


class Conflict(LedgerUnavailable):
    """Others' transactions held an item at every attempt: nothing was written."""


class Table:
    """The table's name, its clients, and the retry of what passes by itself."""

    def __init__(self, clients: Clients, name: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._clients = clients
        self._sleep = sleep
        self.name = name

    def get(self, key: Item) -> Item | None:
        """A consistent read."""
        answer = self.call("get_item", TableName=self.name, Key=key, ConsistentRead=True)
        item: Item | None = answer.get("Item")
        return item

    def update(self, request: Mapping[str, Any], *, returns: str = "NONE", once: bool = False) -> Answer:
        return self._conditional("update_item", request, returns=returns, once=once)

    def put(self, item: Item, *, condition: str) -> Answer:
        return self._conditional("put_item", {"Item": item, "ConditionExpression": condition})

    def transact(self, *actions: tuple[str, Mapping[str, Any]]) -> list[Answer] | None:
        """All actions or none: None when they were done, else one answer per action, in their order.

        The token makes the SDK's own retries one transaction; a further call of ours is another one, because the
        same words may be meant twice (a cursor that goes in a circle).
        """
        named = {"TableName": self.name, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        items = [{verb: {**request, **named}} for verb, request in actions]
        try:
            self.call("transact_write_items", TransactItems=items, ClientRequestToken=str(uuid.uuid4()))
        except ClientError as error:
            if code_of(error) != "TransactionCanceledException":
                raise
            return _judged(error)
        return None

    def call(self, operation: str, *, once: bool = False, **request: Any) -> Any:
        """One request. Conflicts are tried again, unless it must be made at most `once`."""
        client = self._clients.dynamodb_once if once else self._clients.dynamodb
        for pause_s in (*(() if once else PAUSES_S), None):
            try:
                with answered(LedgerUnavailable):
                    return getattr(client, operation)(**request)
            except ClientError as error:
                if not is_conflict(error):
                    raise
                if pause_s is None:
                    raise Conflict("conflict") from error
                self.pause(pause_s)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def pause(self, seconds: float) -> None:
        self._sleep(seconds * random.uniform(0.5, 1.0))

    def _conditional(
        self, operation: str, request: Mapping[str, Any], *, returns: str = "NONE", once: bool = False
    ) -> Answer:
        try:
            answer = self.call(
                operation,
                once=once,
                TableName=self.name,
                ReturnValues=returns,
                **request,
                **({"ReturnValuesOnConditionCheckFailure": "ALL_OLD"} if "ConditionExpression" in request else {}),
            )
        except ClientError as error:
            if code_of(error) != "ConditionalCheckFailedException":
                raise
            return Unmet(old=error.response.get("Item") or {})
        return Written(item=answer.get("Attributes", {}))


def _judged(error: ClientError) -> list[Answer]:
    """Each item's part in a cancelled transaction. What is not a failed condition is a bug of ours, and raised."""
    codes = cancellation_codes(error)
    if CONDITION_FAILED not in codes or "ValidationError" in codes:
        raise error
    reasons = error.response["CancellationReasons"]
    return [
        Unmet(old=reason.get("Item") or {}) if code == CONDITION_FAILED else Written(item={})
        for code, reason in zip(codes, reasons, strict=True)
    ]


_BATCH_GET: Final = 100
"""The most keys that BatchGetItem takes."""


def one_page(
    table: Table, *, operation: str = "query", resume: Item | None = None, **request: Any
) -> tuple[dict[str, Any], Item | None]:
    """One page of a query, and where the next one starts, or None after the last."""
    page = table.call(operation, TableName=table.name, **request, **_start_at(resume))
    return page, page.get("LastEvaluatedKey") or None


def all_pages(table: Table, **request: Any) -> Iterator[dict[str, Any]]:
    resume: Item | None = None
    while True:
        page, resume = one_page(table, resume=resume, **request)
        yield page
        if resume is None:
            return


def table_page(table: Table, *, resume: Item | None = None, **request: Any) -> tuple[dict[str, Any], Item | None]:
    """One page of the whole ledger. For operators only: nothing that ships to Lambda reads what it has no key of."""
    return one_page(table, operation="scan", resume=resume, **request)


def batch_get(table: Table, wanted: Sequence[Item], *, consistent: bool) -> list[Item]:
    """The items that exist among `wanted` (distinct keys), in no order."""
    items: list[Item] = []
    for start in range(0, len(wanted), _BATCH_GET):
        items += _one_batch(table, list(wanted[start : start + _BATCH_GET]), consistent=consistent)
    return items


def _one_batch(table: Table, wanted: list[Item], *, consistent: bool) -> list[Item]:
    """A batch may be answered in part, at the size bound or when throttled: ask again for the rest."""
    items: list[Item] = []
    failures = iter(PAUSES_S)
    while wanted:
        request = {table.name: {"Keys": wanted, "ConsistentRead": consistent}}
        answer = table.call("batch_get_item", RequestItems=request)
        part = answer.get("Responses", {}).get(table.name, [])
        items += part
        wanted = answer.get("UnprocessedKeys", {}).get(table.name, {}).get("Keys", [])
        if wanted and not part:  # nothing at all came back: a throttle, not the 16 MB bound
            pause_s = next(failures, None)
            if pause_s is None:
                raise LedgerUnavailable("unprocessed")
            table.pause(pause_s)
    return items


# -- tables of the game's, for the kinds and producers that read them


def scan_page(dynamodb: Any, *, resume: Item | None = None, **request: Any) -> tuple[list[Item], Item | None]:
    """One page of a table that is not the ledger, and where the next one starts, or None after the last.

    For a kind that sweeps a table: its cursor is `resume`, and the job's chunks are the loop that reads every page.
    """
    return _foreign_page(dynamodb.scan, resume, request)


def query_page(dynamodb: Any, *, resume: Item | None = None, **request: Any) -> tuple[list[Item], Item | None]:
    """One page of a query of a table that is not the ledger, for a kind whose cursor is `resume`."""
    return _foreign_page(dynamodb.query, resume, request)


def _foreign_page(
    read: Callable[..., Any], resume: Item | None, request: Mapping[str, Any]
) -> tuple[list[Item], Item | None]:
    with answered(StorageUnavailable):
        page = read(**request, **_start_at(resume))
    return page.get("Items", []), page.get("LastEvaluatedKey") or None


def guild_ids(clients: Clients, table: str) -> Iterator[str]:
    """The key `guild_id` of every item, a page at a time. Raises `StorageUnavailable`. Needs dynamodb:Scan on it."""
    resume: Item | None = None
    while True:
        items, resume = scan_page(
            clients.dynamodb, resume=resume, TableName=table, ProjectionExpression="guild_id", ConsistentRead=True
        )
        yield from (item["guild_id"]["S"] for item in items)
        if resume is None:
            return


def _start_at(resume: Item | None) -> dict[str, Any]:
    return {} if resume is None else {"ExclusiveStartKey": resume}
