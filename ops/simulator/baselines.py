"""What others do with the same backlog, for comparison: the two schemes that a pacer usually replaces.

`enqueue-all` puts every job into the queue at once and tries a refused one again after a fixed delay, from its
beginning. `fixed-concurrency` keeps as many workers as the declared limit should feed; a refused call is tried again
in place, the worker waiting. Neither has a cursor: a job that is interrupted starts anew.
"""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ops.simulator.arrivals import Arrival, Arrivals
from ops.simulator.drive import is_worker
from ops.simulator.kinds import WorkKind
from ops.simulator.measure import Demand, Lives, Traffic
from ops.simulator.scenario import CLASS, UPSTREAM, Event, Scenario
from ops.simulator.upstream import TOO_MANY, SimUpstream, UpstreamCall
from ops.simulator.world import START_MS, Invocation, Outcome, World
from shared.errors import Refused, UpstreamFailed

ENQUEUE_ALL: Final = "enqueue-all"

FIXED_CONCURRENCY: Final = "fixed-concurrency"

RETRY_DELAY_MS: Final = 30_000

IN_PLACE_MS: Final = 1_000


@dataclass(eq=False, slots=True)
class Task:
    """A job in the naive queue."""

    arrival: Arrival
    asked: Mapping[str, Any]
    failures: int = 0
    chunks_done: int = 0


