"""What a job costs: measured when there is enough to measure, remembered when there was, declared before."""

from __future__ import annotations

from collections import Counter
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain import stats
from shared.domain.control import Measure, Measures, Origin
from shared.domain.settings import ClassSettings
from shared.domain.stats import StatsWindow
from shared.pacer.measures import enough, measure

SETTINGS = ClassSettings(
    name="replay_summary",
    kind="replay_summary",
    declared_calls_per_job=2.0,
    declared_service_s=4.0,
    declared_chunk_s=2.0,
)


def window(
    *,
    jobs: int = 0,
    starts: int | None = None,
    chunk_ms: int = 1000,
    chunks: int = 2,
    refusals: int = 0,
    holds: int = 0,
) -> StatsWindow:
    """A minute in which `jobs` ended, each of `chunks` chunks with one call in it."""
    counters = Counter(
        {
            stats.COMPLETIONS: jobs,
            stats.STARTS: jobs if starts is None else starts,
            stats.CALLS: jobs * chunks + refusals + holds,
            stats.REFUSALS: refusals,
            stats.HOLDS: holds,
            stats.CHUNKS: jobs * chunks,
            stats.CHUNK_MS: jobs * chunks * chunk_ms,
            stats.bucket_name(chunk_ms): jobs * chunks,
        }
    )
    return StatsWindow(start_ms=0, counters=counters)


def test_with_20_jobs_everything_is_measured() -> None:
    found = measure([window(jobs=10), window(jobs=10, chunks=4)], SETTINGS)
    assert found.calls_per_job == Measure(value=3.0, origin=Origin.MEASURED, samples=20)
    assert found.chunks_per_job == Measure(value=3.0, origin=Origin.MEASURED, samples=20)
    assert found.service_s == Measure(value=3.0, origin=Origin.MEASURED, samples=20)
    assert found.calls_per_job.source == "measured from 20 samples"


def test_with_19_the_declared_values_serve() -> None:
    found = measure([window(jobs=19, chunks=1)], SETTINGS)
    assert found.calls_per_job == Measure(value=2.0, origin=Origin.DECLARED)
    assert found.service_s == Measure(value=4.0, origin=Origin.DECLARED)
    assert found.long_chunk_s == Measure(value=2.0, origin=Origin.DECLARED)
    assert found.chunks_per_job is None
    assert found.service_s.source == "declared"


@pytest.mark.parametrize(("starts", "fits"), [(100, True), (133, True), (134, False), (75, True), (74, False)])
def test_a_ratio_needs_about_as_many_starts_as_ends(starts: int, fits: bool) -> None:
    assert enough([window(jobs=100, starts=starts)]) is fits


def test_what_was_measured_once_stands_while_there_is_too_little_to_measure_again() -> None:
    before = measure([window(jobs=40, chunks=3)], SETTINGS)
    later = measure([window(jobs=1)], SETTINGS, last=before)
    assert later.calls_per_job == Measure(value=3.0, origin=Origin.REMEMBERED, samples=40)
    assert measure([], SETTINGS, last=later) == later


def test_a_declared_value_is_not_remembered_as_a_measure() -> None:
    before = measure([], ClassSettings(name="a", kind="a", declared_service_s=99.0))
    assert measure([], SETTINGS, last=before).service_s.value == 4.0


def test_refused_and_held_calls_are_not_part_of_a_job() -> None:
    found = measure([window(jobs=100, refusals=40, holds=7)], SETTINGS)
    assert found.calls_per_job.value == 2.0


def test_a_class_that_calls_nothing_keeps_the_declared_calls() -> None:
    quiet = StatsWindow(start_ms=0, counters={stats.COMPLETIONS: 50, stats.STARTS: 50, stats.CHUNKS: 50})
    assert measure([quiet], SETTINGS).calls_per_job.origin is Origin.DECLARED


def test_the_long_chunk_is_the_95th_percentile_and_needs_20_chunks() -> None:
    mixed = [window(jobs=45, chunk_ms=1000), window(jobs=5, chunk_ms=30_000)]
    assert 30.0 <= measure(mixed, SETTINGS).long_chunk_s.value <= 30.0 * 1.15
    assert measure([window(jobs=9)], SETTINGS).long_chunk_s.origin is Origin.DECLARED
    assert measure([window(jobs=10, starts=500)], SETTINGS).long_chunk_s.samples == 20  # a chunk needs no balance


counters = st.dictionaries(
    st.sampled_from(
        [stats.COMPLETIONS, stats.STARTS, stats.CALLS, stats.REFUSALS, stats.HOLDS, stats.CHUNKS, stats.CHUNK_MS]
        + [stats.bucket_name(ms) for ms in (1, 50, 1000, 10**7)]
    ),
    st.integers(0, 10**6),
)
any_windows = st.lists(st.builds(StatsWindow, start_ms=st.just(0), counters=counters), max_size=10)


def every(found: Measures) -> list[Measure]:
    each = [found.calls_per_job, found.chunks_per_job, found.service_s, found.long_chunk_s]
    return [one for one in each if one is not None]


@given(windows=any_windows, earlier=any_windows)
def test_whatever_was_counted_every_value_is_finite_and_above_zero(
    windows: list[StatsWindow], earlier: list[StatsWindow]
) -> None:
    found = measure(windows, SETTINGS, last=measure(earlier, SETTINGS))
    assert all(isfinite(one.value) and one.value > 0 for one in every(found))
    assert all(one.samples == 0 for one in every(found) if one.origin is Origin.DECLARED)
    assert measure(windows[::-1], SETTINGS, last=measure(earlier, SETTINGS)) == found
