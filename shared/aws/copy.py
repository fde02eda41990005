"""The ledger item by item, for whoever copies it: every record once, and what an import puts where nothing is.

For operators; no function calls it. Reading is a scan, page after page, consistent, so that no item is older than the
page it is on. It needs dynamodb:Scan, which none of the deployment's own roles has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from shared.aws import keys
from shared.aws.items import encode, job_of_item, load, stored
from shared.aws.keys import Item
from shared.aws.ledger import ABSENT, item_of_run
from shared.aws.table import Table, Written, batch_get, table_page
from shared.domain.control import Control, Run
from shared.domain.job import Job, Output
from shared.domain.ordering import Match
from shared.domain.records import Record, RecordPage, StoredOutput, StoredRate
from shared.domain.upstream import Learned

_PAGE_ITEMS: Final = 1000
"""Below the 1 MB that bounds a page of rows without payloads: what a progress bar moves by, and ctrl-C waits for."""


class DynamoCopy:
    """`ops.transfer.copying.LedgerCopy` on the one table."""

    def __init__(self, table: Table, *, page_items: int = _PAGE_ITEMS) -> None:
        self._table = table
        self._page_items = page_items
        self.name = table.name

    def page(self, resume: str | None) -> RecordPage:
        start = None if resume is None else json.loads(resume)
        page, last = table_page(self._table, resume=start, Limit=self._page_items, ConsistentRead=True)
        records = tuple(record for record in map(record_of, page["Items"]) if record is not None)
        after = None if last is None else json.dumps(last)
        return RecordPage(records=records, resume=after, left_out=len(page["Items"]) - len(records))

    def read_jobs(self, job_ids: list[str]) -> dict[str, Job]:
        wanted = [keys.job(job_id) for job_id in sorted(set(job_ids))]
        return {job.job_id: job for job in map(job_of_item, batch_get(self._table, wanted, consistent=True))}

    def put_output(self, stored: StoredOutput) -> bool:
        key = keys.output(stored.job_id, stored.output.cursor)
        return self._put(key | {"body": encode(stored.output.body)})

    def put_order(self, match: Match) -> bool:
        order = stored({"head_seq": match.head_seq, "tail_seq": match.tail_seq})
        return self._put(keys.match(match.job_class, match.match_id) | order)

    def put_place(self, job: Job) -> bool:
        key = keys.place_in_match(job.job_class, job.match_id, job.seq)
        return self._put(key | {"job_id": encode(job.job_id)})

    def put_run(self, run: Run) -> bool:
        return self._put(item_of_run(run, since_ms=run.key.minute_ms))

    def adopt(self, job_class: str, values: Mapping[str, object]) -> None:
        """One update; `if_not_exists` leaves what a tick or an operator of this deployment has written."""
        adopted = stored(values)
        sets = ", ".join(f"#{name} = if_not_exists(#{name}, :{name})" for name in adopted)
        request: dict[str, Any] = {
            "Key": keys.control(job_class),
            "UpdateExpression": f"{f'SET {sets} ' if sets else ''}ADD #version :one",
            "ExpressionAttributeNames": {f"#{name}": name for name in (*adopted, "version")},
            "ExpressionAttributeValues": {f":{name}": value for name, value in adopted.items()} | {":one": {"N": "1"}},
        }
        self._table.update(request)

    def _put(self, item: Item) -> bool:
        return isinstance(self._table.put(item, condition=ABSENT), Written)


def record_of(item: Item) -> Record | None:
    """The item as a record; None where an export leaves it out."""
    kind, _, name = str(item["pk"]["S"]).partition("#")
    place = str(item["sk"]["S"])
    if kind == "JOB" and place == "JOB":
        return job_of_item(item)
    if kind == "JOB":
        output = Output(cursor=keys.cursor_of(item), body=str(item["body"]["S"]))
        return StoredOutput(job_id=keys.job_id_of(item), output=output)
    if kind == "RUN":
        return load(Run, item)
    if kind == "CLASS":
        return load(Control, item, job_class=name)
    if kind == "UPSTREAM" and place == "RATE":
        return StoredRate(upstream=name, learned=load(Learned, item))
    return None
