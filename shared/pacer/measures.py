"""What a tick goes by: what a job costs, measured from closed windows, and how many live rows will come.

Calls, chunks, worker time and the long chunk are declared until they are measured.

A ratio per completed job is only right while about as many jobs end as begin. Where long jobs have just begun their
calls are counted and their ends are not; where they run out it is the other way round. So a measure needs enough rows
and a balance of both; without them the last one measured stands, and before any the declared value.

What comes is measured too: the live rows that a tick keeps of its budget, because they are expected before the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, sqrt
from typing import Final

from msgspec import Struct

from shared.domain import stats
from shared.domain.control import Measure, Measures, Origin
from shared.domain.settings import ClassSettings
from shared.domain.stats import StatsWindow

ENOUGH_JOBS: Final = 20
"""Completed jobs from which on a ratio per job is believed."""

ENOUGH_CHUNKS: Final = 20
"""Chunks from which on their percentile is believed."""

BALANCE_SHARE: Final = 0.25
"""Starts and completions may differ by this share of the larger one."""

LONG_CHUNK: Final = 0.95
"""The quantile that stands for a long chunk: what a worker keeps in hand before it begins another one."""


def measure(windows: Sequence[StatsWindow], settings: ClassSettings, *, last: Measures | None = None) -> Measures:
    """From closed windows in any order; `last` is what the tick before used. Every value is finite and not negative.

    Calls per job leaves refused and held ones out: they come again, and are admitted again. `chunks_per_job` has no
    declared value: None until measured. The long chunk is the 95th percentile, read from the histogram (at most 15 %
    above the true one).
    """
    if not settings.measured:
        windows, last = (), None
    calls = stats.total(windows, stats.CALLS) - stats.total(windows, stats.REFUSALS, stats.HOLDS)
    chunks = stats.total(windows, stats.CHUNKS)
    busy_s = stats.total(windows, stats.CHUNK_MS) / 1000
    before: tuple[Measure | None, ...] = (None, None, None, None)
    if last is not None:
        before = (last.calls_per_job, last.chunks_per_job, last.service_s, last.long_chunk_s)
    return Measures(
        calls_per_job=_per_job(max(0, calls), windows, before[0], settings.declared_calls_per_job),
        chunks_per_job=_measured_per_job(chunks, windows) or _remembered(before[1]),
        service_s=_per_job(busy_s, windows, before[2], settings.declared_service_s),
        long_chunk_s=_long_chunk(windows, before[3], settings.declared_chunk_s),
    )


def enough(windows: Sequence[StatsWindow]) -> bool:
    """Whether ratios per job may be read from these windows."""
    done, begun = stats.total(windows, stats.COMPLETIONS), stats.total(windows, stats.STARTS)
    return done >= ENOUGH_JOBS and abs(begun - done) <= BALANCE_SHARE * max(begun, done)


def _measured_per_job(amount: float, windows: Sequence[StatsWindow]) -> Measure | None:
    if not enough(windows) or amount <= 0:
        return None
    jobs = stats.total(windows, stats.COMPLETIONS)
    return Measure(value=amount / jobs, origin=Origin.MEASURED, samples=jobs)


def _per_job(amount: float, windows: Sequence[StatsWindow], last: Measure | None, declared: float) -> Measure:
    return _measured_per_job(amount, windows) or _fallback(last, declared)


def _long_chunk(windows: Sequence[StatsWindow], last: Measure | None, declared_s: float) -> Measure:
    found_ms = stats.percentile_ms(windows, LONG_CHUNK, at_least=ENOUGH_CHUNKS)
    if found_ms is None:
        return _fallback(last, declared_s)
    return Measure(value=found_ms / 1000, origin=Origin.MEASURED, samples=stats.total(windows, stats.CHUNKS))


def _fallback(last: Measure | None, declared: float) -> Measure:
    return _remembered(last) or Measure(value=declared, origin=Origin.DECLARED)


def _remembered(last: Measure | None) -> Measure | None:
    if last is None or last.origin is Origin.DECLARED:
        return None
    return Measure(value=last.value, origin=Origin.REMEMBERED, samples=last.samples)


FADING: Final = 0.7
"""An interval weighs this share of the one after it. Faster would follow chance, slower would keep rows idle when the
arrivals end: rows that are kept and not spent are work that the pool did not get."""

DEVIATIONS: Final = 2.0
"""Standard deviations of a Poisson count above its mean: one arrival in some forty then finds nothing left."""


class Arrived(Struct, frozen=True, kw_only=True):
    """Live rows that were submitted, whether they found allowance or not, in the time between two plans."""

    rows: int
    elapsed_ms: int


def expected_rows(intervals: Sequence[Arrived], *, interval_s: float) -> int:
    """Live rows to expect in an interval, a margin included, from what came in the last ones, oldest first.

    0 while none came: a first arrival waits for its tick, and is measured by then. Half a row counts as one: a single
    arrival keeps a row for some minutes, and not for ever.
    """
    rows = elapsed_s = 0.0
    for interval in intervals:
        rows = rows * FADING + interval.rows
        elapsed_s = elapsed_s * FADING + max(0, interval.elapsed_ms) / 1000
    mean = rows * interval_s / max(elapsed_s, interval_s)
    return floor(mean + DEVIATIONS * sqrt(mean) + 0.5)
