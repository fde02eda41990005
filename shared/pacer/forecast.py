"""When a drain will be over, from what the ticks observed (I11)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final

from msgspec import Struct

from shared.domain.control import TickLine

ETA_TICKS: Final = 5
"""Unpaused intervals that the rate is observed over: enough to smooth a late tick, few enough to follow a new rate."""


class DrainState(StrEnum):
    """`measuring`: not observed over any interval yet. `growing` and `stalled`: it will not drain.
    `scheduled`: all that is pending is due later, and nothing can drain before."""

    IDLE = "idle"
    DRAINING = "draining"
    GROWING = "growing"
    STALLED = "stalled"
    PAUSED = "paused"
    MEASURING = "measuring"
    SCHEDULED = "scheduled"

    @property
    def will_not_drain(self) -> bool:
        return self in (DrainState.GROWING, DrainState.STALLED)


class Eta(Struct, frozen=True, kw_only=True):
    """`seconds` is finite and not negative, and there only if idle (0) or draining. `rate_per_s` is the net rate.

    The net rate is rows per second off the backlog, completions less arrivals; negative while it grows, None where
    nothing was observed.
    """

    state: DrainState
    seconds: float | None
    rate_per_s: float | None


def drain_eta(
    history: Iterable[TickLine], *, now_ms: int, pending: int, paused: bool, later: int = 0, ticks: int = ETA_TICKS
) -> Eta:
    """pending / (completion rate - arrival rate), both observed at once: as the fall of `pending` over the last `ticks`
    unpaused intervals, the one up to now included.

    What is pending changes only by arrivals and by completions (deaths among them), so its fall is their difference,
    with no counter to drift. An interval with a paused tick at either end is left out, its rows and its time. So is one
    that began at a part of its rate, in a staged recovery, once there is another: what comes next is not that slow.
    """
    rate = _net_rate(history, now_ms=now_ms, pending=pending, paused=paused, ticks=ticks)
    if pending <= 0:
        return Eta(state=DrainState.IDLE, seconds=0.0, rate_per_s=rate)
    if paused:
        return Eta(state=DrainState.PAUSED, seconds=None, rate_per_s=rate)
    if pending <= later:
        return Eta(state=DrainState.SCHEDULED, seconds=None, rate_per_s=rate)
    if rate is None:
        return Eta(state=DrainState.MEASURING, seconds=None, rate_per_s=None)
    if rate > 0:
        return Eta(state=DrainState.DRAINING, seconds=pending / rate, rate_per_s=rate)
    return Eta(state=DrainState.GROWING if rate < 0 else DrainState.STALLED, seconds=None, rate_per_s=rate)


class EtaTrend(Struct, frozen=True, kw_only=True):
    """How the ETA moved since the tick before, and how that movement changed, in seconds. A drain that keeps its pace
    loses one interval a tick: change = -interval, acceleration = 0. None where a tick had no ETA (I11)."""

    change_s: float | None
    acceleration_s: float | None


def eta_trend(history: Sequence[TickLine], eta: Eta) -> EtaTrend:
    """`history` ends with the tick before. Emitted as numbers, since an alarm on metric math is not portable and DIFF
    over sparse data misleads (fact F31)."""
    before, earlier = ([None, None] + [line.eta_s for line in history])[-1:-3:-1]
    change_s = _difference(eta.seconds, before)
    return EtaTrend(change_s=change_s, acceleration_s=_difference(change_s, _difference(before, earlier)))


def _difference(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def _net_rate(history: Iterable[TickLine], *, now_ms: int, pending: int, paused: bool, ticks: int) -> float | None:
    points = [(line.at_ms, line.pending, line.paused, line.staged) for line in history]
    points.sort(key=lambda point: point[0])
    points = [point for point in points if point[0] <= now_ms]
    points.append((now_ms, pending, paused, False))
    working = [(before, after) for before, after in pairwise(points) if not before[2] and not after[2]]
    full = [(before, after) for before, after in working if not before[3]]
    working = (full or working)[-ticks:]
    fallen_rows = sum(before[1] - after[1] for before, after in working)
    worked_ms = sum(after[0] - before[0] for before, after in working)
    return fallen_rows * 1000 / worked_ms if worked_ms > 0 else None
