"""What a tick knows when it decides: everything that `gather` has read, as one value, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from msgspec import Struct

from shared.domain import stats
from shared.domain.control import Admission, Allowance, Control, Measures
from shared.domain.job import Counts
from shared.domain.settings import ClassSettings
from shared.domain.stats import StatsWindow
from shared.domain.work_index import Nominee
from shared.pacer.cost import PRICES, Prices
from shared.pacer.measures import Arrived
from shared.pacer.rate import UpstreamSight

INDEX_LAG_MS: Final = 5_000
"""How far behind the base table the index is taken to be, at most, when in-flight rows are counted."""

STATS_WINDOWS: Final = 10
"""Closed minutes that calls, service and chunk times are measured over."""


class Gathered(Struct, frozen=True, kw_only=True):
    """One class as it was read after the lock was taken. Times in milliseconds."""

    settings: ClassSettings
    control: Control
    allowance: Allowance
    """The last one, with the record of what became of it; withdrawn, if this tick plans."""
    upstream: UpstreamSight | None
    """None: the class calls none."""
    measures: Measures
    counts: Counts
    """Rows by list as the index shows them, in-flight ones aside."""
    inflight: tuple[Nominee, ...]
    minutes: Mapping[int, StatsWindow]
    """Every minute's counters that were read, by its start."""
    now_ms: int
    prices: Prices = PRICES

    @property
    def windows(self) -> list[StatsWindow]:
        """The last closed minutes, newest first."""
        return [self.minutes[start_ms] for start_ms in closed_minutes(self.now_ms)]

    @property
    def oldest_age_s(self) -> int:
        oldest_ms = self.counts.oldest_eligible_ms
        return 0 if oldest_ms is None else max(0, (self.now_ms - oldest_ms) // 1000)

    @property
    def pending(self) -> int:
        return self.counts.eligible.total + self.counts.later + self.counts.behind + len(self.inflight)

    @property
    def recent(self) -> tuple[Admission, ...]:
        """What was admitted lately, by ticks and from the allowance just before it was withdrawn."""
        spent = self.allowance.used_since(self.now_ms - INDEX_LAG_MS)
        return (*self.control.recent, Admission(at_ms=self.now_ms, rows=spent)) if spent else self.control.recent

    @property
    def unseen_rows(self) -> int:
        """What the index may not show yet: fresh admissions, and rows on their way between two of its entries."""
        horizon_ms = self.now_ms - INDEX_LAG_MS
        admitted = sum(admission.rows for admission in self.recent if admission.at_ms > horizon_ms)
        moved = stats.total(self.windows[:1], *stats.MOVES)
        return admitted + math.ceil(moved * INDEX_LAG_MS / stats.WINDOW_MS)

    @property
    def arrived(self) -> list[Arrived]:
        """Live rows that came between the plans that control remembers, and since the last of them, oldest first."""
        plans = [(line.at_ms, line.arrived) for line in self.control.history if line.arrived is not None]
        plans.append((self.now_ms, self.allowance.arrived))
        first = Arrived(rows=plans[0][1], elapsed_ms=0)
        return [first, *(Arrived(rows=after[1], elapsed_ms=after[0] - before[0]) for before, after in pairwise(plans))]

    @property
    def last_tick_ms(self) -> int | None:
        """When the tick before was; None before the first."""
        return self.control.history[-1].at_ms if self.control.history else None

    def counted(self, minutes_ms: Iterable[int]) -> list[StatsWindow]:
        """The counters of minutes that were asked for when this was read."""
        return [self.minutes[start_ms] for start_ms in minutes_ms]


def closed_minutes(now_ms: int) -> list[int]:
    """The minutes that measures are made from, newest first."""
    running_ms = stats.window_of(now_ms)
    return [running_ms - number * stats.WINDOW_MS for number in range(1, STATS_WINDOWS + 1)]
