"""The policies side by side: the same scenario and seed, the same arrivals, work and limiter.

`paced` is ours; `halving` is ours with a rate that a refused window halves, which differs only where something is
refused. The two others are the schemes that a pacer usually replaces. `enqueue-all` puts every job into the queue at
once and tries a refused one again after a fixed delay, from its beginning. `fixed-concurrency` keeps as many workers as
the declared limit should feed; a refused call is tried again in place, the worker waiting. Neither of the two has a
cursor: a job that is interrupted starts anew.
"""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ops.simulator.arrivals import Arrival
from ops.simulator.drive import Drive
from ops.simulator.kinds import WorkKind
from ops.simulator.measure import Demand, Lives, Traffic
from ops.simulator.result import Result
from ops.simulator.run import PACED, Run, world_ms
from ops.simulator.scenario import CLASS, UPSTREAM, Event, Scenario
from ops.simulator.upstream import TOO_MANY, SimUpstream, UpstreamCall
from ops.simulator.world import Invocation, Outcome, World
from shared.domain.settings import RatePolicy
from shared.errors import Refused, UpstreamFailed
from shared.pacer.cost import Usage

HALVING: Final = "halving"

ENQUEUE_ALL: Final = "enqueue-all"

FIXED_CONCURRENCY: Final = "fixed-concurrency"

POLICIES: Final = (PACED, HALVING, ENQUEUE_ALL, FIXED_CONCURRENCY)

RETRY_DELAY_MS: Final = 30_000
"""After so long `enqueue-all` tries a refused job again."""

IN_PLACE_MS: Final = 1_000
"""So long a worker of `fixed-concurrency` waits before it repeats a refused call."""

_REQUESTS_PER_ATTEMPT: Final = 3
"""A send, a receive and a delete or a change of visibility."""


def run_policy(scenario: Scenario, seed: int, policy: str = PACED) -> Result:
    """One run to its end. What a scenario expects, it expects of ours."""
    run: Run
    if policy == HALVING:
        halved = scenario.with_(upstream_keys={**scenario.upstream_keys, "rate_policy": RatePolicy.HALVING}, expect=())
        run = Drive(halved, seed, policy=HALVING)
    else:
        run = Drive(scenario, seed) if policy == PACED else Scheme(scenario, seed, policy)
    run.run()
    return run.finish()


@dataclass(eq=False, slots=True)
class Queued:
    """A job in the scheme's queue, and what its payload asks for."""

    arrival: Arrival
    asked: Mapping[str, Any]
    failures: int = 0
    chunks_done: int = 0


