"""Runs, the class lock, and what control remembers of a class between ticks (rule 5; protocol: the ledger).

Also what an operator sets in place of what Sluice would calculate: a number, its signature, and until when. The last
override stands on control also when it says that there is no number any more: it tells who took the one before away.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from math import isfinite
from typing import Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from shared.domain.job import MINUTE_MS, Flag, LaneCounts

BY_OPERATOR: Final = "set by an operator"
"""An override as the source of a number."""


class RateOverride(Struct, frozen=True, kw_only=True):
    """An upper bound of a class's rate, set by an operator."""

    rate_per_s: float | None
    """Jobs per second. None: somebody cleared the bound, and the flag says who."""
    flag: Flag
    until_ms: int | None = None
    """When the bound ends by itself; None: when somebody clears it."""

    def __post_init__(self) -> None:
        rate = self.rate_per_s
        if rate is not None and (isinstance(rate, bool) or not isfinite(rate) or rate <= 0):
            raise ValueError(f"rate_per_s must be finite and above 0, got {rate}")

    def holds(self, now_ms: int) -> bool:
        return self.rate_per_s is not None and (self.until_ms is None or now_ms < self.until_ms)


def rate_bound(override: RateOverride | None, *, now_ms: int) -> float | None:
    """The bound in force, or None: there is none, or it is over."""
    return override.rate_per_s if override is not None and override.holds(now_ms) else None


