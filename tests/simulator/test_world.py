"""The virtual world: time, interleaving, crashes, kills, hosts. What it promises, production code is tested with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from ops.simulator.faults import CrashAt, CrashOn, Fail, FaultHook, FaultOn, Repeat, Stall, When
from ops.simulator.hosts import EventSourceMapping, Schedule, ScheduleFaults, TickEntry
from ops.simulator.ports import GreenletParallel, SimMetrics, VirtualClock, switching
from ops.simulator.sluice_world import SimSluice
from ops.simulator.world import START_MS, Latency, Outcome, World
from shared.domain.job import Lane, NewJob
from shared.domain.messages import Delivery, Message, Outgoing
from shared.domain.settings import ClassSettings, Settings, UpstreamSettings
from shared.memory.queue import MemoryQueue


class Store:
    """An adapter with state, to see which effects happened."""

    def __init__(self) -> None:
        self.value = 0

    def get(self) -> int:
        return self.value

    def put(self, value: int) -> None:
        self.value = value

    def add(self, value: int) -> None:
        self.value += value


def store_in(world: World) -> tuple[Store, Store]:
    """(the store, its port)."""
    store = Store()
    return store, switching(world, "store", store)


# -- time


def test_sleeping_takes_virtual_time_only() -> None:
    world = World(1)
    sleepers = [world.spawn("a", partial(VirtualClock(world).sleep, hours * 3600)) for hours in (3, 1, 2)]
    world.run()
    assert [sleeper.ended_ms for sleeper in sleepers] == [START_MS + hours * 3_600_000 for hours in (3, 1, 2)]


def test_a_port_call_takes_its_latency_half_of_it_before_the_effect() -> None:
    world = World(1, latency=Latency(default_ms=10, by_point={"store.put": 100}))
    store, port = store_in(world)
    invocation = world.spawn("a", lambda: port.put(1))
    world.run(START_MS + 49)
    assert (store.value, world.now_ms) == (0, START_MS + 49)
    world.run(START_MS + 50)
    assert (store.value, invocation.ended) == (1, False)
    world.run()
    assert invocation.ended_ms == START_MS + 100


def test_outside_of_an_invocation_a_port_is_just_its_adapter() -> None:
    world = World(1)
    store, port = store_in(world)
    port.put(3)
    assert (store.value, world.trace, world.now_ms) == (3, [], START_MS)


# -- interleaving


def increments(seed: int, *faults: FaultHook) -> tuple[World, Store]:
    """Three processes that read, add one and write."""
    world = World(seed, faults=faults)
    store, port = store_in(world)
    for name in "abc":
        world.spawn(name, lambda: port.put(port.get() + 1))
    world.run()
    return world, store


def test_the_same_seed_gives_the_same_trace_and_another_seed_another_order() -> None:
    assert increments(5)[0].trace == increments(5)[0].trace
    assert len({tuple(call.invocation for call in increments(seed)[0].trace) for seed in range(20)}) > 3
    assert increments(5)[1].value == 1  # all three read before the first wrote


@pytest.mark.parametrize(("threads", "ended_s"), [(16, [3, 1, 2]), (1, [3, 4, 6])])
def test_parallel_items_answer_in_their_order_and_share_the_threads(threads: int, ended_s: list[int]) -> None:
    world = World(1)

    def body(seconds: int) -> int:
        world.sleep(seconds * 1000)
        return world.now_ms - START_MS

    invocation = world.spawn("a", lambda: GreenletParallel(world, threads=threads).map(body, [3, 1, 2]))
    world.run()
    assert invocation.value == [seconds * 1000 for seconds in ended_s]


def test_the_first_error_of_a_parallel_map_is_raised_after_all_have_ended() -> None:
    world = World(1)
    ended: list[int] = []

    def body(seconds: int) -> None:
        world.sleep(seconds * 1000)
        ended.append(seconds)
        if seconds in (1, 2):
            raise ValueError(seconds)

    invocation = world.spawn("a", lambda: GreenletParallel(world).map(body, [2, 1, 3]))
    world.run()
    assert (ended, str(invocation.error), invocation.ended_ms) == ([1, 2, 3], "2", START_MS + 3000)


# -- crashes


@pytest.mark.parametrize(("when", "value"), [(When.BEFORE, 0), (When.AFTER, 7)])
def test_a_crash_before_a_call_leaves_no_effect_and_one_after_it_does(when: When, value: int) -> None:
    world = World(1, faults=[CrashOn("store.put", 1, when)])
    store, port = store_in(world)
    survived: list[str] = []

    def body() -> None:
        try:
            port.put(7)
        except Exception:  # noqa: BLE001 - what production code may do
            survived.append("except")
        finally:
            port.add(100)  # a dead process calls nobody
        survived.append("went on")

    invocation = world.spawn("a", body)
    world.run()
    assert (invocation.outcome, store.value, survived) == (Outcome.CRASHED, value, [])


def test_every_call_of_a_clean_run_is_a_crash_point_of_the_next() -> None:
    clean = increments(5)[0].trace
    assert [call.n for call in clean] == [1, 2, 3, 4, 5, 6]
    for point in clean:
        crashed = increments(5, CrashAt(point.n))[0]
        assert crashed.trace[: point.n] == clean[: point.n]
        outcomes = {invocation.name: invocation.outcome for invocation in crashed.invocations}
        assert [name for name, outcome in outcomes.items() if outcome is Outcome.CRASHED] == [point.invocation]


@pytest.mark.parametrize(
    ("crash", "timeout_ms", "outcome"),
    [(CrashOn("store.add", 2), None, Outcome.CRASHED), (CrashOn("store.add", 9), 2000, Outcome.TIMED_OUT)],
)
def test_a_crash_or_a_timeout_ends_all_threads_of_a_process_at_that_instant(
    crash: CrashOn, timeout_ms: int | None, outcome: Outcome
) -> None:
    world = World(1, faults=[crash])
    store, port = store_in(world)

    def body(seconds: int) -> None:
        world.sleep(seconds * 1000)
        port.add(seconds)

    threads = partial(GreenletParallel(world).map, body, [1, 2, 3])
    invocation = world.spawn("a", threads, timeout_ms=timeout_ms)
    world.run()
    assert (invocation.outcome, store.value, invocation.ended_ms) == (outcome, 1, START_MS + 2000)


def test_a_stalled_process_wakes_up_in_a_later_world_and_writes() -> None:
    world = World(1, faults=[FaultOn("store.put", Stall(60_000))])
    store, port = store_in(world)
    world.spawn("stalled", lambda: port.put(1))
    world.spawn("quick", lambda: port.put(2), START_MS + 1000)
    world.run()
    assert (store.value, world.now_ms) == (1, START_MS + 60_005)


@pytest.mark.parametrize(
    ("fault", "error", "value"),
    [
        (FaultOn("store.add", Fail(OSError("away"))), "away", 0),
        (FaultOn("store.add", Fail(OSError("away")), when=When.AFTER), "away", 1),  # only the answer was lost
        (FaultOn("store.add", Repeat(), when=When.AFTER), "None", 2),  # and the SDK sent it again
    ],
)
def test_a_fault_says_whether_the_effect_happened(fault: FaultOn, error: str, value: int) -> None:
    world = World(1, faults=[fault])
    store, port = store_in(world)
    invocation = world.spawn("a", lambda: port.add(1))
    world.run()
    assert (str(invocation.error), store.value) == (error, value)


def test_metrics_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="Eta, Rate"):
        SimMetrics(lambda: 0).emit("replay", {"Rate": float("nan"), "Rows": 1, "Eta": float("inf")})


# -- hosts


def mapped(entry: Callable[[list[str]], list[str]], *, slots: int = 2, batch: int = 10) -> tuple[World, MemoryQueue]:
    """A queue of four messages in the groups g0 and g1, read by a mapping with a visibility of 130 s."""
    world = World(1)
    settings = Settings(classes={"replay": ClassSettings(name="replay", kind="k")})
    queue = MemoryQueue(settings, lambda: world.now_ms)

    def run(deliveries: Sequence[Delivery], _nonce: str, _end_ms: int) -> list[str]:
        ids = {delivery.message.job_id: delivery.message_id for delivery in deliveries}
        return [ids.get(name, name) for name in entry(list(ids))]

    EventSourceMapping(
        world, queue, queue.lane("replay", Lane.LIVE), run, slots=slots, batch_size=batch, timeout_ms=120_000
    )
    messages = [Message(job_id=f"j{n}", job_class="replay", cursor="", epoch=1, copy=0) for n in range(4)]
    batch_of = [Outgoing(message=message, group=f"g{n % 2}") for n, message in enumerate(messages)]
    queue.send_batch("replay", Lane.LIVE, batch_of)
    return world, queue


@pytest.mark.parametrize(
    ("failed", "again"),
    [
        (["j3"], [["j3"]]),
        ([], []),
        (["no-such-id"], [["j0", "j2", "j1", "j3"]]),  # malformed: the whole batch failed (fact F12)
    ],
)
def test_what_an_invocation_names_comes_back_after_the_visibility(failed: list[str], again: list[list[str]]) -> None:
    invoked: list[tuple[int, list[str]]] = []

    def entry(jobs: list[str]) -> list[str]:
        invoked.append((world.now_ms, jobs))
        return failed if len(invoked) == 1 else []

    world, queue = mapped(entry)
    world.run()
    assert [jobs for _, jobs in invoked] == [["j0", "j2", "j1", "j3"], *again]
    assert [at_ms - invoked[0][0] for at_ms, _ in invoked[1:]] == [130_020] * len(again)
    assert len(queue.lane("replay", Lane.LIVE)) == 0


@pytest.mark.parametrize(
    ("slots", "at_once"),
    [
        (1, [1, 1, 1, 1]),
        (9, [1, 2, 1, 2]),  # two groups: more slots do not help
    ],
)
def test_a_mapping_runs_no_more_invocations_than_slots_and_free_groups(slots: int, at_once: list[int]) -> None:
    running: list[str] = []
    most: list[int] = []

    def entry(jobs: list[str]) -> list[str]:
        running.extend(jobs)
        most.append(len(running))
        world.sleep(1000)
        running.remove(jobs[0])
        return []

    world, _ = mapped(entry, slots=slots, batch=1)
    world.run()
    assert most == at_once


def test_a_schedule_names_the_scheduled_minute_however_late_double_or_missing_it_fires() -> None:
    world = World(3)
    fired: list[tuple[int, int]] = []
    faults = ScheduleFaults(late_ms=(0, 30_000), double=0.3, miss=0.3)
    note: TickEntry = lambda scheduled_ms, _nonce, _end_ms: fired.append((scheduled_ms, world.now_ms))  # noqa: E731
    schedule = Schedule(world, "replay", note, interval_ms=60_000, timeout_ms=50_000, faults=faults)
    schedule.start()
    world.run(START_MS + 100 * 60_000)
    minutes = [(scheduled_ms - START_MS) / 60_000 for scheduled_ms, _ in fired]
    assert all(minute == int(minute) and minute >= 1 for minute in minutes)
    assert all(0 <= at_ms - scheduled_ms <= 30_000 for scheduled_ms, at_ms in fired)
    assert 50 < len(set(minutes)) < 90
    assert len(minutes) > len(set(minutes))


# -- the assembly


def drained(seed: int) -> SimSluice:
    job_class = ClassSettings(name="replay", kind="k", upstream="inference")
    upstream = UpstreamSettings(name="inference", endpoint="https://example.com", limit_per_s=8.0)
    sluice = SimSluice(Settings(upstreams={"inference": upstream}, classes={"replay": job_class}), seed)
    sluice.submit([NewJob(job_id=f"j{n}", job_class="replay", match_id=f"m{n}", payload="{}") for n in range(200)])
    assert sluice.drain(max_ms=60 * 60_000)
    return sluice


def test_200_jobs_drain_in_virtual_time_and_repeat_exactly() -> None:
    first, second = drained(seed=7), drained(seed=7)
    assert (first.report().done, first.errors, first.upstream.refusals) == (200, [], 0)
    assert (first.world.trace, first.report()) == (second.world.trace, second.report())
