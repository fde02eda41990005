"""Shared permits: the item in DynamoDB and the pure algorithm say the same, reservation by reservation."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from shared.aws.limiter import DynamoLimiter
from shared.domain.settings import UpstreamSettings
from shared.domain.upstream import Granted, NoRoom, Reservation
from shared.errors import LedgerUnavailable
from shared.memory.resources import MemoryLimiter
from shared.ports import Limiter
from shared.worker.permits import Full, Reserved, gcra_reserve, interval_us
from tests.contract.worlds import NOW_MS, AwsWorld, MemoryWorld

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


# -- in several items

FOUR = UpstreamSettings(name="four", endpoint="http://x", limit_per_s=20, burst_calls=4)
"""Four items of 5 calls/s each, one of which may start at once."""


@pytest.fixture
def items(world: MemoryWorld | AwsWorld) -> Limiter:
    """A limiter with 5 calls/s an item. Where a worker begins its round, no test may depend on."""
    if isinstance(world, AwsWorld):
        return DynamoLimiter(world.table, calls_per_shard=5)
    return MemoryLimiter(calls_per_shard=5)


def test_permits_in_several_items_are_as_many_as_in_one(items: Limiter) -> None:
    asked = [reserve(items, FOUR) for _ in range(5)]
    assert asked == [granted(0, 200)] * 4 + [NoRoom(free_at_ms=NOW_MS + 200)]
    assert [reserve(items, FOUR, within_ms=200) for _ in range(4)] == [granted(200, 200)] * 4
    assert reserve(items, FOUR, within_ms=-1) == NoRoom(free_at_ms=NOW_MS + 400)


def test_an_item_without_room_sends_on_to_the_next(items: Limiter) -> None:
    reserve(items, FOUR, calls=50)  # one item's 10 s
    for at_ms in (0, 200, 400):
        asked = [reserve(items, FOUR, at_ms=at_ms) for _ in range(3)]
        assert asked == [granted(at_ms, 200)] * 3
        assert reserve(items, FOUR, at_ms=at_ms) == NoRoom(free_at_ms=NOW_MS + at_ms + 200)


def test_a_hold_is_on_all_items_and_any_of_them_tells_of_it(items: Limiter) -> None:
    reserve(items, FOUR, calls=200)  # reserved beyond the hold's end
    items.hold(FOUR, until_ms=NOW_MS + 30_000)
    items.hold(FOUR, until_ms=NOW_MS + 10_000)

    assert {items.held_until_ms(FOUR) for _ in range(40)} == {NOW_MS + 30_000}
    for _ in range(4):
        assert reserve(items, FOUR, within_ms=29_999) == NoRoom(free_at_ms=NOW_MS + 30_000)
    assert [reserve(items, FOUR, within_ms=30_000) for _ in range(3)] == [granted(30_000, 200)] * 3


def test_the_learned_rate_spaces_the_permits_and_leaves_them_where_they_are(items: Limiter) -> None:
    slow = replace(FOUR, learned_per_s=2.0)
    assert [reserve(items, FOUR) for _ in range(4)] == [granted(0, 200)] * 4
    assert [reserve(items, slow, within_ms=200) for _ in range(4)] == [granted(200, 2000)] * 4
    assert reserve(items, slow, within_ms=2199) == NoRoom(free_at_ms=NOW_MS + 2200)


def test_the_first_of_several_items_is_the_one_that_was_alone_and_keeps_what_was_reserved(aws: AwsWorld) -> None:
    reserve(aws.limiter, FOUR, calls=20)  # 20 calls/s are one item here
    limiter = DynamoLimiter(aws.table, calls_per_shard=5)
    answers = [reserve(limiter, FOUR) for _ in range(6)]

    assert answers.count(granted(0, 200)) == 3
    rows = aws.clients.dynamodb.scan(TableName=aws.name)["Items"]
    assert sorted(row["pk"]["S"] for row in rows) == ["UPSTREAM#four", *(f"UPSTREAM#four#{n}" for n in (1, 2, 3))]
