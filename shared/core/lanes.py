"""The split of a tick's rows between the lanes, with a memory for the fractions (I8, TRAPS 37).

All arithmetic is in integer nano-rows (1e-9 row) and exact fractions: 0.3 rows a tick are 3 in 10, 0.29 x 100 is 29.

Each lane has a position in its current row, between 0 and 1. Every row that is split moves a lane on by its share,
and a lane whose position reaches a whole row gets that row. Since the two positions sum to one, exactly one lane is
due per row: largest remainder, asked at the end of the row rather than at its beginning. (Asked at the beginning, a
lane that had just been served could end up 1.5 rows ahead at budgets below one row; this way no lane is ever more
than one row ahead or behind.) `Carry` is that position seen from now: what each lane has earned and not had.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import isfinite
from typing import Final

from shared.core.model import LaneCounts
from shared.core.runs import Carry
from shared.core.values import frozen

NANO: Final = 10**9
"""Nano-rows in a row."""


@frozen
class LaneSplit:
    """Rows to admit per lane, and the memory for the next tick. `carry` sums to the fraction of a row left over."""

    live: int
    recovery: int
    carry: Carry


def exact(value: float | Fraction, *, name: str) -> Fraction:
    """The number as it is written: 0.3 is 3/10. ValueError naming `name` if it is negative or not finite."""
    if not isfinite(value) or value < 0:
        raise ValueError(f"{name} must be finite and not negative, got {value}")
    return value if isinstance(value, Fraction) else Fraction(Decimal(str(value)))


def earned_and_kept(earned_nrows: int, carry: Carry) -> tuple[int, int]:
    """Whole rows that may be split, and the fraction beyond them in nano-rows: what was earned plus what was carried.

    A carry that does not sum to a fraction of one row (control was edited) counts as the nearest that does.
    """
    return divmod(earned_nrows + _fraction_of(carry), NANO)


def split(
    *, earned_nrows: int, carry: Carry, live_share: float | Fraction, ceiling_rows: int, waiting: LaneCounts
) -> LaneSplit:
    """Split what was earned, at most `ceiling_rows`, between the lanes that wait.

    The rows split are B = max(0, min(floor(earned + carry), ceiling)); earnings above a ceiling are dropped, the
    fraction of a row is kept. A lane that wants less than its part lends the rest in this tick and is owed nothing for
    it: its carry becomes 0 and the other's takes the fraction. Rows that neither wants are dropped. Hence
    live + recovery = min(B, waiting), and over any ticks in which both lanes wait each gets its share to within a row.

    ValueError if `earned_nrows` is negative or `live_share` is not in 0..1.
    """
    share = exact(live_share, name="live_share")
    if share > 1:
        raise ValueError(f"live_share must be at most 1, got {live_share}")
    if earned_nrows < 0:
        raise ValueError(f"earned_nrows must not be negative, got {earned_nrows}")
    whole, fraction = earned_and_kept(earned_nrows, carry)
    budget = max(0, min(whole, ceiling_rows))
    reached = _position(carry, share) + int(share * budget * NANO)
    live_part = min(reached // NANO, budget)
    left = reached - live_part * NANO - _ahead(share, fraction)
    return _lend(budget, live_part, waiting, share, kept=Carry(live=left, recovery=fraction - left))


def _lend(budget: int, live_part: int, waiting: LaneCounts, share: Fraction, *, kept: Carry) -> LaneSplit:
    """Only a lane that gives up a whole row loses its memory, or a lane that is idle now and then would be forgiven
    its debts for nothing, and could take every row at budgets below one row a tick."""
    recovery_part = budget - live_part
    live = min(waiting.live, max(live_part, budget - waiting.recovery))
    recovery = min(waiting.recovery, budget - live)
    fraction = kept.live + kept.recovery
    live_lends, recovery_lends = waiting.live < live_part, waiting.recovery < recovery_part
    if live_lends and recovery_lends:
        kept = Carry(live=int(share * fraction), recovery=fraction - int(share * fraction))
    elif live_lends:
        kept = Carry(live=0, recovery=fraction)
    elif recovery_lends:
        kept = Carry(live=fraction, recovery=0)
    return LaneSplit(live=live, recovery=recovery, carry=kept)


def _fraction_of(carry: Carry) -> int:
    return min(max(0, carry.live + carry.recovery), NANO - 1)


def _ahead(share: Fraction, fraction: int) -> int:
    """Nano-rows that the live lane will earn until the row now begun is whole."""
    return int(share * (NANO - fraction))


def _position(carry: Carry, share: Fraction) -> int:
    """Where the live lane stands in its row, 0..NANO. The bounds matter only after the share was changed."""
    return min(max(0, carry.live + _ahead(share, _fraction_of(carry))), NANO)
