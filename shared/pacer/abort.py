"""When a drain does more harm than good and must stop by itself: a pause with a reason, nothing deleted
(protocol: abort).

`windows_to_judge` makes of a class's last ticks what the rules look at; `judge` puts the rules to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from math import isfinite
from typing import Final

from msgspec import Struct

from shared.domain import stats
from shared.domain.control import REPAIR_MARK, Control, TickLine
from shared.domain.settings import AbortRules, ClassSettings
from shared.pacer.cost import spent
from shared.pacer.snapshot import Gathered

ENOUGH_ROWS: Final = 20
"""Rows below which a ratio of them says nothing."""

LEFT_OVER: Final = 2
"""Fewer pending rows than this many times the retries of a minute are the end of a drain: what fails is left."""

STUCK_SHARE: Final = 0.5
"""A backlog that ages while at least this share of what was due is finished is a large one, and not a stuck one."""


class AbortReason(StrEnum):
    """The low-cardinality code that the pause, the log line and the alarm carry (I12)."""

    AGE_RISING = "age_rising"
    OVER_ALLOWANCE = "over_allowance"
    RETRY_GROWTH = "retry_growth"
    DEAD_RATIO = "dead_ratio"
    SPEND = "spend"


class Abort(Struct, frozen=True, kw_only=True):
    """`sentence` says it with its numbers, for the one who is woken; figures only."""

    reason: AbortReason
    sentence: str


class Health(Struct, frozen=True, kw_only=True):
    """One closed window of an unpaused class, and the backlog as it was seen at its end.

    `calls` and `allowance_calls` are of the upstream, the latter with the declared burst; None without an upstream.
    `due_completions` are those to be expected of the rate in force and of what was admitted; None: not known.
    `retries` are rows that came back (refused, held, failed), `deaths` those that became dead.
    """

    oldest_age_s: float
    pending: int
    starts: int = 0
    arrivals: int = 0
    completions: int = 0
    retries: int = 0
    deaths: int = 0
    calls: int = 0
    allowance_calls: float | None = None
    spend_usd: float = 0.0
    due_completions: float | None = None

    def __post_init__(self) -> None:
        for name in ("oldest_age_s", "spend_usd"):
            value = getattr(self, name)
            if not isfinite(value) or value < 0:
                raise ValueError(f"{name} must be finite and not negative, got {value}")


def judge(windows: Sequence[Health], rules: AbortRules) -> Abort | None:
    """The first rule that the windows break, oldest window first; None: go on.

    The order is by how surely it is our own fault: the allowance, money, dead rows, retries, age.
    """
    checks = (
        _over_allowance(windows, rules.excess_share),
        _spend(windows, rules.spend_usd),
        _dead_ratio(windows, rules.dead_share),
        _retry_growth(windows, rules.retry_share),
        _age_rising(windows, rules.age_windows),
    )
    return next((found for found in checks if found is not None), None)


def _over_allowance(windows: Sequence[Health], excess_share: float | None) -> Abort | None:
    """One call more is what a window's edge can do by itself."""
    last = windows[-1] if windows else None
    if excess_share is None or last is None or last.allowance_calls is None:
        return None
    if last.calls <= last.allowance_calls * (1 + excess_share) + 1:
        return None
    sentence = f"{last.calls} calls in a minute, {last.allowance_calls:.1f} allowed"
    return Abort(reason=AbortReason.OVER_ALLOWANCE, sentence=sentence)


def _spend(windows: Sequence[Health], spend_usd: float | None) -> Abort | None:
    spent = sum(window.spend_usd for window in windows)
    if spend_usd is None or spent <= spend_usd:
        return None
    return Abort(reason=AbortReason.SPEND, sentence=f"{spent:.2f} USD spent, {spend_usd:.2f} allowed")


def _dead_ratio(windows: Sequence[Health], dead_share: float | None) -> Abort | None:
    deaths = sum(window.deaths for window in windows)
    ended = deaths + sum(window.completions for window in windows)
    if dead_share is None or ended < ENOUGH_ROWS or deaths <= dead_share * ended:
        return None
    return Abort(reason=AbortReason.DEAD_RATIO, sentence=f"{deaths} of {ended} rows that ended are dead")


def _retry_growth(windows: Sequence[Health], retry_share: float | None) -> Abort | None:
    """Twice more retries than the window before, and together they take what would have drained the backlog."""
    if retry_share is None or len(windows) < 3:
        return None
    last = windows[-1]
    grows = _rises(window.retries for window in windows[-3:])
    margin = max(0, last.starts - last.arrivals)
    if not grows or last.retries < ENOUGH_ROWS or last.retries < retry_share * margin:
        return None
    if last.pending < LEFT_OVER * last.retries:  # the end of a drain: what is left is what fails, and harms nobody
        return None
    sentence = f"retries grew to {last.retries} rows a minute, the recovery margin is {margin}"
    return Abort(reason=AbortReason.RETRY_GROWTH, sentence=sentence)


