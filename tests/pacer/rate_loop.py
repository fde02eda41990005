"""A closed loop in miniature: permits at the learned rate, a hidden limit, and a tick a minute that learns.

Calls start where GCRA with a burst of 1 puts them, plus jitter, and meet a token bucket of half a second, or windows of
the clock if `window_s` is set. A refusal says Retry-After in whole seconds, at least 1, and holds every permit that is
reserved after its answer arrives; what was reserved before, `ahead_s` of calls, still comes. A call is counted when its
worker flushes, up to `flush_s` later, so a tick shortly after the minute misses some. All of it repeats from `seed`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

from shared.domain.settings import UpstreamSettings
from shared.domain.upstream import Learned
from shared.pacer.rate import WindowCounts, learn_all

MINUTE_S = 60


@dataclass(slots=True, kw_only=True)
class Loop:
    """`limit_at` is the truth in calls per second at a second. A tick comes 0.5 s to `late_s` more after its minute.

    `rates` are (second, calls per second) after each tick; `calls` and `refusals` count by minute.
    """

    upstream: UpstreamSettings
    limit_at: Callable[[float], float]
    learned: Learned
    seed: int
    burst_s: float = 0.5
    jitter_s: float = 0.02
    latency_s: float = 0.1
    ahead_s: float = 0.25
    flush_s: float = 3.0
    late_s: float = 4.0
    tick_s: int = 60
    window_s: float = 0.0
    rates: list[tuple[float, float]] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
    calls: Counter[int] = field(default_factory=Counter)
    refusals: Counter[int] = field(default_factory=Counter)
    _tokens: float = 0.0
    _filled_s: float = 0.0
    _used: Counter[int] = field(default_factory=Counter)

    def run(self, minutes: int) -> Loop:
        rng = random.Random(self.seed)
        end_s = minutes * MINUTE_S
        ticks = [at + rng.uniform(0.5, 0.5 + self.late_s) for at in range(self.tick_s, end_s, self.tick_s)]
        seen: list[tuple[float, int, bool]] = []
        holds: list[tuple[float, float]] = []
        slot_s = held_s = 0.0
        while slot_s < end_s:
            reserved_s = slot_s - self.ahead_s
            while ticks and ticks[0] <= reserved_s:
                seen = self._tick(ticks.pop(0), seen)
            if holds:
                held_s = max([held_s, *(until for known, until in holds if known <= reserved_s)])
                holds = [hold for hold in holds if hold[0] > reserved_s]
            if slot_s < held_s:
                slot_s = held_s
                continue
            arrival_s = slot_s + rng.uniform(0, self.jitter_s)
            wait_s = self._gate(arrival_s)
            refused = wait_s > 0
            if refused:
                known_s = arrival_s + self.latency_s
                holds.append((known_s, known_s + max(1, ceil(wait_s))))
            minute = int(arrival_s // MINUTE_S)
            self.calls[minute] += 1
            self.refusals[minute] += refused
            seen.append((arrival_s + self.latency_s + rng.uniform(0, self.flush_s), minute, refused))
            slot_s += 1 / self.learned.rate_per_s
        return self

    def _gate(self, at_s: float) -> float:
        """The hidden limiter: 0 lets the call through, otherwise the seconds until one would be."""
        limit = self.limit_at(at_s)
        if self.window_s:
            window = int(at_s // self.window_s)
            if self._used[window] + 1 > limit * self.window_s:
                return (window + 1) * self.window_s - at_s
            self._used[window] += 1
            return 0.0
        self._tokens += max(0.0, at_s - self._filled_s) * limit
        self._tokens = min(max(1.0, self.burst_s * limit), self._tokens)
        self._filled_s = max(self._filled_s, at_s)
        if self._tokens < 1:
            return (1 - self._tokens) / limit
        self._tokens -= 1
        return 0.0

    def _tick(self, now_s: float, seen: list[tuple[float, int, bool]]) -> list[tuple[float, int, bool]]:
        closed = int(now_s // MINUTE_S)
        calls: Counter[int] = Counter()
        refusals: Counter[int] = Counter()
        for known_s, minute, refused in seen:
            if minute < closed and known_s <= now_s:
                calls[minute] += 1
                refusals[minute] += refused
        windows = [
            WindowCounts(start_ms=minute * 60_000, calls=calls[minute], refusals=refusals[minute]) for minute in calls
        ]
        self.learned = learn_all(self.learned, windows, upstream=self.upstream, now_ms=int(now_s * 1000))
        self.rates.append((now_s, self.learned.rate_per_s))
        self.decisions.append(self.learned.decision)
        return [each for each in seen if each[1] >= closed]

    def utilisation(self, first: int, last: int) -> float:
        """Accepted calls over what the true limit allowed, in minutes `first` to `last` (excluded)."""
        allowed = sum(self.limit_at(second + 0.5) for second in range(first * 60, last * 60))
        return sum(self.calls[minute] - self.refusals[minute] for minute in range(first, last)) / allowed

    def refused_per_1000(self, first: int, last: int) -> float:
        calls = sum(self.calls[minute] for minute in range(first, last))
        return 1000 * sum(self.refusals[minute] for minute in range(first, last)) / max(1, calls)
