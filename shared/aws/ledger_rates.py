"""What was learned of an upstream's rate: one item, one decision a window."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from shared.aws import keys
from shared.aws.items import encode, load, present
from shared.aws.table import Table, Written, update_of
from shared.core.rate import Learned

NEVER_LEARNED: Final = "attribute_not_exists(pk)"
"""nothing stored ── (another class's tick decided on the window) ── ours ✗"""

SAME_WINDOW: Final = "#window_ms = :was_window_ms"
"""read after window n ── (another class's tick decided on window n+1) ── ours on n+1 ✗: one decrease a window"""


class Rates:
    """The part of the `Ledger` that remembers rates."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def read_learned(self, upstream: str) -> Learned | None:
        item = self._table.get(keys.learned(upstream))
        return None if item is None else load(Learned, item)

    def store_learned(self, upstream: str, learned: Learned, *, before: Learned | None) -> bool:
        values: dict[str, Any] = {each.name: getattr(learned, each.name) for each in fields(learned)}
        request = update_of(
            keys.learned(upstream),
            values=present(values),
            condition=NEVER_LEARNED if before is None else SAME_WINDOW,
            was={} if before is None else {"window_ms": encode(before.window_ms)},
        )
        answer = self._table.update(request)
        return isinstance(answer, Written) or load(Learned, answer.old) == learned
