"""What a run would have used on AWS, priced by `shared.core.cost`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shared.core.cost import Spending

_UNITS: Final[Mapping[str, int]] = {
    # The row, and what the move does to its place in the index: a put or a delete is one, a move of it two.
    "create": 2,
    "claim": 3,
    "resend": 3,
    "continue": 3,
    "hand_back": 3,
    "release": 3,
    "fail": 3,
    "transport": 3,
    "die": 3,
    "finish": 2,
    # Transactions count double: the run and control.
    "take_run": 4,
    "plan_run": 4,
    "close_run": 4,
}
_WITH_OUTPUT: Final = frozenset({"commit", "continue", "finish"})
"""Moves that store a chunk's output: the row's write and the output's are one transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Write requests and reads of the ledger by name, queue requests, invocations and their time."""

    writes: Mapping[str, int]
    reads: Mapping[str, int]
    queue_requests: int
    invocations: int
    compute_s: float
    memory_mb: int

    @property
    def spending(self) -> Spending:
        return Spending(
            write_units=sum(count * _units(name) for name, count in self.writes.items()),
            read_units=sum(self.reads.values()),
            queue_requests=self.queue_requests,
            invocations=self.invocations,
            gb_seconds=self.compute_s * self.memory_mb / 1024,
        )

    @property
    def usd(self) -> float:
        return self.spending.usd()


def _units(name: str) -> int:
    """The moves of one transaction are joined by `+`."""
    return sum(_UNITS.get(part, 1) * 2 + 2 if part in _WITH_OUTPUT else _UNITS.get(part, 1) for part in name.split("+"))
