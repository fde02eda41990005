"""The virtual world: time, interleaving, crashes, kills, hosts. What it promises, production code is tested with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ops.sim.faults import Call, CrashAt, CrashOn, Fail, Fault, FaultOn, Repeat, Stall, When
from ops.sim.hosts import EventSourceMapping, Schedule, ScheduleFaults
from ops.sim.invocations import Latency, Outcome
from ops.sim.memory_queue import MemoryQueue
from ops.sim.ports import GreenletParallel, SimMetrics, VirtualClock, switching
from ops.sim.sluice_world import SimSluice
from ops.sim.world import START_MS, World
from shared.core.model import Lane, Message, NewJob
from shared.core.settings import ClassSettings, Settings, UpstreamSettings
from shared.ports import Delivery, Outgoing

FAST = Latency(default_ms=10)


class Store:
    """An adapter with state, to see which effects happened."""

    def __init__(self) -> None:
        self.value = 0
        self.log: list[str] = []

    def get(self) -> int:
        return self.value

    def put(self, value: int) -> None:
        self.value = value

    def note(self, text: str) -> None:
        self.log.append(text)


def store_in(world: World) -> tuple[Store, Store]:
    """(the store, its port)."""
    store = Store()
    return store, switching(world, "store", store)


# -- time


def test_sleeping_takes_virtual_time_only() -> None:
    world = World(1)
    seen: list[int] = []
    clock = VirtualClock(world)
    for hours in (3, 1, 2):
        world.spawn(f"sleeper-{hours}", lambda hours=hours: (clock.sleep(hours * 3600), seen.append(clock.now_ms())))
    world.run()
    assert seen == [START_MS + 3_600_000, START_MS + 7_200_000, START_MS + 10_800_000]


def test_a_port_call_takes_its_latency_half_of_it_before_the_effect() -> None:
    world = World(1, latency=Latency(default_ms=10, by_point={"store.get": 100}))
    store, port = store_in(world)
    seen: list[int] = []
    store.note = lambda _: seen.append(world.now_ms)  # type: ignore[method-assign]
    world.spawn("a", lambda: (port.note("x"), port.get(), seen.append(world.now_ms)))
    world.run()
    assert seen == [START_MS + 5, START_MS + 110]


def test_run_stops_at_its_end_and_goes_on_from_there() -> None:
    world = World(1)
    invocation = world.spawn("a", lambda: world.sleep(1000))
    world.run(START_MS + 999)
    assert (world.now_ms, invocation.ended) == (START_MS + 999, False)
    world.run()
    assert (world.now_ms, invocation.outcome) == (START_MS + 1000, Outcome.RETURNED)


def test_outside_of_an_invocation_a_port_is_just_its_adapter() -> None:
    world = World(1)
    store, port = store_in(world)
    port.put(3)
    assert (store.value, world.trace, world.now_ms) == (3, [], START_MS)


# -- interleaving


def increments(seed: int, faults: list[Callable[[Call, When], Fault | None]] | None = None) -> tuple[World, Store]:
    """Three processes that read, add one and write: a race that loses updates."""
    world = World(seed, faults=faults or [], latency=FAST)
    store, port = store_in(world)
    for name in "abc":
        world.spawn(name, lambda: port.put(port.get() + 1))
    world.run()
    return world, store


def test_the_same_seed_gives_the_same_trace_and_another_seed_another_order() -> None:
    assert increments(5)[0].trace == increments(5)[0].trace
    assert len({tuple(call.invocation for call in increments(seed)[0].trace) for seed in range(20)}) > 3


def test_a_race_between_two_port_calls_happens() -> None:
    assert increments(1)[1].value == 1


def test_parallel_items_run_at_the_same_time_and_answer_in_their_order() -> None:
    world = World(1)
    clock, parallel = VirtualClock(world), GreenletParallel(world)
    invocation = world.spawn("a", lambda: parallel.map(lambda s: (clock.sleep(s), clock.now_ms())[1], [3, 1, 2]))
    world.run()
    assert invocation.value == [START_MS + 3000, START_MS + 1000, START_MS + 2000]


def test_a_pool_of_two_threads_works_two_items_at_a_time() -> None:
    world = World(1)
    parallel = GreenletParallel(world, threads=2)
    world.spawn("a", lambda: parallel.map(lambda _: world.sleep(1000), range(5)))
    world.run()
    assert world.now_ms == START_MS + 3000


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
        except Exception:
            survived.append("except")
        finally:
            port.note("finally")  # a dead process calls nobody
        survived.append("went on")

    invocation = world.spawn("a", body)
    world.run()
    assert (invocation.outcome, store.value, survived, store.log) == (Outcome.CRASHED, value, [], [])


def test_every_call_of_a_clean_run_is_a_crash_point_of_the_next() -> None:
    clean = increments(5)[0].trace
    assert [call.n for call in clean] == [1, 2, 3, 4, 5, 6]
    for point in clean:
        crashed = increments(5, [CrashAt(point.n)])[0]
        assert crashed.trace[: point.n] == clean[: point.n]
        outcomes = {invocation.name: invocation.outcome for invocation in crashed.invocations}
        assert [name for name, outcome in outcomes.items() if outcome is Outcome.CRASHED] == [point.invocation]


def test_all_threads_of_a_process_die_with_one() -> None:
    world = World(1, faults=[CrashOn("store.note", 2)])
    store, port = store_in(world)

    def thread(number: int) -> None:
        world.sleep(number * 100)
        port.note(str(number))

    invocation = world.spawn("a", lambda: GreenletParallel(world).map(thread, [1, 2, 3]))
    world.run()
    assert (invocation.outcome, store.log, invocation.ended_ms) == (Outcome.CRASHED, ["1"], START_MS + 200)


def test_a_timeout_kills_a_process_and_its_threads_at_that_instant() -> None:
    world = World(1)
    store, port = store_in(world)
    body = lambda number: (world.sleep(number * 1000), port.note(str(number)))  # noqa: E731
    invocation = world.spawn("a", lambda: GreenletParallel(world).map(body, [1, 2, 3]), timeout_ms=2000)
    world.run()
    assert (invocation.outcome, store.log, invocation.ended_ms) == (Outcome.TIMED_OUT, ["1"], START_MS + 2000)


def test_a_stalled_process_wakes_up_in_a_later_world() -> None:
    _, store = increments(1, [FaultOn("store.put", Stall(60_000), nth=3)])
    assert store.value == 1
    world = World(1, faults=[FaultOn("store.put", Stall(60_000))])
    _, port = store_in(world)
    world.spawn("a", lambda: port.put(1))
    world.run()
    assert world.now_ms == START_MS + 60_005


@pytest.mark.parametrize(("when", "value"), [(When.BEFORE, 0), (When.AFTER, 1)])
def test_a_failed_call_has_its_effect_only_when_it_was_the_answer_that_failed(when: When, value: int) -> None:
    world = World(1, faults=[FaultOn("store.put", Fail(OSError("away")), when=when)])
    store, port = store_in(world)
    invocation = world.spawn("a", lambda: port.put(1))
    world.run()
    assert (str(invocation.error), store.value) == ("away", value)


def test_a_repeated_call_has_its_effect_twice() -> None:
    world = World(1, faults=[FaultOn("store.note", Repeat(), when=When.AFTER)])
    store, port = store_in(world)
    world.spawn("a", lambda: port.note("x"))
    world.run()
    assert store.log == ["x", "x"]


def test_metrics_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="Eta, Rate"):
        SimMetrics(lambda: 0).emit("replay", {"Rate": float("nan"), "Rows": 1, "Eta": float("inf")})


# -- hosts


def mapped(entry: Callable[[list[str]], list[str]], *, slots: int = 2, batch: int = 10) -> tuple[World, MemoryQueue]:
    """A queue of four messages in the groups g0 and g1, read by a mapping with a visibility of 130 s."""
    world = World(1)
    settings = Settings(classes={"replay": ClassSettings(name="replay", kind="k")})
    queue = MemoryQueue(settings, lambda: world.now_ms)

    def run(deliveries: list[Delivery], _nonce: str, _end_ms: int) -> list[str]:
        failed = entry([delivery.message.job_id for delivery in deliveries])
        return [
            d.message_id if d.message.job_id in failed else "" for d in deliveries if d.message.job_id in failed
        ] + [name for name in failed if name == "no-such-id"]

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
        (["no-such-id"], [["j0", "j2", "j1", "j3"]]),  # malformed: the whole batch failed (TRAPS 12)
    ],
)
def test_what_an_invocation_names_comes_back_after_the_visibility(failed: list[str], again: list[list[str]]) -> None:
    seen: list[tuple[int, list[str]]] = []

    def entry(jobs: list[str]) -> list[str]:
        seen.append((world.now_ms, jobs))
        return failed if len(seen) == 1 else []

    world, queue = mapped(entry)
    world.run()
    assert [jobs for _, jobs in seen] == [["j0", "j2", "j1", "j3"], *again]
    assert [at_ms - seen[0][0] for at_ms, _ in seen[1:]] == [130_020] * len(again)
    assert len(queue.lane("replay", Lane.LIVE)) == 0


def test_a_mapping_runs_no_more_invocations_than_its_slots_and_none_twice_in_a_group() -> None:
    running: list[str] = []
    most: list[int] = []

    def entry(jobs: list[str]) -> list[str]:
        running.extend(jobs)
        most.append(len(running))
        world.sleep(1000)
        running.remove(jobs[0])
        return []

    world, _ = mapped(entry, slots=9, batch=1)
    world.run()
    assert most == [1, 2, 1, 2]


def test_a_batch_that_dies_in_transport_reaches_the_dead_letters_after_its_receives() -> None:
    def entry(_jobs: list[str]) -> list[str]:
        raise OSError

    world, queue = mapped(entry)
    world.run()
    assert (world.now_ms - START_MS) // 130_000 == 6  # max receives
    assert [delivery.message.job_id for delivery in queue.receive_dead("replay")] == ["j0", "j2", "j1", "j3"]


def test_a_schedule_names_the_scheduled_minute_however_late_double_or_missing_it_fires() -> None:
    world = World(3)
    seen: list[tuple[int, int]] = []
    faults = ScheduleFaults(late_ms=(0, 30_000), double=0.3, miss=0.3)
    schedule = Schedule(
        world,
        "replay",
        lambda scheduled_ms, _nonce, _end_ms: seen.append((scheduled_ms, world.now_ms)),
        interval_ms=60_000,
        timeout_ms=50_000,
        faults=faults,
    )
    schedule.start()
    world.run(START_MS + 100 * 60_000)
    minutes = [(scheduled_ms - START_MS) / 60_000 for scheduled_ms, _ in seen]
    assert all(minute == int(minute) and minute >= 1 for minute in minutes)
    assert all(0 <= at_ms - scheduled_ms <= 30_000 for scheduled_ms, at_ms in seen)
    assert 50 < len(set(minutes)) < 90
    assert len(minutes) > len(set(minutes))


# -- the assembly


def drained(jobs: int, crash: CrashAt | CrashOn | None = None) -> SimSluice:
    upstream = UpstreamSettings(name="inference", endpoint="https://example.com", limit_per_s=8.0)
    job_class = ClassSettings(name="replay", kind="k", upstream="inference")
    sluice = SimSluice(Settings(upstreams={"inference": upstream}, classes={"replay": job_class}), seed=7, crash=crash)
    sluice.submit([NewJob(job_id=f"j{n}", job_class="replay", match_id=f"m{n}", payload="{}") for n in range(jobs)])
    assert sluice.drain(max_ms=60 * 60_000)
    return sluice


def test_200_jobs_drain_in_virtual_time_and_repeat_exactly() -> None:
    first, second = drained(200), drained(200)
    report = first.report()
    assert (report.jobs, report.done, report.refusals, report.errors) == (200, 200, 0, 0)
    assert first.world.trace == second.world.trace
    assert report == second.report()


@pytest.mark.parametrize("when", list(When))
def test_a_crash_at_any_port_call_of_a_drain_loses_nothing_and_does_nothing_twice(when: When) -> None:
    for call in drained(2).world.trace:
        report = drained(2, CrashAt(call.n, when)).report()
        assert (report.done, report.crashes, report.errors) == (2, 1, 0), call
        assert (report.duplicate_effects, report.redone_chunks, report.over_budget_ticks) == (0, 0, 0), call
