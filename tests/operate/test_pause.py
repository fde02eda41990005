"""After a pause is committed nothing more is admitted, whatever tick was under way; resume forgets nothing (I10)."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import pytest

from ops.simulator.faults import CrashOn, FaultOn, Stall, When
from ops.simulator.world import START_MS, Invocation, Latency
from shared.domain.job import Flag, State
from shared.domain.settings import RetrySettings
from shared.errors import InvalidInput, UpstreamRejected
from shared.operate.switches import pause
from shared.steps.turns import HANDOVER_LEASE_MS
from tests.worlds import CLASS, TWENTY_A_TICK, Bench, FunctionKind, jobs, settings

LATENCY_MS = 5


def bench(changes: dict[str, Any] | None = None, *, rows: int = 200, **options: Any) -> Bench:
    sluice = Bench(settings(**(TWENTY_A_TICK | (changes or {}))), **options)
    sluice.submit(jobs(rows, chunk_ms=200))
    return sluice


def pause_at(sluice: Bench, second: float) -> Invocation:
    command = partial(pause, sluice.ports, CLASS, by="operator", why="upstream maintenance")
    return sluice.world.spawn("pause", command, START_MS + round(second * 1000))


@cache
def length_of_a_tick_ms() -> int:
    sluice = bench()
    tick = sluice.tick(1, at_s=60)
    sluice.ended(tick)
    assert tick.ended_ms is not None
    return tick.ended_ms - tick.at_ms


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_is_admitted_after_the_pause_command_has_returned(seed: int) -> None:
    """Every offset of the command against a tick, in steps of half a port call, from before its begin to its end."""
    outcomes = set()
    for offset_ms in range(-15, length_of_a_tick_ms() + 15, 2):
        sluice = bench(seed=seed, latency=Latency(default_ms=(1, 2 * LATENCY_MS - 1)))
        tick, command = sluice.tick(1, at_s=60), pause_at(sluice, 60 + offset_ms / 1000)
        sluice.ended(tick, command)
        assert command.ended_ms is not None
        paused_ms = command.ended_ms
        for minute in (2, 3):
            assert sluice.ticked(minute, at_s=minute * 60).admitted == 0
        assert all(step.at_ms <= paused_ms for step in sluice.steps("claim")), f"offset {offset_ms} ms, seed {seed}"
        outcomes.add(sluice.claimed())
    assert outcomes == {0, 20}  # both sides of the race were met


@pytest.mark.parametrize(
    ("fault", "waits_s"),
    [
        (None, HANDOVER_LEASE_MS / 1000),  # a handover that read the flags before may still land
        (FaultOn("queue.send_batch", Stall(30_000)), 30.0),  # the tick lives, and lets go at its close
        (FaultOn("ledger.move", Stall(20_000), 3, When.BEFORE), 20.0),  # a claim is still on its way
        (CrashOn("ledger.move", 3), 55.0),  # the tick is dead: its lock has to expire
    ],
)
def test_the_command_waits_for_the_tick_that_read_control_before_it(fault: Any, waits_s: float) -> None:
    sluice = bench(crash=fault)
    tick, command = sluice.tick(1, at_s=60), pause_at(sluice, 60.1)
    sluice.ended(tick, command)
    assert command.ended_ms is not None
    assert waits_s - 1 <= (command.ended_ms - command.at_ms) / 1000 <= waits_s + 2
    assert all(step.at_ms <= command.ended_ms for step in sluice.steps("claim"))


def test_the_command_does_not_wait_for_a_tick_that_has_read_the_flag() -> None:
    sluice = bench(crash=FaultOn("ledger.close_run", Stall(40_000)))
    command, tick = pause_at(sluice, 60.0), sluice.tick(1, at_s=60.1)
    sluice.ended(command)
    assert command.ended_ms is not None
    assert command.ended_ms - command.at_ms < HANDOVER_LEASE_MS + 1_000
    assert sluice.ended(tick)[0].admitted == 0


def test_who_paused_when_and_why_is_recorded_and_a_reason_is_required() -> None:
    sluice = bench()
    command = pause_at(sluice, 60)
    sluice.ended(command)
    assert sluice.control.pause == Flag(by="operator", why="upstream maintenance", at_ms=START_MS + 60_000)
    with pytest.raises(InvalidInput):
        sluice.pause(CLASS, why=" ")


def test_the_carry_stands_still_while_paused_and_paused_time_earns_nothing() -> None:
    sluice = bench({"declared_service_s": 800.0}, workers=True)  # 0.3 rows a tick

    def ticks(minutes: range) -> int:
        return sum(sluice.ticked(minute, at_s=minute * 60).admitted for minute in minutes)

    admitted = ticks(range(1, 3))  # 0.6 rows
    carry = sluice.control.carry
    sluice.pause(CLASS)
    assert ticks(range(3, 30)) == 0
    assert sluice.control.carry == carry
    sluice.resume(CLASS)
    assert admitted + ticks(range(30, 38)) == 3  # 2 + 8 ticks of 0.3 rows: 27 paused ones count for nothing


def test_resume_forgets_nothing() -> None:
    """Delayed retries keep their time, waiting rows their place, attempts their number."""

    def chunk(*_: Any) -> Any:
        raise UpstreamRejected()

    sluice = Bench(
        settings(retry=RetrySettings(base_delay_s=600.0), **TWENTY_A_TICK),
        workers=True,
        kinds={"sim": FunctionKind(chunk)},
    )
    sluice.submit(jobs(30))
    sluice.ticked(1, at_s=60)
    sluice.until(119)
    before = sluice.rows
    sluice.pause(CLASS)
    for minute in range(2, 9):
        sluice.ticked(minute, at_s=minute * 60 + 15)
    sluice.resume(CLASS)
    assert sluice.rows == before
    assert sorted(job.attempts for job in sluice.rows.values()) == [0] * 10 + [1] * 20
    assert sluice.ticked(10, at_s=10 * 60).admitted == 10  # the others wait 600 to 900 s from their failure
    assert sluice.ticked(17, at_s=17 * 60).admitted == 20


def test_what_is_in_flight_settles_and_paused_ticks_report() -> None:
    sluice = bench(rows=50, workers=True)
    sluice.ticked(1, at_s=60)
    assert sluice.ledger.states[State.QUEUED] > 0
    sluice.pause(CLASS)
    sluice.until(118)
    assert sluice.ledger.states == {State.WAITING: 30, State.QUEUED: 0, State.DONE: 20}
    assert sluice.ticked(2, at_s=120).outcome == "closed"
    values = sluice.metrics.sets[-1].values
    assert (values["Paused"], values["AdmittedRows"], values["PendingRows"], values["DrainStalled"]) == (1, 0, 30, 0)
    assert "DrainEtaMinutes" not in values


def test_a_halted_class_admits_nothing_either() -> None:
    sluice = bench()
    sluice.ledger.set_halt(CLASS, Flag(by="operator", why="bad release", at_ms=START_MS))
    assert sluice.ticked(1, at_s=60).admitted == 0
