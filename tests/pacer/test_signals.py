"""What somebody is woken for: counted once, a minute late, and silent where silence is by design."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shared.domain import stats
from shared.domain.control import TickLine
from shared.domain.job import LaneCounts
from shared.domain.settings import ClassSettings
from shared.domain.stats import StatsWindow
from shared.pacer.forecast import DrainState, Eta
from shared.pacer.telemetry import Signals, signals

MINUTE_MS = 60_000
NOW_MS = 1_800_000_000_000  # a whole minute
SETTINGS = ClassSettings(name="c", kind="sim", tick_interval_s=60)
ETA = Eta(state=DrainState.DRAINING, seconds=600.0, rate_per_s=1.0)
LINE = TickLine(
    run_id="c@minute",
    at_ms=NOW_MS + 2_000,
    paused=False,
    waiting=LaneCounts(recovery=100),
    later=0,
    behind=0,
    in_flight=5,
    dead=0,
    budget=20,
    admitted=20,
    confirmed=20,
    swept=0,
    rate_per_s=0.3,
    binding="edge",
    oldest_age_s=60,
    eta_s=None,
)


def windows(*counters: dict[str, int]) -> list[StatsWindow]:
    """Closed minutes, newest first, ten of them."""
    padded = [*counters, *[{}] * (10 - len(counters))]
    return [StatsWindow(start_ms=NOW_MS - (n + 1) * MINUTE_MS, counters=each) for n, each in enumerate(padded)]


def seen(*counters: dict[str, int], before_minutes: int | None = 1, **changes: Any) -> Signals:
    before_ms = None if before_minutes is None else NOW_MS + 2_000 - before_minutes * MINUTE_MS
    return signals(SETTINGS, replace(LINE, **changes), ETA, windows(*counters), before_ms=before_ms)


def test_every_minute_is_counted_by_one_tick_and_a_minute_after_it_closed() -> None:
    minutes = [{stats.HOP_CAPS: 1}, {stats.HOP_CAPS: 10}, {stats.HOP_CAPS: 100}, {stats.HOP_CAPS: 1000}]

    assert seen(*minutes).hop_caps == 10, "the newest minute is still being written"
    assert seen(*minutes, before_minutes=3).hop_caps == 1110, "a tick that was missed is made up for"
    assert seen(*minutes, before_minutes=0).hop_caps == 0, "another tick within the minute counts nothing twice"
    assert seen(*minutes, before_minutes=None).hop_caps == 10


def test_a_refusal_ratio_needs_calls_and_never_exceeds_one() -> None:
    assert seen({}, {}).refusal_ratio is None
    assert seen({}, {stats.CALLS: 40, stats.REFUSALS: 2}).refusal_ratio == 0.05
    assert seen({}, {stats.CALLS: 1, stats.REFUSALS: 2}).refusal_ratio == 1.0


def test_rows_that_wait_while_nobody_starts_anything_are_told() -> None:
    assert seen().waiting_without_starts
    assert seen({}, {}, {}, {}, {}, {stats.STARTS: 9}).waiting_without_starts, "six minutes ago is too long ago"


@pytest.mark.parametrize(
    ("counters", "changes"),
    [
        ({stats.STARTS: 1}, {}),
        ({stats.RESUMES: 1}, {}),
        ({stats.CHUNKS: 1}, {}),  # a long chunk has ended; its start is written only now
        ({}, {"paused": True}),  # somebody wants that
        ({}, {"waiting": LaneCounts()}),
        ({}, {"rate_per_s": 1 / 901}),  # less than one start in 15 minutes is what was asked for
    ],
)
def test_work_a_pause_an_empty_class_and_a_tiny_rate_are_no_alarm(
    counters: dict[str, int], changes: dict[str, Any]
) -> None:
    assert not seen({}, counters, **changes).waiting_without_starts


def test_deferred_rows_are_pinned_at_zero_only_if_all_is_let_in_and_it_still_takes_long() -> None:
    assert seen(waiting=LaneCounts(live=20)).deferred_at_zero
    assert not seen(waiting=LaneCounts(live=21)).deferred_at_zero, "one row is deferred: the pacer paces"
    assert not seen(waiting=LaneCounts(), admitted=0).deferred_at_zero, "an idle class defers nothing"
    soon = replace(ETA, seconds=119.0)
    short = signals(SETTINGS, replace(LINE, waiting=LaneCounts(live=20)), soon, windows(), before_ms=None)
    assert not short.deferred_at_zero, "over within two ticks"
