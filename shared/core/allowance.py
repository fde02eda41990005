"""The live allowance: rows that submitters may admit themselves before the next tick (DESIGN section 7).

A tick keeps rows of its budget for the live arrivals that it expects, and grants them with its close. The next tick
withdraws what is left before it counts: what was spent has been admitted, what was not comes back into its budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import floor, sqrt
from typing import Final

from shared.core.model import Job, Lane, State
from shared.core.values import frozen

SLICES: Final = 12
"""Parts of a tick's interval by which spending is counted: the index shows all of it but the last few seconds."""

_FORGETS: Final = 0.7
"""An interval weighs this share of the one after it. Faster would follow chance, slower would keep rows idle when the
arrivals end: rows that are kept and not spent are work that the pool did not get."""

_MARGIN: Final = 2.0
"""Standard deviations of a Poisson count above its mean: one arrival in some forty then finds nothing left."""


@frozen
class Arrived:
    """Live rows that were submitted, whether they found allowance or not, in the time between two plans."""

    rows: int
    elapsed_ms: int


@frozen
class Grant:
    """What a closing tick leaves to submitters, of the budget of `run_id`. `hand_until_ms` is what its claims store."""

    rows: int
    run_id: str
    at_ms: int
    hand_until_ms: int
    slice_ms: int

    @classmethod
    def of(cls, rows: int, *, run_id: str, at_ms: int, minute_ms: int, interval_s: int) -> Grant:
        interval_ms = interval_s * 1000
        return cls(
            rows=rows,
            run_id=run_id,
            at_ms=at_ms,
            hand_until_ms=minute_ms + interval_ms,
            slice_ms=interval_ms // SLICES,
        )


@frozen
class Allowance:
    """`rows` may still be spent. `granted`, `spent` (by slice of the interval) and `missed` (live rows that found
    nothing left) are the record since the last plan; the next one accounts for them."""

    job_class: str
    rows: int = 0
    granted: int = 0
    spent: tuple[int, ...] = (0,) * SLICES
    missed: int = 0
    run_id: str = ""
    granted_ms: int = 0
    hand_until_ms: int = 0
    slice_ms: int = 1

    @property
    def used(self) -> int:
        return sum(self.spent)

    @property
    def unspent(self) -> int:
        """Rows that were granted and admitted nobody, whatever took them back: a tick or a pause."""
        return max(0, self.granted - self.used)

    @property
    def arrived(self) -> int:
        return self.used + self.missed

    def slice_at(self, now_ms: int) -> int:
        """Where spending at `now_ms` is counted; what comes after the interval is counted with its end."""
        return min(SLICES - 1, max(0, (now_ms - self.granted_ms) // max(1, self.slice_ms)))

    def used_since(self, since_ms: int) -> int:
        """Rows spent from `since_ms` on, by whole slices: never fewer than there were."""
        return sum(self.spent[self.slice_at(since_ms) :])


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


def may_spend(job: Job, *, now_ms: int, live_window_s: int) -> bool:
    """Only live work that is due: a late event's jobs are recovery, and wait for a tick as all of it does."""
    return job.state is State.WAITING and 0 <= now_ms - job.due_ms < live_window_s * 1000


def admitted_at_once(job: Job, allowance: Allowance, *, now_ms: int) -> Job:
    """The row as a claim of the granting tick would have left it. Its creation is its entry to `queued`, at epoch 1."""
    return replace(
        job,
        state=State.QUEUED,
        epoch=1,
        lane=Lane.LIVE,
        run_id=allowance.run_id,
        sent_at_ms=now_ms,
        hand_until_ms=allowance.hand_until_ms,
    )
