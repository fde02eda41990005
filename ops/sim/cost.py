"""What a run would have cost on AWS: on-demand list prices of us-east-1, without free tiers (checked November 2026)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_WRITE_UNIT_USD: Final = 0.625e-6
_READ_UNIT_USD: Final = 0.125e-6
_FIFO_REQUEST_USD: Final = 0.50e-6
_INVOCATION_USD: Final = 0.20e-6
_GB_SECOND_USD: Final = 16.6667e-6

_UNITS: Final[Mapping[str, int]] = {
    # The row and what the move does to its place in the index: nothing, a put or a delete, or one of each.
    "create": 2,
    "claim": 3,
    "resend": 3,
    "continue": 3,
    "hand_back": 3,
    "release": 3,
    "fail": 3,
    "transport": 3,
    "commit": 1,
    "mark": 1,
    "unmark": 1,
    "finish": 2,
    "die": 3,
    # Transactions count double: two items each.
    "take_run": 4,
    "plan_run": 4,
    "close_run": 4,
}
_WITH_OUTPUT: Final = frozenset({"commit", "continue", "finish"})
"""Moves that usually store an output: the row's write and the output's, both in a transaction."""

_ROWS_PER_PAGE_UNIT: Final = 20
"""Index entries are about 200 bytes; an eventually consistent read unit is 8 KB, of which half is taken as used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was used: write requests and reads of the ledger by name, queue requests, invocations and their time."""

    writes: Mapping[str, int]
    reads: Mapping[str, int]
    queue_requests: int
    invocations: int
    compute_s: float
    memory_mb: int

    @property
    def usd(self) -> float:
        write_units = sum(count * self._units(name) for name, count in self.writes.items())
        read_units = sum(self.reads.values())
        return (
            write_units * _WRITE_UNIT_USD
            + read_units * _READ_UNIT_USD
            + self.queue_requests * _FIFO_REQUEST_USD
            + self.invocations * _INVOCATION_USD
            + self.compute_s * self.memory_mb / 1024 * _GB_SECOND_USD
        )

    @staticmethod
    def _units(name: str) -> int:
        units = _UNITS.get(name, 1)
        return units * 2 + 2 if name in _WITH_OUTPUT else units
