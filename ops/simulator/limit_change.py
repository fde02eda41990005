"""How a learned rate follows a true limit that changes: the figures of a scenario whose `truth` has changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ops.simulator.measure import per_1000
from ops.simulator.upstream import TOO_MANY, HiddenLimit, UpstreamCall
from shared.domain.control import TickLine
from shared.pacer.decide import explain

AROUND_TICKS: Final = 6
"""Refusals around the changes are counted from the first change to so many ticks after the last one."""

STEADY_TICK: Final = 7
"""The rate is judged as steady from this tick after a change on; before the first change, from the beginning."""

REACHED_SHARE: Final = 0.9
"""A rate has reached the limit at this part of it."""


def learned_per_s(line: TickLine) -> float | None:
    """The learned rate that this tick found or made, which permits follow too; None without an upstream."""
    explained = explain(line)
    return None if explained is None else explained.snapshot.upstream_rate_per_s


def refused_per_1000(limit: HiddenLimit, calls: Iterable[UpstreamCall], *, interval_s: float) -> float | None:
    """Of the calls around the changes; None where nothing changes."""
    if not limit.changes:
        return None
    from_ms, last_ms = limit.changes[0][0], limit.changes[-1][0] + AROUND_TICKS * interval_s * 1000
    around = [call.status == TOO_MANY for call in calls if from_ms <= call.at_ms < last_ms]
    return per_1000(sum(around), len(around))


def ticks_to_90_percent(limit: HiddenLimit, lines: Sequence[TickLine]) -> int | None:
    """The number of the first tick after the last change whose rate is 90 % of the true limit or more."""
    if not limit.changes:
        return None
    after = [line for line in lines if line.at_ms > limit.changes[-1][0]]
    return next((number for number, line in enumerate(after, 1) if (_part(limit, line) or 0.0) >= REACHED_SHARE), None)


def steady_rates(limit: HiddenLimit, lines: Sequence[TickLine]) -> tuple[float, float] | None:
    """The lowest and the highest learned rate, as parts of the true limit, at ticks that found rows waiting."""
    if not limit.changes:
        return None
    steady: list[float] = []
    ticks = changed = 0
    for line in lines:
        ticks += 1
        changes = sum(at_ms < line.at_ms for at_ms, _ in limit.changes)
        if changes > changed:
            changed, ticks = changes, 1
        part = _part(limit, line)
        if part is not None and line.waiting.total and (changed == 0 or ticks >= STEADY_TICK):
            steady.append(part)
    return (min(steady), max(steady)) if steady else None


def _part(limit: HiddenLimit, line: TickLine) -> float | None:
    """The learned rate as a part of what the upstream really allows."""
    rate_per_s, true_per_s = learned_per_s(line), limit.at(line.at_ms)
    return rate_per_s / true_per_s if rate_per_s is not None and true_per_s > 0 else None
