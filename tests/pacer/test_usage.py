"""What counters say was used: by hand for a few drains, and for any counters never negative and the sum of minutes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from infra.function import ARCHITECTURE
from shared.domain import stats
from shared.domain.settings import ClassSettings
from shared.domain.stats import StatsWindow
from shared.pacer.cost import (
    CONTROL_KB,
    PRICES,
    Usage,
    job_usage,
    spent,
    used_by_ticks,
    used_by_workers,
    wasted,
    write_units,
)

SETTINGS = ClassSettings(name="c", kind="sim", memory_mb=512)
ORDERED = ClassSettings(name="c", kind="sim", memory_mb=512, ordered=True)
NAMES = sorted(
    value for name, value in vars(stats).items() if name.isupper() and isinstance(value, str) and value[0] != "_"
)
COUNTERS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 10_000))


def window(counters: dict[str, int], start_ms: int = 0) -> StatsWindow:
    return StatsWindow(start_ms=start_ms, counters=counters)


ONE_JOB = {
    stats.STARTS: 1,
    stats.CHUNKS: 1,
    stats.COMPLETIONS: 1,
    stats.INVOCATIONS: 1,
    stats.MESSAGES: 1,
    stats.CLASS_READS: 1,
    stats.FLUSHES: 1,
    stats.WORKER_MS: 2_000,
}


def test_a_job_of_one_chunk() -> None:
    used = used_by_workers([window(ONE_JOB)], SETTINGS)

    assert used.write_units == 2 + 3 + 2 + 1  # create, claim, finish; the statistics
    assert used.read_units == 1 + CONTROL_KB / 4  # its row; control
    assert used.queue_requests == pytest.approx(2.1)
    assert (used.invocations, used.gb_seconds) == (1, 1.0)


def test_a_job_of_three_chunks_with_outputs_and_a_continuation() -> None:
    counters = ONE_JOB | {stats.CHUNKS: 3, stats.OUTPUTS: 2, stats.LAST_OUTPUTS: 1, stats.CONTINUATIONS: 1}
    used = used_by_workers([window(counters | {stats.INVOCATIONS: 2, stats.MESSAGES: 2})], SETTINGS)

    commit, continued, finish = 2 * (1 + 1), 2 * (1 + 1) + 2, 2 * (2 + 1)
    assert used.write_units == 2 + 3 + commit + continued + finish + 1
    assert used.read_units == 2 + 3 + CONTROL_KB / 4  # and each row that a transaction could not show
    assert used.queue_requests == pytest.approx(0.1 + 1 + 2 * 2)


def test_a_refused_job_pays_for_its_way_back_and_its_second_admission() -> None:
    refused = {
        stats.REFUSALS: 1,
        stats.CALLS: 2,
        stats.INVOCATIONS: 2,
        stats.MESSAGES: 2,
        stats.WASTED_MS: 500,
        stats.WORKER_MS: 2_500,
    }
    used, lost = (made([window(ONE_JOB | refused)], SETTINGS) for made in (used_by_workers, wasted))

    assert used.write_units == 8 + 3 + 3
    assert lost == Usage(write_units=6, read_units=1, queue_requests=2.1, invocations=1, gb_seconds=0.25)


def test_an_ordered_job_joins_a_line_and_hands_it_on() -> None:
    used = used_by_workers([window(ONE_JOB | {stats.HANDOVERS: 1})], ORDERED)

    enter, step = 2 * 4, 2 * (2 + 3 + 1)
    assert used.write_units == enter + step + 1, "the handover is the claim of the next one"


def test_stale_messages_and_redeliveries_buy_nothing() -> None:
    lost = wasted([window({stats.STALE: 3, stats.REDELIVERIES: 2})], SETTINGS)

    assert lost == Usage(write_units=2, read_units=5, queue_requests=12, invocations=5)


def test_tokens_of_wasted_calls_count_at_the_mean_of_a_call() -> None:
    counters = {stats.CALLS: 12, stats.REFUSALS: 2, stats.WASTED_CALLS: 5, stats.INPUT_TOKENS: 1000}

    assert wasted([window(counters)], SETTINGS).input_tokens == 500


@pytest.mark.parametrize(
    ("name", "output", "ordered", "units"),
    [
        ("claim", False, False, 3),  # the row, its old and its new place in the index
        ("finish", False, False, 2),
        ("finish", True, False, 6),  # in one transaction with the output
        ("finish", False, True, 6),  # in one transaction with the line
        ("finish+hand_over", True, True, 14),
        ("mark", False, False, 1),
        ("take_run", False, False, 2 * (1 + CONTROL_KB)),
    ],
)
def test_write_units_of_a_write(name: str, output: bool, ordered: bool, units: int) -> None:
    assert write_units(name, output=output, ordered=ordered) == units


def test_a_tick_is_paid_for_by_control_s_size_and_by_the_rows_it_counts() -> None:
    idle, busy = (used_by_ticks(1, SETTINGS, rows=rows) for rows in (0, 40_000))

    assert idle.write_units == busy.write_units == 2 + 3 * 2 * (1 + CONTROL_KB)
    assert busy.read_units - idle.read_units == pytest.approx(40_000 * 0.2 / 8)


def test_what_a_job_takes_by_itself_is_what_its_counters_say_later() -> None:
    used = used_by_workers([window({**ONE_JOB, stats.FLUSHES: 0})], SETTINGS)

    assert job_usage(service_s=2.0, memory_mb=512) == used


def test_per_drained_job_the_pacer_s_share_is_in_it() -> None:
    without = spent([window(ONE_JOB)], SETTINGS, ticks=0, rows=0)
    with_tick = spent([window(ONE_JOB)], SETTINGS, ticks=1, rows=0)

    assert without.per_job_usd is not None
    assert with_tick.per_job_usd == pytest.approx(without.per_job_usd + used_by_ticks(1, SETTINGS, rows=0).usd())


def test_the_time_is_priced_for_the_processor_that_is_deployed() -> None:
    assert ARCHITECTURE.name == "arm64"
    assert PRICES.gb_second_usd == 13.3334e-6


@given(one=COUNTERS, two=COUNTERS, ordered=st.booleans())
def test_usage_of_any_counters_is_the_sum_of_its_minutes_and_never_negative(
    one: dict[str, int], two: dict[str, int], ordered: bool
) -> None:
    settings = ORDERED if ordered else SETTINGS
    apart = used_by_workers([window(one)], settings) + used_by_workers([window(two, 60_000)], settings)
    together = used_by_workers([window(dict(Counter(one) + Counter(two)))], settings)

    for each in structs.fields(Usage):
        assert getattr(apart, each.name) == pytest.approx(getattr(together, each.name))
        assert getattr(apart, each.name) >= 0


@given(counters=COUNTERS, ticks=st.integers(0, 60), rows=st.integers(0, 10**6))
def test_what_was_for_nothing_is_a_part_of_what_was_spent(counters: dict[str, int], ticks: int, rows: int) -> None:
    found = spent([window(counters)], SETTINGS, ticks=ticks, rows=rows)

    assert 0 <= found.waste_usd <= found.total_usd * (1 + 1e-9)
