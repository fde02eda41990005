"""What a tick counts of the minute that has just closed, while workers are in the middle of long jobs."""

from __future__ import annotations

import pytest

from ops.simulator.world import START_MS
from shared.domain import stats
from tests.worlds import CLASS, MINUTE_MS, Bench, jobs, settings


@pytest.mark.parametrize("chunk_ms", [1_000, 4_000])
def test_a_second_after_the_minute_nine_in_ten_of_its_calls_are_counted(chunk_ms: int) -> None:
    """Jobs of five minutes, so that no invocation ends. A window is fully used from nine tenths of its allowance on."""
    sluice = Bench(settings(limit_per_s=4.0, slots=20, declared_service_s=300.0), ticks=True, workers=True)
    sluice.submit(jobs(12, chunk_ms=chunk_ms, chunks=300_000 // chunk_ms))
    for minute in (3, 4):
        sluice.until((minute + 1) * 60 + 1)
        begun_ms = START_MS + minute * MINUTE_MS
        (window,) = sluice.ledger.read_stats(CLASS, windows_ms=[begun_ms])
        made = sum(begun_ms <= call.at_ms < begun_ms + MINUTE_MS for call in sluice.upstream.calls)

        assert made >= 80
        assert window.counters[stats.CALLS] >= 0.9 * made


def test_a_worker_writes_them_once_more_a_minute_and_not_after_every_chunk() -> None:
    sluice = Bench(settings(limit_per_s=4.0, slots=20, declared_service_s=300.0), ticks=True, workers=True)
    sluice.submit(jobs(1, chunk_ms=1_000, chunks=240))
    sluice.until(60 + 240)

    assert sluice.counters()[stats.CALLS] >= 200
    assert sluice.ledger.writes["add_stats"] <= 4 * 4  # every 30 s, at the minute's end, and what it began anew with
