"""What an export takes of the ledger, item by item, each as one value.

A file of its own: both ledgers make these values and `ops.transfer` writes them, and nobody else knows them.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from shared.domain.control import Control, Run
from shared.domain.job import Job, Output
from shared.domain.upstream import Learned


class StoredOutput(Struct, frozen=True, kw_only=True):
    """An output, and the job whose chunk it is the result of."""

    job_id: str
    output: Output


class StoredRate(Struct, frozen=True, kw_only=True):
    """What was learned of an upstream, and of which one."""

    upstream: str
    learned: Learned


Record: TypeAlias = Job | StoredOutput | Run | Control | StoredRate


class RecordPage(Struct, frozen=True, kw_only=True):
    """A part of the ledger in its own order: a job is directly followed by its outputs, on the next page if need be.

    `resume` is where the next page begins, None after the last. `left_out` counts the items that are no records: the
    order of matches, which the rows say again, permits, stats and what else belongs to the deployment.
    """

    records: tuple[Record, ...]
    resume: str | None
    left_out: int = 0
