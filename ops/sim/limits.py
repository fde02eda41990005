"""What an upstream really allows: three kinds of limiter behind a limit that may change with time, unknown to us."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Final, Protocol

_LONGEST_WAIT_S: Final = 60.0
"""What a limiter that allows nothing at all asks a caller to wait."""


class LimiterKind(StrEnum):
    TOKEN_BUCKET = "token_bucket"  # noqa: S105 - the name of an algorithm
    FIXED_WINDOW = "fixed_window"
    SLIDING_WINDOW = "sliding_window"


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenLimit:
    """Calls per second as a step function: `per_s` until the first change, which is at a time in milliseconds."""

    per_s: float
    changes: tuple[tuple[int, float], ...] = ()

    def at(self, now_ms: int) -> float:
        number = bisect_right(self.changes, now_ms, key=lambda change: change[0])
        return self.changes[number - 1][1] if number else self.per_s

    def calls_between(self, from_ms: int, to_ms: int) -> float:
        """What the limit allows from one moment to another: its integral."""
        if not self.changes:
            return self.per_s * max(0, to_ms - from_ms) / 1000
        edges = [from_ms, *(at_ms for at_ms, _ in self.changes if from_ms < at_ms < to_ms), max(from_ms, to_ms)]
        return sum(self.at(low) * (high - low) / 1000 for low, high in pairwise(edges))


class Gate(Protocol):
    def admit(self, now_ms: int) -> float | None:
        """None: the call is allowed, and counted. Otherwise the seconds until one could be."""
        ...


@dataclass(slots=True)
class TokenBucket:
    limit: HiddenLimit
    capacity: Callable[[float], float]
    at_ms: int = -1
    tokens: float = 0.0

    def admit(self, now_ms: int) -> float | None:
        rate = self.limit.at(now_ms)
        room = self.capacity(rate)
        earned = room if self.at_ms < 0 else self.limit.calls_between(self.at_ms, now_ms)
        self.tokens, self.at_ms = min(room, self.tokens + earned), now_ms
        if self.tokens >= 1:
            self.tokens -= 1
            return None
        return (1 - self.tokens) / rate if rate > 0 else _LONGEST_WAIT_S


@dataclass(slots=True)
class FixedWindow:
    """Counts anew at every whole window of the clock: two windows' worth may come at a boundary."""

    limit: HiddenLimit
    window_ms: int
    burst: float = 0.0
    window: int = -1
    used: int = 0

    def admit(self, now_ms: int) -> float | None:
        window = now_ms // self.window_ms
        if window != self.window:
            self.window, self.used = window, 0
        if self.used + 1 <= self.limit.at(now_ms) * self.window_ms / 1000 + self.burst:
            self.used += 1
            return None
        return ((window + 1) * self.window_ms - now_ms) / 1000


@dataclass(slots=True)
class SlidingWindow:
    """The strictest: no window of this length, wherever it begins, holds more than its limit."""

    limit: HiddenLimit
    window_ms: int
    burst: float = 0.0
    admitted: deque[int] = field(default_factory=deque)

    def admit(self, now_ms: int) -> float | None:
        while self.admitted and self.admitted[0] <= now_ms - self.window_ms:
            self.admitted.popleft()
        if len(self.admitted) + 1 <= self.limit.at(now_ms) * self.window_ms / 1000 + self.burst:
            self.admitted.append(now_ms)
            return None
        if not self.admitted:
            return _LONGEST_WAIT_S
        return (self.admitted[0] + self.window_ms - now_ms) / 1000


def gate_of(kind: LimiterKind, limit: HiddenLimit, *, burst_calls: float | None, window_ms: int) -> Gate:
    """`burst_calls` None: a bucket holds one second's worth, a window nothing beyond its limit."""
    if kind is LimiterKind.TOKEN_BUCKET:
        return TokenBucket(limit, lambda rate: max(1.0, rate if burst_calls is None else burst_calls))
    window = FixedWindow if kind is LimiterKind.FIXED_WINDOW else SlidingWindow
    return window(limit, window_ms, burst_calls or 0.0)


def retry_after_s(wait_s: float) -> float:
    """Whole seconds, as the header says them; never 0, which would invite the next call at once."""
    return float(max(1, math.ceil(wait_s)))
