"""A message that died in transport becomes a row transition, if it was the newest copy; never an attempt (I9)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ops.simulator.faults import Fail, FaultOn, Repeat, Stall, When
from ops.simulator.hosts import MappingFaults
from shared.domain import stats
from shared.domain.job import Lane, State
from shared.domain.messages import Delivery, Message, message_of
from shared.domain.settings import RetrySettings
from shared.errors import LedgerUnavailable
from tests.worlds import CLASS, HOUR_MS, Bench, jobs, settings


def bench(*, rows: int = 1, max_deaths: int = 3, chunks: int = 1) -> Bench:
    """Rows in flight; j0's message has been re-sent once, so its newest copy is 1."""
    retry = RetrySettings(max_transport_deaths=max_deaths, base_delay_s=30.0)
    sluice = Bench(settings(retry=retry))
    sluice.submit(jobs(rows, chunks=chunks))
    for minute in range(1, 5):
        sluice.ticked(minute, at_s=minute * 60)
    assert sluice.rows["j0"].copy == 1
    return sluice


def dead(message: Message) -> Delivery:
    return Delivery(
        message=message,
        lane=Lane.LIVE,
        group="m0",
        message_id=f"dead-{message.job_id}",
        receipt=f"{CLASS}/dead:1:1",
        receive_count=1,
        first_received_ms=0,
    )


def test_the_newest_copys_death_moves_the_row_to_waiting_and_burns_no_attempt() -> None:
    sluice = bench()
    before = sluice.rows["j0"]
    assert sluice.buried([dead(message_of(before))]) == []
    job = sluice.rows["j0"]
    assert (job.state, job.transport_deaths, job.attempts, job.last_error) == (State.WAITING, 1, 0, "transport")
    assert 37_000 <= job.eligible_ms - sluice.steps("transport")[0].at_ms <= 37_500  # 30 s, and half of 15 s as jitter
    assert job.retried
    assert sluice.counters()[stats.TRANSPORT_DEATHS] == 1
    assert sluice.ticked(6, at_s=360).admitted == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"copy": 0},  # the newer copy lives
        {"epoch": 0},
        {"epoch": 2},
        {"job_id": "nobody"},
    ],
)
def test_any_other_messages_death_says_nothing(changes: dict[str, object]) -> None:
    sluice = bench()
    before = sluice.rows["j0"]
    assert sluice.buried([dead(replace(message_of(before), **changes))]) == []
    assert sluice.rows["j0"] == before
    assert sluice.counters()[stats.STALE] == 1


def test_a_re_send_between_the_readers_read_and_its_move_wins() -> None:
    sluice = bench()
    message = message_of(sluice.rows["j0"])
    sluice.world.faults.append(FaultOn("ledger.read_job", Stall(400_000), 1, When.AFTER))  # wakes up at 640 s
    tick = sluice.tick(9, at_s=545)
    assert sluice.buried([dead(message)]) == []
    sluice.ended(tick)
    job = sluice.rows["j0"]
    assert (job.state, job.copy, job.transport_deaths) == (State.QUEUED, 2, 0)
    assert sluice.counters()[stats.LOST_RACES] == 1


def test_at_its_bound_the_row_dies_of_transport_and_its_attempts_are_untouched() -> None:
    sluice = bench(max_deaths=3)
    for minute in (8, 16, 24):
        sluice.buried([dead(message_of(sluice.rows["j0"]))])
        sluice.ticked(minute, at_s=minute * 60)
    job = sluice.rows["j0"]
    assert (job.state, job.last_error, job.transport_deaths, job.attempts) == (State.DEAD, "transport", 3, 0)
    assert sluice.history[-1].dead == 1
    assert sluice.counters()[stats.DEATHS] == 1


def test_progress_forgives_earlier_deaths_in_transport() -> None:
    sluice = bench(chunks=2)
    sluice.buried([dead(message_of(sluice.rows["j0"]))])
    assert sluice.rows["j0"].transport_deaths == 1
    sluice.switch(True)
    sluice.ticked(8, at_s=480)
    assert sluice.drain(max_ms=60_000)
    assert (sluice.rows["j0"].state, sluice.rows["j0"].transport_deaths) == (State.DONE, 0)


def test_a_lost_answer_counts_one_death_once() -> None:
    sluice = bench()
    sluice.world.faults.append(FaultOn("ledger.move", Repeat(), None, When.AFTER))
    sluice.buried([dead(message_of(sluice.rows["j0"]))])
    assert sluice.rows["j0"].transport_deaths == 1
    assert sluice.counters()[stats.LOST_RACES] == 0


def test_what_the_ledger_did_not_answer_comes_back_and_the_others_do_not() -> None:
    sluice = bench(rows=3)
    letters = [dead(message_of(sluice.rows[f"j{number}"])) for number in range(3)]
    second = sum(call.point == "ledger.read_job" for call in sluice.world.trace) + 2
    sluice.world.faults.append(FaultOn("ledger.read_job", Fail(LedgerUnavailable()), second))
    assert sluice.buried(letters) == ["dead-j1"]
    assert [sluice.rows[f"j{number}"].state for number in range(3)] == [State.WAITING, State.QUEUED, State.WAITING]


def test_a_class_whose_deliveries_are_all_throttled_loses_no_attempt_and_ends_visibly_dead() -> None:
    """Fact F10: the handler never runs, every receive is burned, and the queue buries the message."""
    sluice = Bench(
        settings(retry=RetrySettings(max_transport_deaths=2)),
        ticks=True,
        workers=True,
        mapping_faults=MappingFaults(throttled=1.0),
    )
    sluice.mappings[-1].faults = MappingFaults()  # the dead-letter reader is not throttled
    sluice.submit(jobs(1))
    assert sluice.drain(max_ms=24 * HOUR_MS)
    job = sluice.rows["j0"]
    assert (job.state, job.last_error, job.attempts) == (State.DEAD, "transport", 0)
    assert sluice.kinds[CLASS].starts == []
