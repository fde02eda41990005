"""The chunk-duration histogram: a percentile is never below the truth, and at most 15 % above it."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.stats import COMPLETIONS, FAILURES, StatsWindow, bucket_name, percentile_ms, total, window_of

LAMBDAS_LONGEST_MS = 900_000
durations = st.integers(0, LAMBDAS_LONGEST_MS)


def window(samples_ms: list[int], *, start_ms: int = 0) -> StatsWindow:
    return StatsWindow(start_ms=start_ms, counters=Counter(map(bucket_name, samples_ms)))


def number(name: str) -> int:
    return int(name.rpartition("_")[2])


@pytest.mark.parametrize(("now_ms", "start_ms"), [(0, 0), (59_999, 0), (60_000, 60_000), (119_999, 60_000)])
def test_a_window_is_a_utc_minute(now_ms: int, start_ms: int) -> None:
    assert window_of(now_ms) == start_ms


def test_too_few_samples_are_no_percentile() -> None:
    assert percentile_ms([], 0.5, at_least=0) is None
    assert percentile_ms([window([100] * 9)], 0.5, at_least=10) is None
    assert percentile_ms([window([100] * 5), window([100] * 5)], 0.5, at_least=10) is not None


def test_counters_that_are_no_buckets_are_no_samples() -> None:
    counters = {"handovers": 5, "hop_caps": 7, COMPLETIONS: 9}
    assert percentile_ms([StatsWindow(start_ms=0, counters=counters)], 0.5, at_least=1) is None


def test_totals_add_up_over_windows_and_names() -> None:
    windows = [StatsWindow(start_ms=0, counters={COMPLETIONS: 2, FAILURES: 1}), StatsWindow(start_ms=60_000)]
    assert total(windows, COMPLETIONS, FAILURES) == 3
    assert total(windows, "tokens") == 0


def test_what_is_longer_than_the_last_bucket_is_counted_in_it() -> None:
    assert bucket_name(10**12) == bucket_name(10**9)
    assert number(bucket_name(LAMBDAS_LONGEST_MS)) < number(bucket_name(10**9))


@given(one=durations, two=durations)
def test_a_longer_chunk_is_never_in_a_lower_bucket(one: int, two: int) -> None:
    low, high = sorted((one, two))
    assert number(bucket_name(low)) <= number(bucket_name(high))


@settings(deadline=None)
@given(
    samples_ms=st.lists(durations, min_size=1, max_size=60),
    quantile=st.sampled_from([0.01, 0.25, 0.5, 0.75, 0.95, 1.0]),
    cut=st.integers(0, 60),
)
def test_a_percentile_is_at_least_the_true_one_and_at_most_15_percent_more(
    samples_ms: list[int], quantile: float, cut: int
) -> None:
    said = percentile_ms([window(samples_ms[:cut]), window(samples_ms[cut:])], quantile, at_least=1)
    rank = next(rank for rank in range(1, len(samples_ms) + 1) if rank >= quantile * len(samples_ms))
    truth = sorted(samples_ms)[rank - 1]
    assert said is not None
    assert truth <= said <= max(1.0, truth * 1.15 + 1e-6)
