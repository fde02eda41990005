"""A simulated upstream: it has a limit of its own, remembers idempotency keys, takes its time, and says no."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ops.sim.limits import Gate, HiddenLimit, LimiterKind, gate_of, retry_after_s
from ops.sim.world import World
from shared.core.settings import Consequence, UpstreamSettings
from shared.errors import QuotaExhausted, Refused, UpstreamFailed, UpstreamHeld, UpstreamRejected

TOO_MANY: Final = 429
OVERLOADED: Final = 503
OK: Final = 200


@dataclass(frozen=True, slots=True)
class UpstreamCall:
    """One call as it arrived, for the checkers of I7 and of the refusals."""

    at_ms: int
    upstream: str
    key: str
    status: int


StatusHook: TypeAlias = Callable[[str, int], int | None]
"""(idempotency key, now_ms) -> a status to answer with instead, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The slow ones: this share of the calls takes a time from `ms` instead."""

    share: float
    ms: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTruth:
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
