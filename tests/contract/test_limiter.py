"""Shared permits: the item in DynamoDB and the pure algorithm say the same, reservation by reservation."""

from __future__ import annotations

import random

import pytest

from shared.core.exchange import Granted, NoRoom, Reservation
from shared.core.permits import Full, Reserved, gcra_reserve, interval_us
from shared.core.settings import UpstreamSettings
from shared.errors import LedgerUnavailable
from shared.ports import Limiter
from tests.contract.worlds import NOW_MS, AwsWorld

TEN = UpstreamSettings(name="ten", endpoint="http://x", limit_per_s=10)
BURST = UpstreamSettings(name="burst", endpoint="http://x", limit_per_s=10, burst_calls=5)


def reserve(
    limiter: Limiter, upstream: UpstreamSettings, *, calls: int = 1, at_ms: int = 0, within_ms: int = 0
) -> Reservation:
    now_ms = NOW_MS + at_ms
    return limiter.reserve(upstream, calls=calls, now_ms=now_ms, latest_ms=now_ms + within_ms)


def granted(at_ms: float, spacing_ms: float = 100) -> Granted:
    return Granted(start_ms=NOW_MS + at_ms, spacing_ms=spacing_ms)


def test_permits_are_spaced_evenly_and_wait_in_line(limiter: Limiter) -> None:
    assert reserve(limiter, TEN) == granted(0)
    assert reserve(limiter, TEN) == NoRoom(free_at_ms=NOW_MS + 100)
    assert reserve(limiter, TEN, within_ms=100) == granted(100)
    assert reserve(limiter, TEN, calls=3, within_ms=500) == granted(200)
    assert reserve(limiter, TEN, within_ms=499) == NoRoom(free_at_ms=NOW_MS + 500)
    assert reserve(limiter, TEN, at_ms=5000) == granted(5000)  # idle time is not saved up


def test_a_burst_starts_at_once_after_a_rest(limiter: Limiter) -> None:
    assert [reserve(limiter, BURST) for _ in range(6)] == [granted(0)] * 5 + [NoRoom(free_at_ms=NOW_MS + 100)]


def test_what_is_refused_reserves_nothing(limiter: Limiter) -> None:
    reserve(limiter, TEN, calls=10)

    for _ in range(3):
        assert reserve(limiter, TEN, within_ms=900) == NoRoom(free_at_ms=NOW_MS + 1000)
    assert reserve(limiter, TEN, within_ms=1000) == granted(1000)


@pytest.mark.parametrize("upstream", (TEN, BURST))
def test_a_latest_start_in_the_past_gets_nothing(limiter: Limiter, upstream: UpstreamSettings) -> None:
    assert reserve(limiter, upstream, within_ms=-1) == NoRoom(free_at_ms=NOW_MS)
    reserve(limiter, upstream, calls=20)

    answer = reserve(limiter, upstream, within_ms=-1)
    assert answer == NoRoom(free_at_ms=NOW_MS + 2000 - (upstream.burst_calls - 1) * 100)


def test_upstreams_are_apart(limiter: Limiter) -> None:
    reserve(limiter, TEN, calls=50)

    assert reserve(limiter, BURST) == granted(0)


@pytest.mark.parametrize("upstream", (TEN, BURST))
def test_nothing_starts_inside_a_hold_and_no_hold_is_shortened(limiter: Limiter, upstream: UpstreamSettings) -> None:
    reserve(limiter, upstream)
    limiter.hold(upstream, until_ms=NOW_MS + 30_000)
    limiter.hold(upstream, until_ms=NOW_MS + 10_000)

    assert reserve(limiter, upstream, within_ms=29_999) == NoRoom(free_at_ms=NOW_MS + 30_000)
    assert reserve(limiter, upstream, at_ms=20_000, within_ms=10_000) == granted(30_000)
    assert reserve(limiter, upstream, at_ms=60_000) == granted(60_000)


def test_a_hold_before_the_first_call_holds(limiter: Limiter) -> None:
    limiter.hold(TEN, until_ms=NOW_MS + 500)

    assert reserve(limiter, TEN) == NoRoom(free_at_ms=NOW_MS + 500)


@pytest.mark.parametrize("seed", range(6))
def test_every_adapter_agrees_with_the_pure_algorithm(limiter: Limiter, seed: int) -> None:
    draw = random.Random(seed)
    upstream = UpstreamSettings(
        name=f"random-{seed}", endpoint="http://x", limit_per_s=draw.choice((0.3, 3, 7, 33.3)), burst_calls=1 + seed % 3
    )
    tat_us: int | None = None
    now_ms = NOW_MS
    for _ in range(40):
        now_ms += draw.choice((0, 0, 3, 50, -20, 2000))
        latest_ms, calls = now_ms + draw.choice((0, 10, 500, 5000)), draw.choice((1, 1, 2, 5))
        spacing_us = interval_us(upstream.limit_per_s)
        pure = gcra_reserve(
            tat_us,
            now_us=now_ms * 1000,
            latest_us=latest_ms * 1000,
            interval_us=spacing_us,
            calls=calls,
            burst_calls=upstream.burst_calls,
        )
        answer = limiter.reserve(upstream, calls=calls, now_ms=now_ms, latest_ms=latest_ms)
        match pure:
            case Reserved(start_us=start_us):
                tat_us = pure.tat_us
                assert answer == Granted(start_ms=start_us / 1000, spacing_ms=spacing_us / 1000)
            case Full(free_at_us=free_at_us):
                assert answer == NoRoom(free_at_ms=free_at_us / 1000)


def test_a_lost_answer_wastes_a_permit_and_makes_none(aws: AwsWorld) -> None:
    reserve(aws.limiter, TEN)
    with aws.answers_lost("update_item"), pytest.raises(LedgerUnavailable):
        reserve(aws.limiter, TEN, within_ms=1000)

    assert reserve(aws.limiter, TEN, within_ms=1000) == granted(200)


def test_a_reservation_on_a_busy_upstream_is_one_write(aws: AwsWorld) -> None:
    reserve(aws.limiter, TEN)
    calls: list[str] = []
    call = aws.table.call

    def counted(operation: str, **request: object) -> object:
        calls.append(operation)
        return call(operation, **request)  # type: ignore[arg-type]

    aws.table.call = counted  # type: ignore[method-assign]
    for _ in range(5):
        reserve(aws.limiter, TEN, within_ms=10_000)

    assert calls == ["update_item"] * 5
