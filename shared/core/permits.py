"""Permits for calls to an upstream: GCRA, the generic cell rate algorithm, in integer microseconds (I7, TRAPS 41).

One number per upstream, the theoretical arrival time (TAT): when the next call would be due if all calls were evenly
spaced. Source: ITU-T I.371, virtual scheduling form; here with reservations ahead of time. The k-th call ever
reserved is due at V_k, V_k+1 >= V_k + interval, and starts in [V_k - tolerance, V_k]. So n calls span at least
(n - burst) x interval: a window of length w holds at most w / interval + burst starts, after idle and after a pause
too, and also if the workers' clocks differ.
"""

from __future__ import annotations

from math import ceil, isfinite
from typing import Final

from shared.core.lanes import exact
from shared.core.values import frozen

_SECOND_US: Final = 1_000_000


@frozen
class Reserved:
    """The first call may start at `start_us`; `tat_us` is to be stored, if the stored one still is as it was read."""

    start_us: int
    tat_us: int


@frozen
class Full:
    """Nothing is reserved: the first call could start at `free_at_us`, later than asked for."""

    free_at_us: int


def interval_us(rate_per_s: float) -> int:
    """Microseconds between calls at this rate, rounded up so that the limit is never exceeded; at least 1.

    ValueError if the rate is 0, negative, NaN or infinite.
    """
    if not isfinite(rate_per_s) or rate_per_s <= 0:
        raise ValueError(f"rate_per_s must be finite and above 0, got {rate_per_s}")
    return ceil(_SECOND_US / exact(rate_per_s, name="rate_per_s"))


def gcra_reserve(
    tat_us: int | None, *, now_us: int, latest_us: int, interval_us: int, calls: int, burst_calls: int
) -> Reserved | Full:
    """Reserve `calls` consecutive permits whose first starts no later than `latest_us`, or nothing.

    `tat_us` is the stored arrival time, None before the first call. `burst_calls` may start at once after a rest;
    1 spaces all calls evenly. The later calls of a reservation may start after `latest_us`: see `starts_us`.

    ValueError naming the field if `interval_us`, `calls` or `burst_calls` is below 1.
    """
    for name, value in (("interval_us", interval_us), ("calls", calls), ("burst_calls", burst_calls)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    virtual_us = now_us if tat_us is None else max(tat_us, now_us)
    start_us = max(now_us, virtual_us - (burst_calls - 1) * interval_us)
    if start_us > latest_us:
        return Full(free_at_us=start_us)
    return Reserved(start_us=start_us, tat_us=virtual_us + calls * interval_us)


def starts_us(reserved: Reserved, *, interval_us: int, calls: int, burst_calls: int) -> tuple[int, ...]:
    """The earliest start of each reserved call, with the arguments that it was reserved with.

    Evenly spaced starts from `start_us` on are never earlier than these.
    """
    first_us = reserved.tat_us - (calls + burst_calls - 1) * interval_us
    return tuple(max(reserved.start_us, first_us + call * interval_us) for call in range(calls))
