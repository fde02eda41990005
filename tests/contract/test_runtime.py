"""The process's own clock and threads, and the wiring of them all."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from shared.aws.clients import Clients
from shared.aws.runtime import SystemClock, ThreadParallel
from shared.aws.wiring import Environment, host, wire
from shared.domain.job import Lane
from shared.errors import ConfigError
from tests.contract.worlds import CLASS, SETTINGS


def test_the_clock_reads_and_sleeps() -> None:
    clock = SystemClock()
    before = clock.now_ms()
    clock.sleep(0.02)
    clock.sleep(-5)

    assert 15 <= clock.now_ms() - before < 5000
    assert abs(before - time.time() * 1000) < 5000


def test_results_come_in_order_whoever_is_first() -> None:
    def work(number: int) -> int:
        time.sleep(0.02 * (3 - number))
        return number * 10

    assert ThreadParallel().map(work, [0, 1, 2]) == [0, 10, 20]
    assert ThreadParallel().map(work, []) == []


def test_items_really_run_at_the_same_time() -> None:
    meeting = threading.Barrier(4)

    assert ThreadParallel().map(lambda _: meeting.wait(timeout=5) >= 0, range(4)) == [True] * 4


def test_the_first_error_in_order_is_raised_after_all_have_ended() -> None:
    ended: list[int] = []

    def work(number: int) -> None:
        time.sleep(0.03 if number == 3 else 0)
        ended.append(number)
        if number in (1, 2):
            raise ValueError(str(number))

    with pytest.raises(ValueError, match="1"):
        ThreadParallel().map(work, range(4))
    assert sorted(ended) == [0, 1, 2, 3]


def test_a_fan_out_inside_a_fan_out_does_not_wait_for_itself() -> None:
    parallel = ThreadParallel(2)

    assert parallel.map(lambda _: sum(parallel.map(lambda number: number, range(4))), range(4)) == [6] * 4


def test_wiring_makes_no_client() -> None:
    clients = Clients()
    queues = {CLASS: {lane: f"https://sqs.eu-central-1.amazonaws.com/123456789012/{lane}.fifo" for lane in Lane}}
    environment = Environment(table="t", bucket="b", queues=queues, config_path=Path("sluice.toml"))

    wired = wire(environment, SETTINGS, clients=clients)

    assert wired.ports.queue is wired.queue
    assert clients._made == {}


def test_a_host_without_configuration_says_so_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLUICE_TABLE", "SLUICE_BUCKET", "SLUICE_QUEUES"):
        monkeypatch.delenv(name, raising=False)

    for _ in range(2):
        with pytest.raises(ConfigError):
            host()
