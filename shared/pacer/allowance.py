"""The live allowance: rows that submitters may admit themselves before the next tick (protocol: the tick).

A tick keeps rows of its budget for the live arrivals that it expects, and grants them with its close. The next tick
withdraws what is left before it counts: what was spent has been admitted, what was not comes back into its budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, sqrt
from typing import Final

from msgspec import Struct

_FORGETS: Final = 0.7
"""An interval weighs this share of the one after it. Faster would follow chance, slower would keep rows idle when the
arrivals end: rows that are kept and not spent are work that the pool did not get."""

_MARGIN: Final = 2.0
"""Standard deviations of a Poisson count above its mean: one arrival in some forty then finds nothing left."""


class Arrived(Struct, frozen=True, kw_only=True):
    """Live rows that were submitted, whether they found allowance or not, in the time between two plans."""

    rows: int
    elapsed_ms: int


def expected_rows(arrived: Sequence[Arrived], *, interval_s: float) -> int:
    """Live rows to expect in an interval, a margin included, from what came in the last ones, oldest first.

    0 while none came: a first arrival waits for its tick, and is measured by then. Half a row counts as one: a single
    arrival keeps a row for some minutes, and not for ever.
    """
    rows = elapsed_s = 0.0
    for each in arrived:
        rows, elapsed_s = rows * _FORGETS + each.rows, elapsed_s * _FORGETS + max(0, each.elapsed_ms) / 1000
    mean = rows * interval_s / max(elapsed_s, interval_s)
    return floor(mean + _MARGIN * sqrt(mean) + 0.5)
