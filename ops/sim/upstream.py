"""A simulated upstream: it has a limit of its own, remembers idempotency keys, takes its time, and says no."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ops.sim.world import World
from shared.core.settings import Consequence, UpstreamSettings
from shared.errors import QuotaExhausted, Refused, UpstreamFailed, UpstreamHeld, UpstreamRejected

TOO_MANY: Final = 429
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
class UpstreamTruth:
    """What the upstream really allows, which may differ from what was declared of it.

    A token bucket of `bucket_calls` (None: one second's worth). `idempotent` False makes repeats visible as effects.
    """

    limit_per_s: float
    bucket_calls: float | None = None
    latency_ms: tuple[int, int] = (80, 120)
    idempotent: bool = True
    status: StatusHook | None = None

    @property
    def capacity(self) -> float:
        return max(1.0, self.limit_per_s) if self.bucket_calls is None else self.bucket_calls


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at_ms: int


class SimUpstream:
    """`effects` counts what was done per idempotency key: the truth that I2's checker compares with the outputs."""

    def __init__(self, world: World, truths: Mapping[str, UpstreamTruth] | None = None) -> None:
        self.truths = dict(truths or {})
        self.calls: list[UpstreamCall] = []
        self.effects: Counter[str] = Counter()
        self._world = world
        self._rng: random.Random = world.random("upstream")
        self._buckets: dict[str, _Bucket] = {}
        self._answers: dict[str, Mapping[str, Any]] = {}

    @property
    def refusals(self) -> int:
        return sum(call.status == TOO_MANY for call in self.calls)

    def call(
        self, upstream: UpstreamSettings, body: Mapping[str, Any], *, idempotency_key: str, timeout_s: float
    ) -> Mapping[str, Any]:
        """The effect happens on arrival, the answer comes a latency later: in between the caller can die."""
        truth = self._truth(upstream)
        status, wait_s = self._status(upstream, truth, idempotency_key)
        self.calls.append(UpstreamCall(self._world.now_ms, upstream.name, idempotency_key, status))
        answer = self._effect(truth, body, idempotency_key) if status == OK else {}
        latency_ms, timeout_ms = self._rng.randint(*truth.latency_ms), int(timeout_s * 1000)
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
        wait_s = self._take_token(upstream.name, truth)
        return (OK, None) if wait_s is None else (TOO_MANY, wait_s)

    def _take_token(self, name: str, truth: UpstreamTruth) -> float | None:
        """None, or the whole seconds until a token is there: what Retry-After can say."""
        now_ms = self._world.now_ms
        bucket = self._buckets.setdefault(name, _Bucket(truth.capacity, now_ms))
        earned = (now_ms - bucket.at_ms) / 1000 * truth.limit_per_s
        bucket.tokens, bucket.at_ms = min(truth.capacity, bucket.tokens + earned), now_ms
        if bucket.tokens >= 1:
            bucket.tokens -= 1
            return None
        return float(math.ceil((1 - bucket.tokens) / truth.limit_per_s)) if truth.limit_per_s > 0 else 60.0

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