def _age_rising(windows: Sequence[Health], age_windows: int | None) -> Abort | None:
    """The age alone would stop every healthy drain of rows that became due at one moment: their oldest only ages."""
    if age_windows is None or len(windows) <= age_windows:
        return None
    seen = windows[-age_windows - 1 :]
    backlog_falls = any(after.pending < before.pending for before, after in pairwise(seen))
    if backlog_falls or not _rises(window.oldest_age_s for window in seen):
        return None
    due = sum(window.due_completions or 0.0 for window in seen[1:])
    if all(window.due_completions is not None for window in seen[1:]):
        # More may arrive than the capacity: that is no harm done by us. And three rows an hour say nothing in a minute.
        done = sum(window.completions + window.deaths for window in seen[1:])
        if due < ENOUGH_ROWS or done >= STUCK_SHARE * due:
            return None
    first_s, last_s = seen[0].oldest_age_s, seen[-1].oldest_age_s
    sentence = f"the oldest row's age rose from {first_s:.0f} to {last_s:.0f} s and nothing drained"
    return Abort(reason=AbortReason.AGE_RISING, sentence=sentence)


def _rises(values: Iterable[float]) -> bool:
    return all(after > before for before, after in pairwise(values))


# -- what the rules look at

LOOK_BACK_TICKS: Final = 10
"""Enough for the rules that compare windows, and for the ratio of the dead: at the end of a drain only what fails is
left, and for some minutes most rows that end are dead ones."""

LONGEST_LOOK_MINUTES: Final = 10
"""Of a longer interval its last minutes are judged, the same number of each."""


def minutes_to_judge(settings: ClassSettings, control: Control, now_ms: int) -> set[int]:
    """The minutes whose counters `windows_to_judge` needs."""
    ends = [line.at_ms for line in _judged_ticks(control, now_ms)[1:]] + [now_ms]
    return {start_ms for end_ms in ends for start_ms in _minutes_before(settings, end_ms)}


def windows_to_judge(gathered: Gathered) -> list[Health]:
    """One for each interval between ticks that admitted at full rate, oldest first; the last one ends now.

    Not across a pause or a staged recovery: a backlog grows in both, as it should.
    """
    ticks = _judged_ticks(gathered.control, gathered.now_ms)
    ends = [*((line.at_ms, line.pending, line.oldest_age_s) for line in ticks[1:])]
    ends.append((gathered.now_ms, gathered.pending, gathered.oldest_age_s))
    return [_health(gathered, before, *end) for before, end in zip(ticks, ends, strict=False)]


def _judged_ticks(control: Control, now_ms: int) -> list[TickLine]:
    """The ticks since the last pause or staged recovery that admitted, oldest first; of one minute the last one."""
    resumed_ms = 0 if control.resumed is None else control.resumed.at_ms
    ticks: list[TickLine] = []
    minute_ms = stats.window_of(now_ms)
    for line in reversed(control.history):
        if line.paused or line.staged or line.at_ms < resumed_ms or len(ticks) == LOOK_BACK_TICKS:
            break
        if stats.window_of(line.at_ms) != minute_ms and not line.run_id.endswith(REPAIR_MARK):
            ticks.append(line)
            minute_ms = stats.window_of(line.at_ms)
    return ticks[::-1]


def _minutes_before(settings: ClassSettings, end_ms: int) -> list[int]:
    minutes = min(LONGEST_LOOK_MINUTES, settings.tick_interval_s * 1000 // stats.WINDOW_MS)
    return [stats.window_of(end_ms) - number * stats.WINDOW_MS for number in range(minutes, 0, -1)]


def _health(gathered: Gathered, before: TickLine, end_ms: int, pending: int, oldest_age_s: int) -> Health:
    counted = gathered.counted(_minutes_before(gathered.settings, end_ms))
    upstream = gathered.upstream if end_ms == gathered.now_ms else None
    worked_s = max(0.0, (end_ms - before.at_ms) / 1000 - gathered.measures.service_s.value)
    ticks = len(counted) * stats.WINDOW_MS / 1000 / gathered.settings.tick_interval_s
    return Health(
        oldest_age_s=oldest_age_s,
        pending=pending,
        starts=stats.total(counted, stats.STARTS),
        arrivals=max(0, pending - before.pending + stats.total(counted, *stats.ENDINGS)),
        completions=stats.total(counted, stats.COMPLETIONS),
        retries=stats.total(counted, *stats.RETRIED),
        deaths=stats.total(counted, stats.DEATHS),
        calls=0 if upstream is None else upstream.calls,
        allowance_calls=None if upstream is None else upstream.allowed_calls,
        spend_usd=spent(counted, gathered.settings, ticks=ticks, rows=pending, prices=gathered.prices).total_usd,
        due_completions=min(before.rate_per_s * worked_s, before.admitted + before.in_flight),
    )
