"""The loop that the learned rate closes, against limits that nobody told it: the worst seed counts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pytest
from msgspec.structs import replace

from shared.domain.settings import RatePolicy, UpstreamSettings
from shared.domain.upstream import Learned
from shared.pacer.rate import RECOVERY_WINDOWS, first
from tests.pacer.rate_loop import Loop

UPSTREAM = UpstreamSettings(name="inference", endpoint="http://localhost", limit_per_s=8.0)


@dataclass(frozen=True, slots=True)
class Drop:
    """What a `limit-drop` came to: 75 minutes, the limit halved for 20 of them from some second of minute 20 on."""

    utilisation: float
    refused: float
    refused_around: float
    ticks_to_90: int
    lowest: float
    highest: float


def limit_drop(limit: float, policy: RatePolicy, seed: int) -> Drop:
    rng = random.Random(seed)
    at = 20 * 60 + rng.uniform(0, 60)
    back = at + 20 * 60
    upstream = replace(UPSTREAM, limit_per_s=limit, rate_policy=policy)
    loop = Loop(
        upstream=upstream,
        limit_at=lambda second: limit / 2 if at <= second < back else limit,
        learned=first(upstream),
        seed=seed,
        jitter_s=rng.uniform(0, 0.03),
        ahead_s=rng.uniform(0, 0.5),
    ).run(75)
    returned = [rate for second, rate in loop.rates if second > back]
    dropped = [rate for second, rate in loop.rates if at + 600 < second < back]
    settled = [rate / limit * 2 for rate in dropped] + [rate / limit for rate in returned[10:]]
    return Drop(
        utilisation=loop.utilisation(0, 75),
        refused=loop.refused_per_1000(0, 75),
        refused_around=loop.refused_per_1000(int(at // 60), int(back // 60) + 7),
        ticks_to_90=next((tick for tick, rate in enumerate(returned, 1) if rate >= 0.9 * limit), 99),
        lowest=min(settled),
        highest=max(settled),
    )


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "seeds"), [(8.0, 20), (16.0, 8)])
def test_a_limit_that_halves_for_20_minutes(limit: float, seeds: int) -> None:
    for seed in range(seeds):
        drop = limit_drop(limit, RatePolicy.MEASURED, seed)
        assert drop.utilisation >= 0.90, (seed, drop)
        assert drop.refused <= 15, (seed, drop)
        assert drop.refused_around <= 30, (seed, drop)
        assert drop.ticks_to_90 <= 7, (seed, drop)
        assert drop.lowest >= 0.85, (seed, drop)
        assert drop.highest <= 1.10, (seed, drop)


@pytest.mark.slow
def test_measured_uses_more_of_the_limit_than_halving_on_the_same_seeds() -> None:
    worst = {policy: min(limit_drop(8.0, policy, seed).utilisation for seed in range(8)) for policy in RatePolicy}
    assert worst[RatePolicy.MEASURED] > worst[RatePolicy.HALVING]


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "seeds"), [(4.0, 8), (8.0, 8), (40.0, 2)])
def test_a_known_constant_limit_is_used_and_hardly_ever_refused(limit: float, seeds: int) -> None:
    upstream = replace(UPSTREAM, limit_per_s=limit)
    for seed, window_s in product(range(seeds), (0.0, 10.0)):
        loop = constant(upstream, lambda _: limit, first(upstream), seed, window_s)
        assert loop.utilisation(0, 60) >= 0.97
        assert loop.refused_per_1000(0, 60) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("true_share", [1.0, 0.5], ids=["known limit", "limit half of the declared"])
def test_from_far_below_it_finds_the_limit_in_the_stated_windows_and_stays_there(true_share: float) -> None:
    truth = 8.0 * true_share
    for seed in range(8):
        loop = constant(UPSTREAM, lambda _: truth, Learned(rate_per_s=0.16, good_per_s=0.16), seed)
        rates_seen = [rate for _, rate in loop.rates]
        assert max(rates_seen[:RECOVERY_WINDOWS]) >= 0.9 * truth
        assert min(rates_seen[20:]) >= 0.85 * truth
        assert max(rates_seen[20:]) <= 1.10 * truth
        assert loop.utilisation(20, 60) >= 0.95
        assert loop.refused_per_1000(20, 60) <= 15


def test_ticks_of_5_minutes_settle_too() -> None:
    loop = Loop(upstream=UPSTREAM, limit_at=lambda _: 4.0, learned=first(UPSTREAM), seed=1, tick_s=300).run(150)
    settled = [rate for second, rate in loop.rates if second > 3600]
    assert min(settled) >= 3.4
    assert max(settled) <= 4.4


def constant(
    upstream: UpstreamSettings,
    limit_at: Callable[[float], float],
    learned: Learned,
    seed: int,
    window_s: float = 0.0,
) -> Loop:
    return Loop(
        upstream=upstream,
        limit_at=limit_at,
        learned=learned,
        seed=seed,
        jitter_s=0.01 * (seed % 4),
        window_s=window_s,
    ).run(60)
