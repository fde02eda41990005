"""When a drain does more harm than good and must stop by itself: a pause with a reason, nothing deleted
(protocol: abort)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from math import isfinite
from typing import Final

from msgspec import Struct

from shared.domain.settings import AbortRules

ENOUGH_ROWS: Final = 20
"""Rows below which a ratio of them says nothing."""

LEFT_OVER: Final = 2

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
