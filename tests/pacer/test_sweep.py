"""The sweep is the one repair (rule 3): what it touches, when, where to, and what it must leave alone."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from ops.simulator.faults import CrashOn, FaultOn, Stall, When
from ops.simulator.world import START_MS
from shared.domain import stats
from shared.domain.job import Lane, State
from shared.memory.ledger import Staleness
from shared.memory.queue import EntryFault
from tests.worlds import CLASS, Bench, jobs, settings

B_S = 150
"""Visibility (120 s function timeout + 10 s) + 20 s."""


def bench(**options: Any) -> Bench:
    sluice = Bench(settings(live_window_s=200), **options)
    sluice.submit(jobs(1, chunk_ms=60_000))
    return sluice


def ticks(sluice: Bench, minutes: range) -> None:
    for minute in minutes:
        sluice.ticked(minute, at_s=minute * 60)


def test_the_interval_doubles_with_each_re_send_to_at_most_8_b() -> None:
    sluice = bench(entry_fault=lambda _: EntryFault.UNKNOWN_LOST)
    ticks(sluice, range(1, 140))
    sent_ms = [sluice.steps("claim")[0].at_ms, *(step.at_ms for step in sluice.steps("resend"))]
    gaps_s = [(after - before) / 1000 for before, after in pairwise(sent_ms)]
    factors = [1, 2, 4, 8, 8, 8, 8, 8]
    assert len(gaps_s) == len(factors)
    assert all(0 <= gap - B_S * factor < 61 for gap, factor in zip(gaps_s, factors, strict=True))


def test_a_row_is_re_sent_to_the_lane_that_is_stored_on_it_however_old_it_has_become() -> None:
    sluice = bench()
    ticks(sluice, range(1, 7))
    assert sluice.steps("resend")
    messages = [(delivery.message.epoch, delivery.message.copy) for delivery in sluice.receive(lane=Lane.LIVE)]
    assert messages == [(1, 0), (1, 1)]  # one FIFO group, which serialises them
    assert sluice.receive(lane=Lane.RECOVERY) == []


def test_nothing_is_re_sent_before_b() -> None:
    sluice = bench()
    claimed_s = 60
    sluice.ticked(1, at_s=claimed_s)
    assert sluice.ticked(3, at_s=claimed_s + B_S - 1).swept == 0
    assert sluice.ticked(4, at_s=claimed_s + B_S + 1).swept == 1


@pytest.mark.parametrize(
    ("chunks", "moves"),
    [
        (1, ["claim", "resend", "finish"]),
        (2, ["claim", "resend", "continue"]),  # 60 s of 120 s are left, a chunk is declared as 100 s
    ],
)
def test_a_worker_in_mid_chunk_commits_in_spite_of_a_touch(chunks: int, moves: list[str]) -> None:
    """The message waited in the queue for almost B, so the touch comes while its worker is at work."""
    sluice = Bench(settings(declared_chunk_s=60.0))
    sluice.submit(jobs(1, chunks=chunks, chunk_ms=60_000))
    sluice.ticked(1, at_s=60)
    sluice.until(200)
    deliveries = sluice.receive()
    worker = sluice.work(deliveries)
    assert sluice.ticked(3, at_s=220).swept == 1
    sluice.ended(worker)
    assert sluice.moves() == moves
    assert sluice.ledger.lost == {}


def test_a_touch_leaves_the_nonce_alone_so_that_the_worker_still_knows_its_own_writes() -> None:
    sluice = bench()
    ticks(sluice, range(1, 5))
    (step,) = sluice.steps("resend")
    assert (step.after.nonce, step.after.epoch) == (step.before.nonce, step.before.epoch)
    assert (step.before.copy, step.after.copy) == (0, 1)


def test_two_copies_of_one_epoch_run_once_and_the_second_is_counted_as_stale() -> None:
    sluice = bench()
    ticks(sluice, range(1, 5))
    sluice.switch(True)
    sluice.until(600)
    assert [start.job_id for start in sluice.kinds[CLASS].starts] == ["j0"]
    assert sluice.counters()[stats.STALE] == 1
    assert len(sluice.queue.lane(CLASS, Lane.LIVE)) == 0


def test_a_row_that_the_index_shows_too_long_is_not_touched() -> None:
    lag_s = 100
    sluice = bench(staleness=Staleness.fixed(lag_s * 1000))
    sluice.until(110)
    sluice.ticked(2, at_s=120)
    deliveries = sluice.receive()
    sluice.until(220)
    sluice.worked(deliveries)  # done at 280 s, listed as in flight until 380 s
    assert sluice.ticked(5, at_s=300).swept == 0
    assert sluice.ledger.lost == {"resend": 1}
    assert sluice.queue.sent == ["replays/live-1"]


def test_a_paused_tick_sweeps_too() -> None:
    sluice = bench()
    sluice.ticked(1, at_s=60)
    sluice.pause(CLASS)
    assert sluice.ticked(4, at_s=240).swept == 1
    assert sluice.history[-1].paused


@pytest.mark.parametrize(
    "crash",
    [
        CrashOn("ledger.move", 1, When.AFTER),  # claimed
        CrashOn("queue.send_batch", 1, When.BEFORE),  # about to send
        FaultOn("queue.send_batch", Stall(60_000), 1),  # killed before it sent
    ],
)
def test_a_pacer_that_dies_between_claim_and_message_delays_its_row_by_b_and_a_tick(crash: Any) -> None:
    sluice = Bench(settings(), crash=crash, ticks=True, workers=True)
    sluice.submit(jobs(1, chunk_ms=1000))
    assert sluice.drain(max_ms=600_000)
    assert sluice.moves() == ["claim", "resend", "finish"]
    claimed_ms = sluice.steps("claim")[0].at_ms
    assert sluice.world.now_ms - claimed_ms < (B_S + 60 + 5) * 1000


def test_a_re_send_that_is_lost_as_well_is_healed_by_the_next_one() -> None:
    lost_twice = iter([EntryFault.UNKNOWN_LOST] * 6)
    sluice = Bench(settings(), entry_fault=lambda _: next(lost_twice, None), ticks=True, workers=True)
    sluice.submit(jobs(1, chunk_ms=1000))
    assert sluice.drain(max_ms=3_600_000)
    assert sluice.moves() == ["claim", "resend", "resend", "finish"]
    assert (sluice.world.now_ms - START_MS) / 1000 < 60 + B_S + 60 + 2 * B_S + 60 + 5
    assert sluice.rows["j0"].state is State.DONE
