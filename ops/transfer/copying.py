"""What a copy needs of a ledger beyond the `Ledger` port: to read all of it, and to put what is not there yet.

A port, and so a file of its own: two adapters implement it, and export, import and drill are what it is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from shared.domain.control import Run
from shared.domain.job import Job
from shared.domain.ordering import Match
from shared.domain.records import RecordPage, StoredOutput


class LedgerCopy(Protocol):
    """Adapters: `shared.aws.copy` and `shared.memory.copy`. All raise `LedgerUnavailable`.

    Each put is one conditional write: True where this call put it, False where something is there already.
    """

    @property
    def name(self) -> str:
        """The table's, so that a file says where it is from."""
        ...

    def page(self, resume: str | None) -> RecordPage:
        """A page of records from `resume` on, the first one for None. No item is older than the call."""
        ...

    def read_jobs(self, job_ids: list[str]) -> dict[str, Job]:
        """Those of the rows that exist, read consistently."""
        ...

    def put_output(self, stored: StoredOutput) -> bool: ...

    def put_order(self, match: Match) -> bool: ...

    def put_place(self, job: Job) -> bool:
        """The job's place in the line of its match, by its number."""
        ...

    def put_run(self, run: Run) -> bool: ...

    def adopt(self, job_class: str, values: Mapping[str, object]) -> None:
        """Set these fields of control where the deployment has none of its own."""
        ...
