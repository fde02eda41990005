"""The ledger in memory item by item: the twin of `shared.aws.copy`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from shared.domain.control import Control, Run
from shared.domain.job import Job
from shared.domain.ordering import Match
from shared.domain.records import Record, RecordPage, StoredOutput, StoredRate
from shared.memory.ledger import MemoryLedger

_PAGE_RECORDS: Final = 7
"""Few, so that a test of some rows meets what a table of millions does: a job on one page, its outputs on the next."""

_Place: TypeAlias = tuple[Any, ...]
"""(kind, number, 0 or 1 for an output, its cursor): rows are never deleted, and new ones come last."""

_START: Final[_Place] = (-1,)


class MemoryCopy:
    def __init__(self, ledger: MemoryLedger, *, name: str = "memory") -> None:
        self.name = name
        self._ledger = ledger
        self._stores = ledger.stores

    def page(self, resume: str | None) -> RecordPage:
        """Resumed behind the last record's place, as a table is: what was added before it since is not met again."""
        behind = _START if resume is None else tuple(json.loads(resume))
        page = list(islice(((place, record) for place, record in self._records() if place > behind), _PAGE_RECORDS))
        resume = json.dumps(page[-1][0]) if len(page) == _PAGE_RECORDS else None
        return RecordPage(records=tuple(record for _, record in page), resume=resume)

    def read_jobs(self, job_ids: list[str]) -> dict[str, Job]:
        rows = self._ledger.rows
        return {job_id: rows[job_id].job for job_id in job_ids if job_id in rows}

    def put_output(self, stored: StoredOutput) -> bool:
        outputs = self._stores.outputs.setdefault(stored.job_id, {})
        return outputs.setdefault(stored.output.cursor, stored.output) is stored.output

    def put_order(self, match: Match) -> bool:
        return self._stores.matches.orders.setdefault((match.job_class, match.match_id), match) is match

    def put_place(self, job: Job) -> bool:
        places, place = self._stores.matches.places, (job.job_class, job.match_id, job.seq)
        free = place not in places
        places.setdefault(place, job.job_id)
        return free

    def put_run(self, run: Run) -> bool:
        return self._stores.runs.runs.setdefault(run.key, run) is run

    def adopt(self, job_class: str, values: Mapping[str, object]) -> None:
        """A field at its default counts as one that nobody has written."""
        now, empty = self._stores.runs.control(job_class), Control(job_class=job_class)
        adopted = {name: value for name, value in values.items() if getattr(now, name) == getattr(empty, name)}
        self._stores.runs.change(job_class, **adopted)

    def _records(self) -> Iterator[tuple[_Place, Record]]:
        stores = self._stores
        for number, (job_id, row) in enumerate(list(self._ledger.rows.items())):
            yield (0, number, 0, ""), row.job
            for output in self._ledger.outputs(job_id):
                yield (0, number, 1, output.cursor), StoredOutput(job_id=job_id, output=output)
        runs = [run for run in stores.runs.runs.values() if not run.key.repair]
        rates = [StoredRate(upstream=name, learned=learned) for name, learned in stores.learned.items()]
        kinds: tuple[Sequence[Record], ...] = (runs, stores.runs.controls, rates)
        for kind, records in enumerate(kinds, start=1):
            yield from (((kind, number, 0, ""), record) for number, record in enumerate(records))
