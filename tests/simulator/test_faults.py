"""What can go wrong in the world does: limiters, latency tails, overload, cold starts, recursion, clocks, retention."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from ops.simulator.drive import Drive
from ops.simulator.faults import Call, Die, Fail, Repeat, Stall, When
from ops.simulator.hosts import RECURSION_LIMIT, Hosting
from ops.simulator.mix import Chances, Mix
from ops.simulator.ports import VirtualClock
from ops.simulator.scenario import load_scenario
from ops.simulator.sluice_world import SimSluice
from ops.simulator.upstream import HiddenLimit, LimiterKind, Tail, UpstreamTruth, gate_of, retry_after_s
from ops.simulator.world import START_MS, World
from shared.domain.job import NewJob
from shared.domain.settings import ClassSettings, Settings
from shared.memory.queue import EntryFault

# -- limiters


def admitted(kind: LimiterKind, at_ms: list[int], *, burst: float | None = None, window_ms: int = 1000) -> list[int]:
    gate = gate_of(kind, HiddenLimit(per_s=2.0), burst_calls=burst, window_ms=window_ms)
    return [ms for ms in at_ms if gate.admit(ms) is None]


@pytest.mark.parametrize(
    ("kind", "burst", "expected"),
    [
        (LimiterKind.TOKEN_BUCKET, 1.0, [0, 500, 1000, 1500]),
        (LimiterKind.TOKEN_BUCKET, 3.0, [0, 100, 200, 500, 1000, 1500]),  # what was saved up, then the rate
        (LimiterKind.FIXED_WINDOW, None, [0, 100, 1000, 1100]),  # four calls within 200 ms of a boundary can pass
        (LimiterKind.SLIDING_WINDOW, None, [0, 100, 1000, 1100]),
        (LimiterKind.SLIDING_WINDOW, 1.0, [0, 100, 200, 1000, 1100, 1200]),
    ],
)
def test_a_limiter_allows_what_its_kind_allows(kind: LimiterKind, burst: float | None, expected: list[int]) -> None:
    assert admitted(kind, list(range(0, 2000, 100)), burst=burst) == expected


def test_a_fixed_window_lets_two_windows_meet_and_a_sliding_one_does_not() -> None:
    around = [900, 950, 1000, 1050]
    assert admitted(LimiterKind.FIXED_WINDOW, around) == around
    assert admitted(LimiterKind.SLIDING_WINDOW, around) == [900, 950]


def test_a_hidden_limit_changes_at_its_times_and_integrates_over_them() -> None:
    limit = HiddenLimit(per_s=10.0, changes=((1000, 5.0), (3000, 0.0)))
    assert [limit.at(ms) for ms in (0, 999, 1000, 2999, 3000)] == [10.0, 10.0, 5.0, 5.0, 0.0]
    assert limit.calls_between(0, 4000) == 20.0
    assert limit.calls_between(500, 1500) == 7.5


@pytest.mark.parametrize("kind", list(LimiterKind))
def test_a_refusal_names_a_wait_after_which_the_call_is_allowed(kind: LimiterKind) -> None:
    gate = gate_of(kind, HiddenLimit(per_s=0.5), burst_calls=1.0, window_ms=4000)
    now_ms = 0
    for _ in range(50):
        wait_s = gate.admit(now_ms)
        now_ms += 100 if wait_s is None else round(retry_after_s(wait_s) * 1000)
        if wait_s is not None:
            assert gate.admit(now_ms) is None


def test_a_latency_has_its_tail_and_an_overload_its_share() -> None:
    truth = UpstreamTruth(limit_per_s=1.0, latency_ms=(10, 20), tail=Tail(share=0.1, ms=(1000, 2000)))
    rng = random.Random(1)
    slow = sum(truth.draw_latency_ms(rng) >= 1000 for _ in range(2000))
    assert 150 <= slow <= 250


# -- hosts


def one_class(**changes: Any) -> Settings:
    return Settings(classes={"work": ClassSettings(name="work", kind="sim", slots=4, **changes)})


def drained(hosting: Hosting, *, jobs: int, chunks: int = 1, **changes: Any) -> SimSluice:
    sluice = SimSluice(one_class(**changes), seed=1, hosting=hosting)
    payload = json.dumps({"chunks": chunks, "chunk_ms": 2000})
    sluice.submit([NewJob(job_id=f"j{n}", job_class="work", match_id=f"m{n}", payload=payload) for n in range(jobs)])
    sluice.drain(max_ms=2 * 3_600_000)
    return sluice


def test_only_new_containers_start_cold() -> None:
    sluice = drained(Hosting(cold_start_ms=(3000, 3000)), jobs=20)
    cold = sum(mapping.cold_starts for mapping in sluice.mappings)
    assert 2 <= cold <= 4  # one per slot, for twenty jobs
    late = [one.at_ms for one in sluice.world.invocations if one.name.startswith("work/live")]
    assert min(late) >= START_MS + 3000


CHAIN: dict[str, Any] = {"function_timeout_s": 12, "chunk_margin_s": 8.0, "declared_chunk_s": 2.0}
"""One chunk an invocation: 2 s of work, 10 s needed for the next."""


def test_recursive_loop_detection_stops_a_long_chain_unless_it_is_allowed() -> None:
    stopped = drained(Hosting(recursion_allowed=False), jobs=1, chunks=30, **CHAIN)
    allowed = drained(Hosting(), jobs=1, chunks=30, **CHAIN)
    assert sum(mapping.stopped_chains for mapping in stopped.mappings) > 0
    assert max(one.lineage for one in stopped.world.invocations) < RECURSION_LIMIT
    assert sum(mapping.stopped_chains for mapping in allowed.mappings) == 0
    assert max(one.lineage for one in allowed.world.invocations) >= RECURSION_LIMIT
    # Stopped messages die in transport, and the row goes back to waiting: slow, and nothing is lost.
    assert (stopped.report().done, allowed.report().done) == (1, 1)


def test_workers_have_clocks_of_their_own() -> None:
    world = World(1)
    world.skew_ms = lambda name: 500 if name == "fast" else 0
    clocks: dict[str, int] = {}
    for name in ("fast", "right"):
        world.spawn(name, lambda name=name: clocks.setdefault(name, VirtualClock(world).now_ms()))  # type: ignore[misc]
    world.run()
    assert clocks == {"fast": START_MS + 500, "right": START_MS}


# -- the mixture


def test_a_mixture_is_a_function_of_its_seed() -> None:
    assert Mix(4).chances == Mix(4).chances
    assert len({Mix(seed).chances.ordered for seed in range(20)}) == 2


def test_every_kind_of_fault_comes_up_in_some_seed_and_none_after_the_end() -> None:
    faults: Counter[object] = Counter()
    for seed in range(60):
        mix = Mix(seed)
        for number in range(300):
            for when in When:
                fault = mix(Call(number, 0, "worker", "ledger.move", number), when)
                faults[(type(fault), when) if isinstance(fault, Fail) else type(fault)] += 1
            faults[mix._entry_fault(None)] += 1  # type: ignore[arg-type]
        mix.active = False
        assert mix(Call(1, 0, "worker", "ledger.move", 1), When.BEFORE) is None
    wanted = {Die, Stall, Repeat, (Fail, When.BEFORE), (Fail, When.AFTER), *EntryFault}
    assert wanted <= set(faults)


def test_every_chance_is_drawn() -> None:
    drawn = [Chances.draw(random.Random(seed)) for seed in range(40)]
    for name in Chances.__struct_fields__:
        assert len({getattr(chances, name) for chances in drawn}) > 1, f"{name} is always the same"


def test_poison_dies_of_its_attempts_and_what_kills_its_worker_of_its_crashes() -> None:
    drive = Drive(load_scenario("poison-match"), 3)
    drive.run()
    reasons = Counter(job.last_error for job in drive.sluice.rows.values() if job.last_error)
    assert reasons == {"job_failure": 24, "crash": 8}
