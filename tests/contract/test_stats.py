"""Counters: added to, summed over shards, expiring, and never added twice."""

from __future__ import annotations

import pytest

from shared.aws import keys
from shared.aws.ledger import STATS_KEPT_S
from shared.domain.stats import SHARDS, StatsWindow
from shared.errors import LedgerUnavailable
from shared.ports import Ledger
from tests.contract.worlds import CLASS, NOW_MS, AwsWorld

EARLIER_MS = NOW_MS - 60_000


def test_counters_are_summed_over_calls_and_shards(ledger: Ledger) -> None:
    for shard in range(SHARDS):
        ledger.add_stats(CLASS, window_ms=NOW_MS, shard=shard, counters={"calls": 2, "h12": 1})
    ledger.add_stats(CLASS, window_ms=NOW_MS, shard=0, counters={"calls": 1, "pk": 5, "a kind's own: ü": 1})

    (window,) = ledger.read_stats(CLASS, windows_ms=[NOW_MS])

    assert window.start_ms == NOW_MS
    assert window.counters == {"calls": 2 * SHARDS + 1, "h12": SHARDS, "pk": 5, "a kind's own: ü": 1}


def test_windows_come_in_the_order_asked_and_may_be_empty(ledger: Ledger) -> None:
    ledger.add_stats(CLASS, window_ms=NOW_MS, shard=1, counters={"calls": 1})
    ledger.add_stats("thumbnail", window_ms=EARLIER_MS, shard=1, counters={"calls": 9})

    found = ledger.read_stats(CLASS, windows_ms=[NOW_MS, EARLIER_MS])

    assert found == [StatsWindow(start_ms=NOW_MS, counters={"calls": 1}), StatsWindow(start_ms=EARLIER_MS)]
    assert ledger.read_stats(CLASS, windows_ms=[]) == []


def test_an_hour_of_windows_is_more_than_one_batch(ledger: Ledger) -> None:
    windows_ms = [NOW_MS - number * 60_000 for number in range(60)]
    ledger.add_stats(CLASS, window_ms=windows_ms[-1], shard=SHARDS - 1, counters={"calls": 1})

    assert [window.counters.get("calls", 0) for window in ledger.read_stats(CLASS, windows_ms=windows_ms)] == (
        [0] * 59 + [1]
    )


def test_a_whole_histogram_fits_into_one_write(ledger: Ledger) -> None:
    counters = {f"h{bucket}": bucket + 1 for bucket in range(111)} | {"tokens": 10**15}
    ledger.add_stats(CLASS, window_ms=NOW_MS, shard=2, counters=counters)

    assert ledger.read_stats(CLASS, windows_ms=[NOW_MS])[0].counters == counters


def test_an_addition_whose_answer_is_lost_is_made_at_most_once(aws: AwsWorld) -> None:
    with aws.answers_lost("update_item"), pytest.raises(LedgerUnavailable):
        aws.ledger.add_stats(CLASS, window_ms=NOW_MS, shard=0, counters={"calls": 1})

    assert aws.ledger.read_stats(CLASS, windows_ms=[NOW_MS])[0].counters == {"calls": 1}
    assert aws.clients.dynamodb_once.meta.config.retries["total_max_attempts"] == 1


def test_a_window_expires_by_event_time(aws: AwsWorld) -> None:
    aws.ledger.add_stats(CLASS, window_ms=NOW_MS, shard=0, counters={"calls": 1})
    item = aws.table.get(keys.stats(CLASS, NOW_MS, 0))

    assert item is not None
    assert item["expires_s"] == {"N": str(NOW_MS // 1000 + STATS_KEPT_S)}