class SlotsOverride(Struct, frozen=True, kw_only=True):
    """How many workers a class may have, set by an operator in place of the configured slots.

    Written before the lanes' event source mappings are changed, and once more when both were read back.
    """

    slots: int | None
    """None: the configured slots again."""
    flag: Flag
    before: int
    """The slots that were verified last before this override: the way back."""
    verified_ms: int | None = None
    """When both mappings were read back with the new slots. None: the command runs now, or died before that."""

    def __post_init__(self) -> None:
        for name in ("slots", "before"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")

    def wanted(self, configured: int) -> int:
        return configured if self.slots is None else self.slots

    def in_force(self, configured: int) -> int:
        """What the mappings allow for certain: until they are verified, the smaller of before and wanted."""
        wanted = self.wanted(configured)
        return min(wanted, self.before) if self.verified_ms is None else wanted

    @property
    def settled(self) -> bool:
        """Verified, and nothing but the configuration: there is no override any more."""
        return self.slots is None and self.verified_ms is not None


def slots_in_force(override: SlotsOverride | None, *, configured: int) -> int:
    """The slots that a tick may plan with."""
    return configured if override is None else override.in_force(configured)


def slots_source(override: SlotsOverride | None) -> str:
    if override is None or override.settled:
        return "configured"
    return BY_OPERATOR if override.verified_ms is not None else f"{BY_OPERATOR}, not verified yet"


def override_sources(rate: RateOverride | None, concurrency: SlotsOverride | None, *, now_ms: int) -> dict[str, str]:
    """The factors of a tick that an operator set, for `explain`; none where nothing is overridden."""
    sources = {} if rate_bound(rate, now_ms=now_ms) is None else {"override_rate_per_s": BY_OPERATOR}
    if concurrency is not None and not concurrency.settled:
        sources["concurrency"] = slots_source(concurrency)
    return sources


HISTORY_TICKS: Final = 15
"""Ticks that control remembers. Bounded, because an item may not grow beyond 400 KB (fact F23)."""

SCHEDULE: Final = "schedule"
"""What a run's `source` says of one that the class's own schedule admitted."""

WEBHOOK: Final = "webhook"
"""What a run's `source` says of one that a request from outside admitted."""

REPAIR_MARK: Final = "+repair"
"""Ends the id of a repair: a tick of a class's own schedule that admits no run."""

RECENT_ADMISSIONS: Final = 4
"""How many of the last admissions control remembers. The index may show a row some seconds late, so a tick adds to what
it counts there the rows that were admitted in those seconds: by submitters before a tick and by the tick itself, two
entries a tick. Four hold two ticks: that a second one falls into those seconds takes a trigger that came late."""


class RunState(StrEnum):
    OPEN = "open"
    """Admitted. Resumable when its owner is dead: nothing was planned yet."""
    PLANNED = "planned"
    """A tick has spent what it earned. Whoever resumes it only sweeps and closes."""
    CLOSED = "closed"
    SKIPPED = "skipped"
    """Ended without a plan, for the reason that the run says."""


class RunKey(Struct, frozen=True, kw_only=True):
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


class Run(Struct, frozen=True, kw_only=True):
    """The run row: that it exists is the dedup of the minute (I6), and who owns it may tick."""

    key: RunKey
    state: RunState
    source: str
    """Who admitted it: `SCHEDULE`, `WEBHOOK` or a command's name."""
    owner: str = ""
    """The nonce of the invocation that took it last; "" before the first one."""
    budget: int = 0
    """Rows that its plan may admit; 0 before the plan."""
    reason: str = ""
    """Why it was skipped; "" for every other state."""


class Carry(Struct, frozen=True, kw_only=True):
    """What each lane is owed, in nano-rows: their sum is the fraction of a row that was earned and not admitted.

    Integers, so that 0.3 rows a tick are exactly 3 in 10 ticks. A lane that is ahead of its share owes (negative).
    """

    live: int = 0
    recovery: int = 0


class Admission(Struct, frozen=True, kw_only=True):
    """Rows that a tick or submitters admitted: counted as in flight while the index may not show them yet."""

    at_ms: int
    rows: int


class TickLine(Struct, frozen=True, kw_only=True):
    """One tick as control's history keeps it, written by its close: what the ETA, `status` and `explain` read."""

    run_id: str
    at_ms: int
    """When the tick counted."""
    paused: bool
    """The class was paused or halted."""
    waiting: LaneCounts
    """Eligible rows, by the lane that they would be claimed in."""
    later: int
    """Waiting rows that are not eligible yet."""
    behind: int
    """Jobs of ordered matches that wait for the ones before them."""
    in_flight: int
    """Rows in flight as the index showed them, before the tick's own claims."""
    dead: int
    budget: int
    """Rows that the plan allowed to admit."""
    admitted: int
    """Rows that the tick claimed."""
    confirmed: int
    """Messages of them that the queue confirmed."""
    swept: int
    """Rows in flight whose message was sent again."""
    rate_per_s: float
    """Jobs per second that the plan was made for."""
    binding: str
    """What kept the budget from being larger."""
    oldest_age_s: int
    """Age of the oldest eligible row in seconds, 0 without one."""
    eta_s: float | None
    """Seconds until what was pending then is over, as the tick said; None: it will not drain, or nobody knows."""
    rate_binding: str = ""
    """What kept the rate from being higher."""
    staged: bool = False
    """The tick ran at a part of its rate, in a staged recovery."""
    facts: str = ""
    """What the plan was made from, beyond what stands here already, packed by `pacer.decide`."""
    cost: str = ""
    """What was spent since the tick before, packed by `pacer.cost`; "" where it is not known."""
    granted: int = 0
    """Rows of the budget that were left to submitters as live allowance."""
    arrived: int | None = None
    """Live rows that had come since the plan before; None where nothing was planned."""

    @property
    def workable(self) -> int:
        """Rows that may be worked now, or are: what is only due later asks for no share of anything."""
        return self.waiting.total + self.behind + self.in_flight

    @property
    def pending(self) -> int:
        """Rows not finished: what the drain ETA counts down."""
        return self.waiting.total + self.later + self.behind + self.in_flight


class Control(Struct, frozen=True, kw_only=True):
    """The control item of a class. A class that has none in the ledger has these defaults."""

    job_class: str
    version: int = 0
    """Raised by every write."""
    lock_owner: str = ""
    """The nonce of the tick that holds the class lock; "" while nobody does."""
    lock_run_id: str = ""
    """The run that the lock was taken for."""
    lock_until_ms: int = 0
    """When the lock is anybody's, whoever holds it."""
    pause: Flag | None = None
    """While it is set, nothing more is admitted."""
    halt: Flag | None = None
    """While it is set, workers give their jobs back at the next chunk, too."""
    webhook_closed: bool = False
    """Whether the webhook refuses to admit runs of the class."""
    webhook_switched: Flag | None = None
    """Who closed or opened the webhook last."""
    resumed: Flag | None = None
    """Who ended the last pause or halt."""
    carry: Carry = field(default_factory=Carry)
    """What each lane is owed of the next budget. Set by a plan."""
    planned_at_ms: int | None = None
    """Up to when ticks have earned and planned; None before the first plan."""
    recent: tuple[Admission, ...] = ()
    """The last admissions, which the index may not show yet. Set by a plan and by the close."""
    history: tuple[TickLine, ...] = ()
    """The last ticks, oldest first. Set by the close."""
    measures: Measures | None = None
    """What was measured of the class's jobs. Set by the close."""
    rate: RateOverride | None = None
    """What an operator last said about the rate."""
    slots: SlotsOverride | None = None
    """What an operator last said about the slots."""
    stage: Stage | None = None
    """Where a staged recovery stands; None: full rate. Set by the close."""

    @property
    def admits(self) -> bool:
        return self.pause is None and self.halt is None


class TickMemory(Struct, frozen=True, kw_only=True):
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


class TickClose(Struct, frozen=True, kw_only=True):
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


class Taken(Struct, frozen=True, kw_only=True):
    """The lock and the run are ours. `planned`: an earlier owner planned it, so only sweep and close (rule 5)."""

    planned: bool


class Busy(Struct, frozen=True, kw_only=True):
    """A live tick holds the lock, for the run named."""

    run_id: str


class Ended(Struct, frozen=True, kw_only=True):
    """The run is closed or skipped already."""


TakeResult: TypeAlias = Taken | Busy | Ended

OPEN_LOOK_BACK_MS: Final = 24 * 60 * MINUTE_MS
"""How far back a tick looks for runs that nobody executed. Whatever an older run was to drain, later ones have."""

_LOOKS: Final = 3
"""A tick closes first and looks for open runs afterwards, and may die between the two. So one tick in the history does
not say that somebody has looked; of three in a row at least one is believed to have."""


def minutes_to_look_at(
    history: tuple[TickLine, ...], *, now_ms: int, interval_s: int, max_age_s: int, max_ahead_s: int
) -> list[int]:
    """The minutes in which an admitted run may still be open: a bounded list of keys instead of a scan.

    Back to the oldest tick that control remembers, or at least three intervals, and beyond that by the greatest age
    that the webhook accepts. Ticks that failed leave nothing in the history, so the list grows until one succeeds.
    """
    oldest_ms = history[0].at_ms if len(history) >= _LOOKS else 0
    since_ms = min(oldest_ms, now_ms - _LOOKS * interval_s * 1000) - max_age_s * 1000
    since_ms = max(since_ms, now_ms - OPEN_LOOK_BACK_MS - max_age_s * 1000)
    until_ms = now_ms + max_ahead_s * 1000
    return list(range(since_ms - since_ms % MINUTE_MS, until_ms + 1, MINUTE_MS))


class Origin(StrEnum):
    """`remembered`: measured by an earlier tick, and too little has happened since to measure again."""

    MEASURED = "measured"
    REMEMBERED = "remembered"
    DECLARED = "declared"


class Measure(Struct, frozen=True, kw_only=True):
    """One number and where it is from. `samples` are jobs (chunks for the long chunk) that it was measured from."""

    value: float
    origin: Origin
    samples: int = 0

    @property
    def source(self) -> str:
        """For `explain`: "measured from 240 jobs" or "declared"."""
        return f"{self.origin} from {self.samples} samples" if self.samples else self.origin.value


class Measures(Struct, frozen=True, kw_only=True):
    """Times in seconds. `service_s` is worker time inside chunks per completed job; waits for permits before a chunk
    are not in it, or slots that wait for the upstream would look like slots that are needed."""

    calls_per_job: Measure
    chunks_per_job: Measure | None
    service_s: Measure
    long_chunk_s: Measure


SLICES: Final = 12
"""Parts of a tick's interval by which spending is counted: the index shows all of it but the last few seconds."""


class Grant(Struct, frozen=True, kw_only=True):
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


class Allowance(Struct, frozen=True, kw_only=True):
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


SHARES: Final = (0.5, 0.75, 1.0)
"""Of the calculated rate, step by step; the last is full."""


class Cause(StrEnum):
    """Why a stage began."""

    RESUMED = "resumed"
    AWAY = "away"
    OUTAGE = "outage"


class Stage(Struct, frozen=True, kw_only=True):
    """Where a recovery stands; None in place of a stage means full rate. Plain values, part of what a tick remembers.

    `number` counts the steps taken; `since_ms` is when this one came into force. `oldest_age_s` and `pending` are as
    the last observation, or the start, saw them. `windows` were observed at this step, the last of them `window_ms`.
    """

    cause: Cause
    since_ms: int
    oldest_age_s: float
    pending: int
    number: int = 0
    windows: int = 0
    window_ms: int = -1

    @property
    def share(self) -> float:
        return SHARES[min(max(0, self.number), len(SHARES) - 1)]

    @property
    def full(self) -> bool:
        return self.number >= len(SHARES) - 1
