"""A simulated upstream: it has a limit of its own, remembers idempotency keys, takes its time, and says no.

What it really allows is unknown to us: three kinds of limiter, behind a limit that may change with time.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct

from ops.simulator.world import World
from shared.domain.settings import Consequence, UpstreamSettings
from shared.errors import QuotaExhausted, Refused, UpstreamFailed, UpstreamHeld, UpstreamRejected

_LONGEST_WAIT_S: Final = 60.0
"""What a limiter that allows nothing at all asks a caller to wait."""

OK: Final = 200

TOO_MANY: Final = 429
"""The limiter refused the call."""

OVERLOADED: Final = 503
"""The limiter allowed it, and the upstream could not do it."""


class LimiterKind(StrEnum):
    TOKEN_BUCKET = "token_bucket"  # noqa: S105 - the name of an algorithm
    FIXED_WINDOW = "fixed_window"
    SLIDING_WINDOW = "sliding_window"


class HiddenLimit(Struct, frozen=True, kw_only=True):
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


@dataclass(frozen=True, slots=True)
class UpstreamCall:
    """One call as it arrived, for the checkers of I7 and of the refusals."""

    at_ms: int
    upstream: str
    key: str
    status: int


StatusHook: TypeAlias = Callable[[str, int], int | None]
"""(idempotency key, now_ms) -> a status to answer with instead, or None."""


class Tail(Struct, frozen=True, kw_only=True):
    """The slow ones: this share of the calls takes a time from `ms` instead."""

    share: float
    ms: tuple[int, int]


class UpstreamTruth(Struct, frozen=True, kw_only=True):
    """What the upstream really does, which may differ from what was declared of it.

    `limit_per_s` holds until the first of `changes` (at a time in milliseconds). `bucket_calls` is the burst: None is
    one second's worth for a bucket, nothing for a window. `overloaded` answers this share of the allowed calls with
    `overload_status`. `idempotent` False makes repeats visible as effects.
    """

    limit_per_s: float
    changes: tuple[tuple[int, float], ...] = ()
    limiter: LimiterKind = LimiterKind.TOKEN_BUCKET
    bucket_calls: float | None = None
    window_ms: int = 1000
    latency_ms: tuple[int, int] = (80, 120)
    tail: Tail | None = None
    overloaded: float = 0.0
    overload_status: int = OVERLOADED
    idempotent: bool = True
    status: StatusHook | None = None

    @property
    def limit(self) -> HiddenLimit:
        return HiddenLimit(per_s=self.limit_per_s, changes=self.changes)

    def gate(self) -> Gate:
        return gate_of(self.limiter, self.limit, burst_calls=self.bucket_calls, window_ms=self.window_ms)

    def draw_latency_ms(self, rng: random.Random) -> int:
        slow = self.tail is not None and rng.random() < self.tail.share
        return rng.randint(*(self.tail.ms if slow and self.tail else self.latency_ms))


class SimUpstream:
    """`effects` counts what was done per idempotency key: the truth that I2's checker compares with the outputs."""

    def __init__(self, world: World, truths: Mapping[str, UpstreamTruth] | None = None) -> None:
        self.truths = dict(truths or {})
        self.calls: list[UpstreamCall] = []
        self.effects: Counter[str] = Counter()
        self.refusals = 0
        self.on_call: Callable[[UpstreamCall], None] | None = None
        self._world = world
        self._rng: random.Random = world.random("upstream")
        self._gates: dict[str, Gate] = {}
        self._answers: dict[str, Mapping[str, Any]] = {}

    def call(
        self, upstream: UpstreamSettings, body: Mapping[str, Any], *, idempotency_key: str, timeout_s: float
    ) -> Mapping[str, Any]:
        """The effect happens on arrival, the answer comes a latency later: in between the caller can die."""
        truth = self._truth(upstream)
        status, wait_s = self._status(upstream, truth, idempotency_key)
        self._note(UpstreamCall(self._world.now_ms, upstream.name, idempotency_key, status))
        answer = self._effect(truth, body, idempotency_key) if status == OK else {}
        latency_ms, timeout_ms = truth.draw_latency_ms(self._rng), int(timeout_s * 1000)
        self._world.sleep(min(latency_ms, timeout_ms))
        if latency_ms > timeout_ms:
            raise UpstreamFailed()
        _raise_for(status, upstream, wait_s)
        return answer

    def _truth(self, upstream: UpstreamSettings) -> UpstreamTruth:
        truth = self.truths.get(upstream.name)
        if truth is None:
            truth = self.truths[upstream.name] = UpstreamTruth(limit_per_s=upstream.limit_per_s)
        return truth

    def _status(self, upstream: UpstreamSettings, truth: UpstreamTruth, key: str) -> tuple[int, float | None]:
        forced = None if truth.status is None else truth.status(key, self._world.now_ms)
        if forced is not None:
            return forced, None
        if upstream.name not in self._gates:
            self._gates[upstream.name] = truth.gate()
        wait_s = self._gates[upstream.name].admit(self._world.now_ms)
        if wait_s is not None:
            return TOO_MANY, retry_after_s(wait_s)
        if truth.overloaded and self._rng.random() < truth.overloaded:
            return truth.overload_status, None
        return OK, None

    def _note(self, call: UpstreamCall) -> None:
        self.calls.append(call)
        self.refusals += call.status == TOO_MANY
        if self.on_call is not None:
            self.on_call(call)

    def _effect(self, truth: UpstreamTruth, body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        if truth.idempotent and key in self._answers:
            return self._answers[key]
        self.effects[key] += 1
        digest = hashlib.sha256(json.dumps(body, sort_keys=True, default=str).encode()).hexdigest()
        self._answers[key] = {"summary": digest[:16], "tokens": 100}
        return self._answers[key]


def _raise_for(status: int, upstream: UpstreamSettings, wait_s: float | None) -> None:
    if status < 400:
        return
    match upstream.errors.get(status, Consequence.REFUSE if status == TOO_MANY else None):
        case Consequence.REFUSE:
            raise Refused(wait_s)
        case Consequence.HOLD:
            raise UpstreamHeld(wait_s)
        case Consequence.EXHAUSTED:
            raise QuotaExhausted()
        case Consequence.REJECT:
            raise UpstreamRejected()
    raise UpstreamRejected() if status < 500 else UpstreamFailed()
