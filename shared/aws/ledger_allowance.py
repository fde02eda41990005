"""The live allowance: an item of its own, so that submitters never wait for the class lock (DESIGN section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from shared.aws import keys
from shared.aws.items import encode, item_of_job, load, present
from shared.aws.keys import Item
from shared.aws.ledger_rows import ABSENT
from shared.aws.table import Conflict, Table, Unmet, update_of
from shared.core.allowance import SLICES, Allowance, Grant
from shared.core.model import Job

GRANT_AS_READ: Final = "#run_id = :was_run_id AND #rows >= :was_rows"
"""read the grant ── (withdrawn, zeroed by a pause, granted anew, spent by others) ── spend ✗"""

_BURSTS: Final = 4
"""How often the whole patience with conflicts is spent before an end is given up."""

_SPENT: Final = tuple(f"spent_{place}" for place in range(SLICES))


class Allowances:
    """The part of the `Ledger` that knows the live allowance."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def read_allowance(self, job_class: str) -> Allowance:
        return _allowance(job_class, self._table.get(keys.allowance(job_class)) or {})

    def withdraw(self, job_class: str) -> Allowance:
        return _allowance(job_class, end(self._table, job_class))

    def spend(self, allowance: Allowance, jobs: Sequence[Job]) -> bool:
        """A conflict with another submitter is an answer, too: the rows then wait for their tick."""
        items = [item_of_job(job) for job in jobs]
        puts = [("Put", {"Item": item, "ConditionExpression": ABSENT}) for item in items]
        taken = taking(allowance, rows=len(jobs), at_ms=jobs[0].sent_at_ms)
        try:
            refused = self._table.transact(*puts, ("Update", taken))
        except Conflict:
            return False
        if refused is None:
            return True
        # Created only together with the decrement: rows that are as we would write them are an earlier attempt's.
        return all(
            isinstance(answer, Unmet) and answer.old == item for answer, item in zip(refused, items, strict=False)
        )

    def miss(self, job_class: str, *, rows: int) -> None:
        self._table.update(update_of(keys.allowance(job_class), values={}, add={"missed": rows}), once=True)


def end(table: Table, job_class: str) -> Item:
    """Nothing more may be spent; returns the record. Of many submitters at it each gives up within half a second: a
    tick or a pause outlasts them, or a burst of matches that end would cost the class its tick."""
    for _ in range(_BURSTS):
        with suppress(Conflict):
            answer = table.update(ended(job_class), returns="ALL_NEW")
            assert not isinstance(answer, Unmet), "it has no condition"
            return answer.item
    raise Conflict("conflict")


def ended(job_class: str) -> dict[str, Any]:
    """Nothing more may be spent; what was granted and spent stays on record."""
    return update_of(keys.allowance(job_class), values=present({"rows": 0}))


def accounted(job_class: str, *, missed: int) -> dict[str, Any]:
    """The record as a plan leaves it. `missed` is taken off: it may have grown since it was read."""
    values = present({"rows": 0, "granted": 0} | dict.fromkeys(_SPENT))
    return update_of(keys.allowance(job_class), values=values, add={"missed": -missed})


def granted(job_class: str, grant: Grant) -> dict[str, Any]:
    values = {
        "rows": grant.rows,
        "granted": grant.rows,
        "run_id": grant.run_id,
        "granted_ms": grant.at_ms,
        "hand_until_ms": grant.hand_until_ms,
        "slice_ms": grant.slice_ms,
    }
    return update_of(keys.allowance(job_class), values=present(values))


def taking(allowance: Allowance, *, rows: int, at_ms: int) -> dict[str, Any]:
    """Take rows from this very grant, and count them where the next tick looks for them."""
    return update_of(
        keys.allowance(allowance.job_class),
        values={},
        add={"rows": -rows, _SPENT[allowance.slice_at(at_ms)]: rows},
        condition=GRANT_AS_READ,
        was={"run_id": encode(allowance.run_id), "rows": encode(rows)},
    )


def _allowance(job_class: str, item: Item) -> Allowance:
    spent = tuple(int(item[name]["N"]) if name in item else 0 for name in _SPENT)
    return load(Allowance, item, job_class=job_class, spent=spent)
