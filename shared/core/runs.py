"""Runs, the class lock and what control remembers between ticks (rule 5; DESIGN section 6)."""

from __future__ import annotations

from dataclasses import field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeAlias

from shared.core.allowance import Grant
from shared.core.flags import Flag
from shared.core.measures import Measures
from shared.core.model import MINUTE_MS, LaneCounts
from shared.core.overrides import RateOverride, SlotsOverride
from shared.core.recovery import Stage
from shared.core.values import frozen

HISTORY_TICKS: Final = 15
"""Ticks that control remembers. Bounded, because an item may not grow to 400 KB (TRAPS 24)."""

SCHEDULE: Final = "schedule"
WEBHOOK: Final = "webhook"
"""What a run's `source` says of who admitted it."""

REPAIR_MARK: Final = "+repair"
"""Ends the id of a repair: a tick of a class's own schedule that admits no run."""

RECENT_ADMISSIONS: Final = 4
"""Admissions that control remembers for the index's lag: a tick's own, and what was spent just before it. More than one
tick within the lag takes an overlap."""


class RunState(StrEnum):
    OPEN = "open"
    PLANNED = "planned"
    CLOSED = "closed"
    SKIPPED = "skipped"


@frozen
class RunKey:
    """One (job class, UTC minute). `minute_ms` is a whole minute, from the trigger's scheduled time (I6).

    `repair`: not a run but the lock and the record of a tick that only sweeps. It must not take the minute's place:
    the run of that minute may still come, from the webhook.
    """

    job_class: str
    minute_ms: int
    repair: bool = False

    @classmethod
    def of(cls, job_class: str, scheduled_ms: int) -> RunKey:
        return cls(job_class=job_class, minute_ms=scheduled_ms - scheduled_ms % MINUTE_MS)

    @property
    def run_id(self) -> str:
        """Readable and unique: `<job_class>@2026-11-30T12:05Z`."""
        minute = datetime.fromtimestamp(self.minute_ms / 1000, tz=UTC)
        return f"{self.job_class}@{minute:%Y-%m-%dT%H:%MZ}{REPAIR_MARK if self.repair else ''}"


@frozen
class Run:
    """The run row: the dedup record and the drain token in one."""

    key: RunKey
    state: RunState
    source: str
    owner: str = ""
    budget: int = 0
    reason: str = ""


@frozen
class Carry:
    """What each lane is owed, in nano-rows: their sum is the fraction of a row that was earned and not admitted.

    Integers, so that 0.3 rows a tick are exactly 3 in 10 ticks. A lane that is ahead of its share owes (negative).
    """

    live: int = 0
    recovery: int = 0


@frozen
class Admission:
    """Rows that a tick or submitters admitted: counted as in flight while the index may not show them yet."""

    at_ms: int
    rows: int


@frozen
class TickLine:
    """One tick as control's history keeps it: what the ETA, `status` and `explain` read.

    `staged`: it ran at a part of its rate, in a staged recovery.

    `facts` is what the plan was made from, beyond what stands here already (`core.tick_facts`). `granted` rows of the
    budget were left to submitters; `arrived` live rows had come since the plan before, None where nothing was planned.
    `cost` is what was spent since the tick before (`core.cost.Spending`, packed); empty: not known.
    """

    run_id: str
    at_ms: int
    paused: bool
    waiting: LaneCounts
    later: int
    behind: int
    in_flight: int
    dead: int
    budget: int
    admitted: int
    confirmed: int
    swept: int
    rate_per_s: float
    binding: str
    oldest_age_s: int
    eta_s: float | None
    rate_binding: str = ""
    staged: bool = False
    facts: str = ""
    cost: str = ""
    granted: int = 0
    arrived: int | None = None

    @property
    def workable(self) -> int:
        """Rows that may be worked now, or are: what is only due later asks for no share of anything."""
        return self.waiting.total + self.behind + self.in_flight

    @property
    def pending(self) -> int:
        """Rows not finished: what the drain ETA counts down."""
        return self.waiting.total + self.later + self.behind + self.in_flight


@frozen
class Control:
    """The control item of a class. Absent in the ledger means all defaults. `resumed` signs the last resume."""

    job_class: str
    version: int = 0
    lock_owner: str = ""
    lock_run_id: str = ""
    lock_until_ms: int = 0
    pause: Flag | None = None
    halt: Flag | None = None
    webhook_closed: bool = False
    webhook_switched: Flag | None = None
    resumed: Flag | None = None
    carry: Carry = field(default_factory=Carry)
    planned_at_ms: int | None = None
    recent: tuple[Admission, ...] = ()
    history: tuple[TickLine, ...] = ()
    measures: Measures | None = None
    rate: RateOverride | None = None
    slots: SlotsOverride | None = None
    stage: Stage | None = None

    @property
    def admits(self) -> bool:
        return self.pause is None and self.halt is None


@frozen
class TickMemory:
    """What planning writes to control, before the first claim: a tick that dies after it has spent what it earned.

    Written with the plan and not with the close, or the next tick would earn the same time once more (I1). For the same
    reason it takes the record of the last allowance away: what was spent of it moves to `recent`, what was not is in
    the budget, and `missed` rows have been counted as arrivals.
    """

    budget: int
    carry: Carry
    planned_at_ms: int
    recent: tuple[Admission, ...] = ()
    missed: int = 0


@frozen
class TickClose:
    """What the closing transaction adds to control beside the lock's release.

    `skipped` is why the run closes as skipped: it was owned, and there was nothing that it could do. Empty: it closes.
    `grant` is the new live allowance, None if there is none.
    """

    recent: tuple[Admission, ...]
    history: tuple[TickLine, ...]
    measures: Measures | None
    stage: Stage | None = None
    skipped: str = ""
    grant: Grant | None = None

    @property
    def without_grant(self) -> TickClose:
        """The close of a class that was paused or halted meanwhile: nothing more of it may be admitted (I10)."""
        return replace(self, grant=None, history=(*self.history[:-1], replace(self.history[-1], granted=0)))


@frozen
class Taken:
    """The lock and the run are ours. `planned`: an earlier owner planned it, so only sweep and close (rule 5)."""

    planned: bool


@frozen
class Busy:
    """A live tick holds the lock, for the run named."""

    run_id: str


@frozen
class Ended:
    """The run is closed or skipped already."""


TakeResult: TypeAlias = Taken | Busy | Ended


OPEN_LOOK_BACK_MS: Final = 24 * 60 * MINUTE_MS
"""How far back a tick looks for runs that nobody executed: what a run older than this was to drain, others have."""


_LOOKS: Final = 3
"""A tick may die between its close and its look, so one line says little; three of them in a row are believed."""


def minutes_to_look_at(
    history: tuple[TickLine, ...], *, now_ms: int, interval_s: int, max_age_s: int, max_ahead_s: int
) -> list[int]:
    """The minutes in which an admitted run may still be open: a bounded list of keys instead of a scan.

    Back to the oldest tick that control remembers, or at least three intervals, and beyond that by the greatest age
    that the webhook accepts: ticks that failed or found no time leave no line, so the list grows until one succeeds.
    """
    oldest_ms = history[0].at_ms if len(history) >= _LOOKS else 0
    since_ms = min(oldest_ms, now_ms - _LOOKS * interval_s * 1000) - max_age_s * 1000
    since_ms = max(since_ms, now_ms - OPEN_LOOK_BACK_MS - max_age_s * 1000)
    until_ms = now_ms + max_ahead_s * 1000
    return list(range(since_ms - since_ms % MINUTE_MS, until_ms + 1, MINUTE_MS))
