"""Every read that comes in pages goes through here: a page forgotten is a count that lies (TRAPS 20)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from shared.aws.clients import answered
from shared.aws.keys import Item
from shared.aws.table import PAUSES_S, Table
from shared.errors import LedgerUnavailable, StorageUnavailable

_BATCH_GET: Final = 100


def one_page(table: Table, *, resume: Item | None = None, **request: Any) -> tuple[dict[str, Any], Item | None]:
    """One page of a query, and where the next one starts, or None after the last."""
    start: dict[str, Any] = {} if resume is None else {"ExclusiveStartKey": resume}
    page = table.call("query", TableName=table.name, **request, **start)
    return page, page.get("LastEvaluatedKey") or None


def all_pages(table: Table, **request: Any) -> Iterator[dict[str, Any]]:
    resume: Item | None = None
    while True:
        page, resume = one_page(table, resume=resume, **request)
        yield page
        if resume is None:
            return


def table_page(table: Table, *, resume: Item | None = None, **request: Any) -> tuple[dict[str, Any], Item | None]:
    """One page of the whole ledger, and where the next one starts, or None after the last. For operators only: nothing
    that ships to Lambda reads what it has no key of."""
    start: dict[str, Any] = {} if resume is None else {"ExclusiveStartKey": resume}
    page = table.call("scan", TableName=table.name, **request, **start)
    return page, page.get("LastEvaluatedKey") or None


def scan_page(dynamodb: Any, *, resume: Item | None = None, **request: Any) -> tuple[list[Item], Item | None]:
    """One page of a table that is not the ledger, and where the next one starts, or None after the last.

    For a kind that sweeps a table: its cursor is `resume`, and the job's chunks are the loop that reads every page.
    """
    start: dict[str, Any] = {} if resume is None else {"ExclusiveStartKey": resume}
    with answered(StorageUnavailable):
        page = dynamodb.scan(**request, **start)
    return page.get("Items", []), page.get("LastEvaluatedKey") or None


def query_page(dynamodb: Any, *, resume: Item | None = None, **request: Any) -> tuple[list[Item], Item | None]:
    """One page of a query of a table that is not the ledger, for a kind whose cursor is `resume`."""
    start: dict[str, Any] = {} if resume is None else {"ExclusiveStartKey": resume}
    with answered(StorageUnavailable):
        page = dynamodb.query(**request, **start)
    return page.get("Items", []), page.get("LastEvaluatedKey") or None


def batch_get(table: Table, wanted: Sequence[Item], *, consistent: bool) -> list[Item]:
    """The items that exist among `wanted` (distinct keys), in no order."""
    found: list[Item] = []
    for start in range(0, len(wanted), _BATCH_GET):
        found += _one_batch(table, list(wanted[start : start + _BATCH_GET]), consistent=consistent)
    return found


def _one_batch(table: Table, wanted: list[Item], *, consistent: bool) -> list[Item]:
    """A batch may be answered in part, at the size bound or when throttled: ask again for the rest."""
    found: list[Item] = []
    failures = iter(PAUSES_S)
    while wanted:
        asked = {table.name: {"Keys": wanted, "ConsistentRead": consistent}}
        answer = table.call("batch_get_item", RequestItems=asked)
        got = answer.get("Responses", {}).get(table.name, [])
        found += got
        wanted = answer.get("UnprocessedKeys", {}).get(table.name, {}).get("Keys", [])
        if wanted and not got:  # nothing at all came back: a throttle, not the 16 MB bound
            pause_s = next(failures, None)
            if pause_s is None:
                raise LedgerUnavailable("unprocessed")
            table.pause(pause_s)
    return found