class Scheme(Run):
    """`enqueue-all` or `fixed-concurrency`, on a scenario's own arrivals, work and limiter."""

    def __init__(self, scenario: Scenario, seed: int, policy: str) -> None:
        world, truth = World(seed, latency=scenario.latency, keep_trace=False), scenario.upstream_truth
        super().__init__(
            scenario,
            policy,
            world=world,
            upstream=SimUpstream(world, {UPSTREAM: truth}),
            truth=truth,
            job_class=scenario.settings.classes[CLASS],
            lives=Lives(),
            demand=Demand(truth.limit, from_ms=world_ms(scenario.drains_from_s)),
            traffic=Traffic(),
        )
        self.upstream.on_call = self._called
        self._effects: Counter[tuple[str, int]] = Counter()
        self._done = self._dead = self._open = self._attempts = self._refused_attempts = 0
        self._declared = scenario.settings.upstreams[UPSTREAM]
        self._kind = WorkKind(world, calls_per_chunk=0, duration=scenario.work.duration)
        self._free = self._slots()
        self._enabled = True
        self._ready: deque[Queued] = deque()
        self._behind: dict[str, deque[Queued]] = {}

    def _slots(self) -> int:
        if self.policy == ENQUEUE_ALL:
            return self.job_class.slots
        limit_per_s: float = self.scenario.upstream_keys["limit_per_s"]
        needed = limit_per_s / self.scenario.calls_per_job * self.scenario.service_s
        return max(1, min(self.job_class.slots, math.ceil(needed)))

    def finish(self) -> Result:
        result = super().finish()
        repeats = sum(count - 1 for count in self._effects.values())
        result.figures.duplicate_effects = result.figures.redone_chunks = repeats
        result.figures.attempts_burned_by_refusals = self._refused_attempts
        return result

    # -- what is measured of it

    @property
    def done(self) -> int:
        return self._done

    @property
    def dead(self) -> int:
        return self._dead

    @property
    def open_jobs(self) -> int:
        return self._open

    @property
    def usage(self) -> Usage:
        spent_ms = sum(one.ended_ms - one.at_ms for one in self.world.invocations if one.ended_ms is not None)
        return Usage(
            queue_requests=self._attempts * _REQUESTS_PER_ATTEMPT,
            invocations=self._attempts,
            gb_seconds=spent_ms / 1000 * self.job_class.memory_mb / 1024,
        )

    def _called(self, call: UpstreamCall) -> None:
        self.traffic.add(call.at_ms, refused=call.status == TOO_MANY)

    # -- the queue

    def _over(self) -> bool:
        return self.arrivals.over and self._open == 0 and not self.world.running

    def _operate(self, event: Event) -> None:
        self._enabled = event.do == "resume"
        self.demand.stopped = not self._enabled
        self.demand.change(self.world.now_ms)
        self._feed()

    def _hand_in(self, batch: Sequence[Arrival]) -> None:
        for arrival in batch:
            self._open += 1
            self.demand.change(self.world.now_ms, waiting=1)
            self._queue(Queued(arrival, json.loads(arrival.job.payload)))

    def _queue(self, job: Queued) -> None:
        self._ready.append(job)
        self._feed()

    def _feed(self) -> None:
        """A match's jobs run one at a time, as a FIFO group makes them."""
        while self._enabled and self._free > 0 and self._ready:
            job = self._ready.popleft()
            match = job.arrival.job.match_id
            if match in self._behind:
                self._behind[match].append(job)
                continue
            self._behind[match] = deque()
            self._free -= 1
            self._attempts += 1
            self.demand.change(self.world.now_ms, waiting=-1)
            self.world.spawn(
                self.world.new_id("pool/live"),
                partial(self._work, job),
                timeout_ms=self.job_class.function_timeout_s * 1000,
                on_end=partial(self._ended, job),
            )

    def _ended(self, job: Queued, invocation: Invocation) -> None:
        self._free += 1
        self._ready.extendleft(reversed(self._behind.pop(job.arrival.job.match_id)))
        if invocation.outcome is Outcome.RETURNED and invocation.value is True:
            self._done += 1
            self._close(job)
        else:
            job.failures += bool(job.asked.get("poison") or job.asked.get("crash"))
            if job.failures >= self.job_class.retry.max_attempts:
                self._dead += 1
                self._close(job)
            else:
                self.demand.change(self.world.now_ms, waiting=1)  # through its delay, too
                died = invocation.outcome in (Outcome.CRASHED, Outcome.TIMED_OUT)
                delay_ms = self.job_class.visibility_s * 1000 if died else RETRY_DELAY_MS
                self.world.at(self.world.now_ms + delay_ms, partial(self._queue, job))
        self._feed()

    def _close(self, job: Queued) -> None:
        self._open -= 1
        self.lives.ended(job.arrival.job.job_id, self.world.now_ms)

    # -- the worker

    def _work(self, job: Queued) -> bool:
        """The whole job from its first chunk; True when it is done."""
        job_id = job.arrival.job.job_id
        if job.asked.get("crash"):
            self.world.die()
        if job.asked.get("poison"):
            return False
        for chunk in range(job.arrival.chunks):
            for call in range(self.scenario.work.calls_per_chunk):
                if not self._call(f"{job_id}:{chunk}:{call}:{self._attempts}"):
                    return False
            self.lives.began(job_id, self.world.now_ms)  # a refused attempt has begun nothing
            self.world.sleep(self._kind.duration_ms(job_id, chunk))
            if job.chunks_done <= chunk:
                job.chunks_done = chunk + 1
                self.demand.use(self.scenario.work.calls_per_chunk)
            self._effects[job_id, chunk] += 1
        return True

    def _call(self, key: str) -> bool:
        """False: refused, and the job goes back to the queue."""
        call = partial(self.upstream.call, self._declared, {}, idempotency_key=key, timeout_s=60.0)
        while True:
            try:
                self.world.call("upstream.call", call)
            except (Refused, UpstreamFailed):
                if self.policy == ENQUEUE_ALL:
                    self._refused_attempts += 1
                    return False
                self.world.sleep(IN_PLACE_MS)
            else:
                return True