class Baseline:
    """One run of one scheme on a scenario's own arrivals, work and limiter."""

    def __init__(self, scenario: Scenario, seed: int, policy: str) -> None:
        self.scenario = scenario
        self.policy = policy
        self.world = World(seed, latency=scenario.latency, keep_trace=False)
        self.truth = scenario.upstream_truth
        self.job_class = scenario.settings.classes[CLASS]
        self.upstream = SimUpstream(self.world, {UPSTREAM: self.truth})
        self.upstream.on_call = self._called
        self.lives, self.traffic = Lives(), Traffic()
        self.demand = Demand(self.truth.limit, from_ms=START_MS + round(scenario.drains_from_s * 1000))
        self.arrivals = Arrivals(scenario, self.world, self._take)
        self.effects: Counter[tuple[str, int]] = Counter()
        self.done = self.dead = self.attempts = self.refused_attempts = 0
        self.backlog_ended_ms: int | None = None
        self.slots = self._slots()
        self._declared = scenario.settings.upstreams[UPSTREAM]
        self._kind = WorkKind(self.world, calls_per_chunk=0, duration=scenario.work.duration)
        self._free = self.slots
        self._enabled = True
        self._open = 0
        self._backlog_open = 0
        self._ready: deque[Task] = deque()
        self._behind: dict[str, deque[Task]] = {}
        self._rng = random.Random(f"{seed}/trouble")

    def _slots(self) -> int:
        if self.policy == ENQUEUE_ALL:
            return self.job_class.slots
        needed: float = self.scenario.upstream["limit_per_s"] / self.scenario.calls_per_job * self.scenario.service_s
        return max(1, min(self.job_class.slots, math.ceil(needed)))

    def run(self) -> None:
        for event in self.scenario.events:
            self.world.at(START_MS + round(event.at_s * 1000), partial(self._operate, event))
        if self.scenario.trouble.kills_per_minute:
            self._next_kill()
        self.arrivals.start()
        self.world.run(START_MS + round(self.scenario.max_hours * 3_600_000), stop=self._over)

    def _over(self) -> bool:
        return self.arrivals.over and self._open == 0 and not self.world.running

    def _operate(self, event: Event) -> None:
        self._enabled = event.do == "resume"
        self.demand.stopped = not self._enabled
        self.demand.change(self.world.now_ms)
        self._feed()

    # -- the queue

    def _take(self, batch: list[Arrival]) -> None:
        for arrival in batch:
            job, source = arrival.job, self.scenario.sources[arrival.number]
            assert job.due_ms is not None
            calls = arrival.chunks * self.scenario.work.calls_per_chunk
            self.lives.expect(job.job_id, due_ms=job.due_ms, created_ms=arrival.at_ms, live=arrival.live, calls=calls)
            self._open += 1
            self._backlog_open += not source.endless
            self.demand.change(self.world.now_ms, waiting=1)
            self._queue(Task(arrival, {"chunks": arrival.chunks, **_flags(job.payload)}))

    def _queue(self, task: Task) -> None:
        self._ready.append(task)
        self._feed()

    def _feed(self) -> None:
        """A match's jobs run one at a time, as a FIFO group makes them."""
        while self._enabled and self._free > 0 and self._ready:
            task = self._ready.popleft()
            match = task.arrival.job.match_id
            if match in self._behind:
                self._behind[match].append(task)
                continue
            self._behind[match] = deque()
            self._free -= 1
            self.attempts += 1
            self.demand.change(self.world.now_ms, waiting=-1)
            self.world.spawn(
                self.world.new_id("pool/live"),
                partial(self._work, task),
                timeout_ms=self.job_class.function_timeout_s * 1000,
                on_end=partial(self._ended, task),
            )

    def _ended(self, task: Task, invocation: Invocation) -> None:
        self._free += 1
        self._ready.extendleft(reversed(self._behind.pop(task.arrival.job.match_id)))
        if invocation.outcome is Outcome.RETURNED and invocation.value is True:
            self._finish(task)
        else:
            died = invocation.outcome in (Outcome.CRASHED, Outcome.TIMED_OUT)
            own = task.asked.get("poison") or task.asked.get("crash")
            task.failures += bool(own)
            if task.failures >= self.job_class.retry.max_attempts:
                self.dead += 1
                self._close(task)
            else:
                self.demand.change(self.world.now_ms, waiting=1)  # through its delay, too
                delay_ms = self.job_class.visibility_s * 1000 if died else RETRY_DELAY_MS
                self.world.at(self.world.now_ms + delay_ms, partial(self._queue, task))
        self._feed()

    def _finish(self, task: Task) -> None:
        self.done += 1
        self._close(task)

    def _close(self, task: Task) -> None:
        self._open -= 1
        self.lives.ended(task.arrival.job.job_id, self.world.now_ms)
        self._backlog_open -= not self.scenario.sources[task.arrival.number].endless
        if self._backlog_open == 0 and self.arrivals.backlog_over and self.backlog_ended_ms is None:
            self.backlog_ended_ms = self.world.now_ms
            self.arrivals.backlog_done()

    # -- the worker

    def _work(self, task: Task) -> bool:
        """The whole job from its first chunk; True when it is done."""
        job_id = task.arrival.job.job_id
        if task.asked.get("crash"):
            self.world.die()
        if task.asked.get("poison"):
            return False
        for chunk in range(task.arrival.chunks):
            for call in range(self.scenario.work.calls_per_chunk):
                if not self._call(f"{job_id}:{chunk}:{call}:{self.attempts}"):
                    return False
            self.lives.began(job_id, self.world.now_ms)  # a refused attempt has begun nothing
            self.world.sleep(self._kind.duration_ms(job_id, chunk))
            if task.chunks_done <= chunk:
                task.chunks_done = chunk + 1
                self.demand.use(self.scenario.work.calls_per_chunk)
            self.effects[job_id, chunk] += 1
        return True

    def _call(self, key: str) -> bool:
        """False: refused, and the job goes back to the queue."""
        while True:
            try:
                self.world.call(
                    "upstream.call",
                    partial(self.upstream.call, self._declared, {}, idempotency_key=key, timeout_s=60.0),
                )
            except (Refused, UpstreamFailed):
                self.refused_attempts += self.policy == ENQUEUE_ALL
                if self.policy == ENQUEUE_ALL:
                    return False
                self.world.sleep(IN_PLACE_MS)
            else:
                return True

    def _called(self, call: UpstreamCall) -> None:
        self.traffic.add(call.at_ms, refused=call.status == TOO_MANY)

    # -- kills

    def _next_kill(self) -> None:
        trouble = self.scenario.trouble
        at_ms = self.world.now_ms + round(self._rng.expovariate(trouble.kills_per_minute / 60) * 1000)
        if not trouble.until_s or at_ms < START_MS + trouble.until_s * 1000:
            self.world.at(at_ms, self._kill)

    def _kill(self) -> None:
        begun = [one for one in self.world.running if is_worker(one.name)]
        if begun:
            self.world.kill(self._rng.choice(begun), Outcome.CRASHED)
        if not self.arrivals.over or self._open:
            self._next_kill()


def _flags(payload: str) -> dict[str, bool]:
    return {name: True for name in ("poison", "crash") if f'"{name}": true' in payload}
