"""Rows: creating and reading them, their outputs, and the index that nominates them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from botocore.exceptions import ClientError

from shared.aws import keys
from shared.aws.clients import is_passing
from shared.aws.items import item_of_job, job_of_item
from shared.aws.keys import INDEX, PARTITION, POSITION, Item
from shared.aws.paging import all_pages, batch_get, one_page
from shared.aws.table import PAUSES_S, Table, Unmet
from shared.core.exchange import IndexPage
from shared.core.model import Created, IndexKey, Job, Nominee, Output, same_work
from shared.errors import LedgerUnavailable

ABSENT: Final = "attribute_not_exists(pk)"
"""no row ── INSERT ──▶ row: a second INSERT of the id, ours or another's, changes nothing."""

_BATCH: Final = 25
"""The most statements that BatchExecuteStatement takes."""

_DUPLICATE: Final = frozenset({"DuplicateItem", "ConditionalCheckFailed"})


class Rows:
    """The part of the `Ledger` that knows jobs and their places."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def create(self, jobs: Sequence[Job]) -> list[Created]:
        """Conditional INSERTs, 25 to a request (BatchWriteItem has no conditions); a single job is one PutItem."""
        results: dict[int, Created] = {}
        there: list[int] = []
        for batch in _batches(jobs):
            taken = self._put(jobs, batch) if len(batch) == 1 else self._insert(jobs, batch)
            there += taken
            results |= dict.fromkeys(set(batch) - set(taken), Created.CREATED)
        if there:
            rows = self._read_jobs({jobs[index].job_id for index in there})
            results |= {index: _recognised(jobs[index], rows) for index in there}
        return [results[index] for index in range(len(jobs))]

    def read_job(self, job_id: str) -> Job | None:
        item = self._table.get(keys.job(job_id))
        return None if item is None else job_of_item(item)

    def outputs(self, job_id: str) -> list[Output]:
        partition, prefix = keys.outputs(job_id)
        pages = all_pages(
            self._table,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :out)",
            ExpressionAttributeValues={":pk": partition, ":out": prefix},
            ConsistentRead=True,
        )
        return [Output(cursor=keys.cursor_of(item), body=item["body"]["S"]) for page in pages for item in page["Items"]]

    def count(self, partition: str, *, low: str, high: str) -> int:
        request = _between(partition, low, high)
        if request is None:
            return 0
        return sum(page["Count"] for page in all_pages(self._table, Select="COUNT", **request))

    def page(self, partition: str, *, low: str, high: str, limit: int, resume: str | None = None) -> IndexPage:
        request = _between(partition, low, high)
        if request is None:
            return IndexPage(nominees=(), resume=None)
        start = None if resume is None else _start_of(partition, resume)
        page, last = one_page(self._table, resume=start, Limit=limit, **request)
        return IndexPage(
            nominees=tuple(_nominee(item) for item in page["Items"]), resume=None if last is None else _resume_of(last)
        )

    def _put(self, jobs: Sequence[Job], batch: Sequence[int]) -> list[int]:
        answer = self._table.put(item_of_job(jobs[batch[0]]), condition=ABSENT)
        return list(batch) if isinstance(answer, Unmet) else []

    def _insert(self, jobs: Sequence[Job], batch: Sequence[int]) -> list[int]:
        """Insert the batch; returns the positions whose id exists already. What was throttled is sent again."""
        taken: list[int] = []
        left = list(batch)
        for pause_s in (*PAUSES_S, None):
            statements = [self._statement(item_of_job(jobs[index])) for index in left]
            answers = self._table.call("batch_execute_statement", Statements=statements)["Responses"]
            again: list[int] = []
            for index, answer in zip(left, answers, strict=True):
                code = answer.get("Error", {}).get("Code", "")
                if code in _DUPLICATE:
                    taken.append(index)
                elif is_passing(code):
                    again.append(index)
                elif code:
                    raise ClientError({"Error": answer["Error"]}, "BatchExecuteStatement")
            left = again
            if not left:
                return taken
            if pause_s is not None:
                self._table.pause(pause_s)
        raise LedgerUnavailable("throttled")

    def _statement(self, item: Item) -> dict[str, Any]:
        values = ", ".join(f"'{name}': ?" for name in item)
        return {
            "Statement": f'INSERT INTO "{self._table.name}" VALUE {{{values}}}',
            "Parameters": list(item.values()),
        }

    def _read_jobs(self, job_ids: set[str]) -> dict[str, Job]:
        items = batch_get(self._table, [keys.job(job_id) for job_id in sorted(job_ids)], consistent=True)
        return {job.job_id: job for job in map(job_of_item, items)}


def _batches(jobs: Sequence[Job]) -> Iterator[list[int]]:
    """Positions in batches; the same id twice goes into two, or DynamoDB would refuse both."""
    batch: list[int] = []
    ids: set[str] = set()
    for index, job in enumerate(jobs):
        if len(batch) == _BATCH or job.job_id in ids:
            yield batch
            batch, ids = [], set()
        batch.append(index)
        ids.add(job.job_id)
    if batch:
        yield batch


def _recognised(job: Job, rows: dict[str, Job]) -> Created:
    """What to say of an id that was there: our own write (its answer was lost), the same job again, or another one."""
    row = rows.get(job.job_id)
    if row is None:
        raise LedgerUnavailable("a row vanished")
    if job.nonce and row.nonce == job.nonce and row.created_ms == job.created_ms:
        return Created.CREATED
    return Created.EXISTING if same_work(row, job) else Created.DIFFERENT


# -- the index


def _between(partition: str, low: str, high: str) -> dict[str, Any] | None:
    """low <= position < high, or None where that is empty (DynamoDB refuses an empty range, and an empty key)."""
    first, last = low or " ", _just_below(high)
    if not last or first > last:
        return None
    return {
        "IndexName": INDEX,
        "KeyConditionExpression": f"{PARTITION} = :partition AND {POSITION} BETWEEN :low AND :high",
        "ExpressionAttributeValues": {":partition": {"S": partition}, ":low": {"S": first}, ":high": {"S": last}},
    }


def _just_below(high: str) -> str:
    """The end of what sorts below `high`: BETWEEN includes its ends, and a position is made of digits and #."""
    return f"{high[:-1]}{chr(ord(high[-1]) - 1)}~" if high else ""


def _nominee(item: Item) -> Nominee:
    return Nominee(
        job_id=keys.job_id_of(item),
        match_id=item["match_id"]["S"],
        epoch=int(item["epoch"]["N"]),
        key=IndexKey(partition=item[PARTITION]["S"], position=item[POSITION]["S"]),
    )


def _resume_of(last: Item) -> str:
    return json.dumps([keys.job_id_of(last), last[POSITION]["S"]])


def _start_of(partition: str, resume: str) -> Item:
    job_id, position = json.loads(resume)
    return keys.job(job_id) | {PARTITION: {"S": partition}, POSITION: {"S": position}}
