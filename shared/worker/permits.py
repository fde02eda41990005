"""Permits for calls to an upstream: GCRA, the generic cell rate algorithm, in integer microseconds (I7, fact F40).

One number per item, the theoretical arrival time (TAT): when the next call would be due if all calls were evenly
spaced. Source: ITU-T I.371, virtual scheduling form; here with reservations ahead of time. The k-th call ever
reserved is due at V_k, V_k+1 >= V_k + interval, and starts in [V_k - tolerance, V_k], on the clock of its worker. So n
calls span at least (n - burst) x interval: a window of length w holds at most w / interval + burst starts, after idle
and after a pause too.

If the readings of any two clocks differ by at most d, of two workers or of one before and after a step, then the true
starts in a window of length w are those of w + d on the clocks: at most (w + d) / interval + burst. That is exact. A
clock that is ahead by d takes for idle what is reserved, and moves the arrival time to its own present. That delays the
others by d at most, as a step back by d delays its own worker, and spends the permits of d once, however long the clock
stays ahead; who cannot wait that long gets `Full`. A hold ends at most d too early or too late. DynamoDB refuses what
was signed by a clock more than 5 minutes off, which bounds d. No call starts before its own worker's `now_us`. Of a
holder that dies its permits are lost: those, and no others.

While workers differ over the rate, a window holds what the shortest interval and the longest tolerance among them
allow: 1 + (w + tolerance) / interval.
"""

from __future__ import annotations

from math import ceil, isfinite
from typing import Final

from msgspec import Struct

from shared.domain.numbers import exact
from shared.domain.settings import CALLS_PER_SHARD, UpstreamSettings, shards_of

MOST_ASKED: Final = 3
"""Items that one reservation asks before it takes no for an answer."""

_SECOND_US: Final = 1_000_000


class Reserved(Struct, frozen=True, kw_only=True):
    """The first call may start at `start_us`; `tat_us` is to be stored, if the stored one still is as it was read."""

    start_us: int
    tat_us: int


class Full(Struct, frozen=True, kw_only=True):
    """Nothing is reserved: the first call could start at `free_at_us`, later than asked for."""

    free_at_us: int


def interval_us(rate_per_s: float, *, shards: int = 1) -> int:
    """Microseconds between the calls of each of `shards` that together make this rate; at least 1.

    Rounded up, so that the limit is never exceeded. ValueError if the rate is 0, negative, NaN or infinite.
    """
    if not isfinite(rate_per_s) or rate_per_s <= 0:
        raise ValueError(f"rate_per_s must be finite and above 0, got {rate_per_s}")
    return ceil(shards * _SECOND_US / exact(rate_per_s, name="rate_per_s"))


class Part(Struct, frozen=True, kw_only=True):
    """What one item (shard) gives of an upstream's permits."""

    shard: int
    interval_us: int
    burst_calls: int

    @property
    def tolerance_us(self) -> int:
        """How long before its due time a call may start."""
        return (self.burst_calls - 1) * self.interval_us


def parts_of(upstream: UpstreamSettings, *, calls_per_shard: float = CALLS_PER_SHARD) -> tuple[Part, ...]:
    """The permits of an upstream over its items: the rate in equal parts, the burst as equal as whole calls allow."""
    shards = shards_of(upstream, calls_per_shard=calls_per_shard)
    burst_calls, more = divmod(upstream.burst_calls, shards)
    spacing_us = interval_us(upstream.permits_per_s, shards=shards)
    return tuple(
        Part(shard=shard, interval_us=spacing_us, burst_calls=burst_calls + (shard < more)) for shard in range(shards)
    )


def parts_to_ask(parts: tuple[Part, ...], turn: int) -> tuple[Part, ...]:
    """The item whose turn it is, and those after it, should that one have no room."""
    return tuple(parts[(turn + number) % len(parts)] for number in range(min(len(parts), MOST_ASKED)))


def gcra_reserve(
    tat_us: int | None, *, now_us: int, latest_us: int, interval_us: int, calls: int, burst_calls: int
) -> Reserved | Full:
    """Reserve `calls` consecutive permits whose first starts no later than `latest_us`, or nothing.

    `tat_us` is the stored arrival time, None before the first call. `burst_calls` may start at once after a rest;
    1 spaces all calls evenly. The later calls of a reservation may start after `latest_us`: evenly spaced from
    `start_us` on, they are never too early.

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
