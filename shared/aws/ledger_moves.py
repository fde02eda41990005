"""Moves: one conditional write of one row, and the question whose write it was that made the condition fail."""

from __future__ import annotations

from typing import Any, Final

from shared.aws import keys
from shared.aws.items import encode, job_of_item, present
from shared.aws.keys import PARTITION, POSITION, Attribute, Item
from shared.aws.ledger_rows import ABSENT
from shared.aws.table import Table, Unmet, Written, update_of
from shared.core.model import IndexFence, IndexKey, KeepPlace, Lost, Move, MoveResult, OutputTaken, RowFence, Won

ROW_AS_READ: Final = "#state = :was_state AND #epoch = :was_epoch"
"""read ── (a claim, a release, an operator: another state or epoch) ── write ✗"""

CURSOR_AS_READ: Final = "#cursor = :was_cursor"
"""read at cursor ── (a twin's commit) ── write ✗"""

COPY_AS_READ: Final = "#copy = :was_copy"
"""message of copy n died ── (the sweep sent copy n+1) ── its death is written ✗"""

PLACE_AS_SEEN: Final = f"#{PARTITION} = :was_{PARTITION} AND #{POSITION} = :was_{POSITION}"
"""seen in the index, maybe long ago ── (any move of the row: the position holds epoch and copy) ── write ✗"""


class Moves:
    """The part of the `Ledger` that moves rows."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def move(self, move: Move) -> MoveResult:
        request = request_of(move)
        if move.output is not None:
            return self._with_output(move, request)
        answer = self._table.update(request, returns="ALL_NEW")
        if isinstance(answer, Written):
            return Won(job=job_of_item(answer.item))
        return _judged(move, answer.old)

    def _with_output(self, move: Move, request: dict[str, Any]) -> MoveResult:
        """Row and output in one transaction, which cannot return the new row: it is read afterwards.

        A row that by then is not as this move left it was moved on by someone else, and `Lost` is the answer that
        stops the caller: to go on with a row that carries another's epoch would break the fence.
        """
        refused = self._table.transact(("Update", request), ("Put", put_of_output(move)))
        if refused is not None and isinstance(refused[0], Unmet):
            return _judged(move, refused[0].old)
        item = self._table.get(keys.job(move.job_id)) or {}
        if refused is not None and _fence_holds(move, item) and not is_own(move, item):
            return OutputTaken()
        return _judged(move, item)


def request_of(move: Move) -> dict[str, Any]:
    condition, was = _condition(move)
    return update_of(keys.job(move.job_id), values=_target(move), condition=condition, was=was)


def _condition(move: Move) -> tuple[str, dict[str, Attribute]]:
    if isinstance(move.fence, IndexFence):
        key = move.fence.key
        return PLACE_AS_SEEN, {PARTITION: encode(key.partition), POSITION: encode(key.position)}
    parts, was = [ROW_AS_READ], {"state": encode(move.fence.state), "epoch": encode(move.fence.epoch)}
    if move.fence.cursor is not None:
        parts.append(CURSOR_AS_READ)
        was["cursor"] = encode(move.fence.cursor)
    if move.fence.copy is not None:
        parts.append(COPY_AS_READ)
        was["copy"] = encode(move.fence.copy)
    return " AND ".join(parts), was


def _target(move: Move) -> dict[str, Attribute | None]:
    """Every attribute that this move writes, as it stands in the row afterwards; None where it is absent then."""
    target = present(move.changes)
    if move.nonce is not None:
        target["nonce"] = encode(move.nonce)
    if not isinstance(move.place, KeepPlace):
        key = move.place if isinstance(move.place, IndexKey) else None
        target[PARTITION] = encode(key.partition) if key else None
        target[POSITION] = encode(key.position) if key else None
    return target


def put_of_output(move: Move) -> dict[str, Any]:
    assert move.output is not None
    item = keys.output(move.job_id, move.output.cursor) | {"body": encode(move.output.body)}
    return {"Item": item, "ConditionExpression": ABSENT}


def _judged(move: Move, item: Item) -> MoveResult:
    return Won(job=job_of_item(item)) if is_own(move, item) else Lost()


def is_own(move: Move, item: Item) -> bool:
    """Whether the row is as this move would have left it, nonce included: our own earlier attempt won (TRAPS 16)."""
    return bool(item) and all(item.get(name) == value for name, value in _target(move).items())


def _fence_holds(move: Move, item: Item) -> bool:
    if not item:
        return False
    job = job_of_item(item)
    if isinstance(move.fence, RowFence):
        fence = move.fence
        return (
            (job.state, job.epoch) == (fence.state, fence.epoch)
            and fence.cursor in (None, job.cursor)
            and fence.copy in (None, job.copy)
        )
    key = move.fence.key
    return (item.get(PARTITION), item.get(POSITION)) == (encode(key.partition), encode(key.position))
