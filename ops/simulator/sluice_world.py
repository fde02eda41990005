"""The whole of Sluice in one virtual world: the production use cases over memory adapters, run by simulated hosts.

sluice = SimSluice(settings, seed=7, crash=CrashOn("ledger.move", 40, When.AFTER))
sluice.submit([NewJob(job_id=f"j{n}", job_class="replay", match_id=f"m{n}", payload="{}") for n in range(200)])
assert sluice.drain(max_ms=30 * 60_000)
assert sluice.report().done == 200
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from msgspec import Struct

from ops.simulator.faults import FaultHook
from ops.simulator.hosts import (
    EventSourceMapping,
    Hosting,
    MappingFaults,
    Schedule,
    ScheduleFaults,
)
from ops.simulator.kinds import ChunkStart, SimKind, WatchedKind
from ops.simulator.ports import GreenletParallel, SimLog, SimMetrics, VirtualClock, switching
from ops.simulator.upstream import SimUpstream, UpstreamTruth
from ops.simulator.world import Invocation, Latency, Outcome, World
from shared.domain.control import RunState
from shared.domain.job import Job, Lane, NewJob, State
from shared.domain.messages import Delivery
from shared.domain.settings import ClassSettings, Settings
from shared.errors import Retryable
from shared.kind import Kind
from shared.memory.ledger import MemoryLedger, Staleness, Step
from shared.memory.queue import EntryFaultHook, MemoryQueue
from shared.memory.resources import MemoryBlobs, MemoryLimiter
from shared.operate.switches import pause, resume
from shared.pacer.tick import TickRequest, pace
from shared.ports import Ports
from shared.submit.submission import SubmitReport, submit_jobs
from shared.worker.dead_letters import read_dead_letters
from shared.worker.invocation import work

KindsOf: TypeAlias = Callable[[World], Mapping[str, Kind]]

_SUBMISSIONS: Final = 3
"""How often a producer hands the same jobs in before a test is told that it never will be answered."""

_DEAD_LETTER_SLOTS: Final = 2
"""Concurrent readers of a dead-letter queue, as they are deployed."""

_DEAD_LETTER_TIMEOUT_MS: Final = 30_000
"""After so long such a reader is killed."""


class Report(Struct, frozen=True, kw_only=True):
    """What a small world came to, as tests ask for it; the figures of a scenario are in `result`.

    `over_budget_ticks`: runs that admitted more than they planned (I1). `writes`: the ledger's, by name.
    """

    jobs: int
    done: int
    dead: int
    open: int
    duplicate_effects: int
    redone_chunks: int
    over_budget_ticks: int
    max_in_flight: int
    ticks: int
    crashes: int
    writes: dict[str, int]


class SimSluice:
    """Give it settings, a seed and what shall go wrong; then `submit`, `drain`, and look at `rows` and `report()`.

    `kinds` replaces the simulated kind of a class (by the kind's name) with any other, the real ones included.
    """

    def __init__(
        self,
        settings: Settings,
        seed: int,
        *,
        crash: FaultHook | None = None,
        faults: Sequence[FaultHook] = (),
        latency: Latency | None = None,
        staleness: Staleness | None = None,
        schedule_faults: ScheduleFaults | None = None,
        mapping_faults: MappingFaults | None = None,
        entry_fault: EntryFaultHook | None = None,
        truths: Mapping[str, UpstreamTruth] | None = None,
        kinds: Mapping[str, Kind] | KindsOf | None = None,
        hosting: Hosting | None = None,
        keep_trace: bool = True,
    ) -> None:
        hooks = [*faults, *([] if crash is None else [crash])]
        self.settings = settings
        self.world = World(seed, latency=latency, faults=hooks, keep_trace=keep_trace)
        self.ledger = MemoryLedger(self._now_ms, staleness=staleness)
        self.queue = MemoryQueue(settings, self._now_ms, entry_fault=entry_fault, lineage=self._lineage)
        self._hosting = hosting
        self.limiter = MemoryLimiter()
        self.upstream = SimUpstream(self.world, truths)
        self.blobs = MemoryBlobs()
        self.log = SimLog(self._now_ms)
        self.metrics = SimMetrics(self._now_ms)
        self.ports = self._ports()
        self.kinds: dict[str, WatchedKind] = {}
        self.schedules: dict[str, Schedule] = {}
        self.mappings: list[EventSourceMapping] = []
        self._jitter = self.world.random("jitter").random
        if kinds is not None and not isinstance(kinds, Mapping):
            kinds = kinds(self.world)
        for job_class in settings.classes.values():
            kind = (kinds or {}).get(job_class.kind) or SimKind(
                self.world, calls_per_chunk=0 if job_class.upstream is None else 1
            )
            self.kinds[job_class.name] = WatchedKind(self.world, kind)
            self._host(job_class, schedule_faults, mapping_faults)

    # -- what a test does

    def submit(self, jobs: Sequence[NewJob]) -> SubmitReport:
        """Submit as a producer does: when its process dies or the ledger is away, it submits the same jobs again."""
        for _ in range(_SUBMISSIONS):
            try:
                invocation = self.command("submit", lambda: self.hand_in(jobs))
            except Retryable:
                continue
            if isinstance(invocation.value, SubmitReport):
                return invocation.value
        raise RuntimeError(f"submitting {len(jobs)} jobs did not come to an end")

    def hand_in(self, jobs: Sequence[NewJob]) -> SubmitReport:
        """What a producer's process does once, be it an invocation of the world or not."""
        return submit_jobs(self.ports, self.settings, jobs)

    def drain(self, max_ms: int) -> bool:
        """Let time pass until no row is open and no invocation runs, at most `max_ms`. Returns whether that came."""
        self.world.run(self.world.now_ms + max_ms, stop=self._drained)
        return self._drained()

    def run(self, ms: int) -> None:
        self.world.run(self.world.now_ms + ms)

    def command(self, name: str, fn: Callable[[], object]) -> Invocation:
        """Run one process to its end, the rest of the world beside it. Raises what it raised; a crash is returned."""
        invocation = self.world.spawn(name, fn)
        self.world.run(stop=lambda: invocation.ended)
        if invocation.error is not None:
            raise invocation.error
        return invocation

    def pause(self, job_class: str, why: str = "test") -> Invocation:
        return self.command("pause", lambda: pause(self.ports, job_class, by="operator", why=why))

    def resume(self, job_class: str) -> Invocation:
        return self.command("resume", lambda: resume(self.ports, job_class, by="operator", why="test"))

    @property
    def rows(self) -> dict[str, Job]:
        return {job_id: row.job for job_id, row in self.ledger.rows.items()}

    @property
    def errors(self) -> list[Exception]:
        """What invocations raised: nothing but the declared unavailability of a port belongs here."""
        return [
            invocation.error
            for invocation in self.world.invocations
            if invocation.outcome is Outcome.RAISED and invocation.error is not None
        ]

    @property
    def starts(self) -> list[ChunkStart]:
        """The chunks that were begun, class by class."""
        return [start for kind in self.kinds.values() for start in kind.starts]

    def report(self) -> Report:
        ledger = self.ledger
        return Report(
            jobs=len(ledger.rows),
            done=ledger.states[State.DONE],
            dead=ledger.states[State.DEAD],
            open=ledger.open_rows,
            duplicate_effects=sum(count - 1 for count in self.upstream.effects.values()),
            redone_chunks=redone_chunks(ledger.steps, self.starts),
            over_budget_ticks=_over_budget(ledger),
            max_in_flight=_max_in_flight(ledger.steps),
            ticks=sum(bool(run.owner) and run.state in (RunState.CLOSED, RunState.SKIPPED) for run in ledger.runs),
            crashes=sum(invocation.outcome is Outcome.CRASHED for invocation in self.world.invocations),
            writes=dict(sorted(ledger.writes.items())),
        )

    # -- assembly

    def _now_ms(self) -> int:
        return self.world.now_ms

    def _lineage(self) -> int:
        """What a worker sends carries its lineage on; anybody else begins a new one."""
        current = self.world.current
        is_worker = current is not None and not current.name.partition("/")[2].startswith(("tick", "dead"))
        return current.lineage + 1 if current is not None and is_worker else 0

    def _drained(self) -> bool:
        return not self.world.running and self.ledger.open_rows == 0

    def _ports(self) -> Ports:
        world = self.world
        return Ports(
            clock=VirtualClock(world),
            parallel=GreenletParallel(world),
            log=self.log,
            metrics=switching(world, "metrics", self.metrics),
            ledger=switching(world, "ledger", self.ledger),
            queue=switching(world, "queue", self.queue),
            limiter=switching(world, "limiter", self.limiter),
            upstream=switching(world, "upstream", self.upstream),
            blobs=switching(world, "blobs", self.blobs),
        )

    def _host(
        self, job_class: ClassSettings, schedule_faults: ScheduleFaults | None, mapping_faults: MappingFaults | None
    ) -> None:
        schedule = Schedule(
            self.world,
            job_class.name,
            partial(self._tick, job_class),
            interval_ms=job_class.tick_interval_s * 1000,
            timeout_ms=self.settings.pacer_timeout_s * 1000,
            faults=schedule_faults,
        )
        schedule.start()
        self.schedules[job_class.name] = schedule
        mapping = partial(EventSourceMapping, self.world, self.queue)
        for lane in Lane:
            self.mappings.append(
                mapping(
                    self.queue.lane(job_class.name, lane),
                    partial(self._work, job_class),
                    slots=job_class.lane_slots(lane),
                    batch_size=job_class.batch_size,
                    timeout_ms=job_class.function_timeout_s * 1000,
                    faults=mapping_faults,
                    hosting=self._hosting,
                )
            )
        self.mappings.append(
            mapping(
                self.queue.dead_letters(job_class.name),
                partial(self._bury, job_class),
                slots=_DEAD_LETTER_SLOTS,
                batch_size=10,
                timeout_ms=_DEAD_LETTER_TIMEOUT_MS,
            )
        )

    # -- what the hosts run

    def _tick(self, job_class: ClassSettings, scheduled_ms: int, nonce: str, end_ms: int) -> object:
        request = TickRequest(scheduled_ms=scheduled_ms, source="schedule", nonce=nonce, deadline_ms=end_ms)
        return pace(self.ports, self.settings, job_class, request).tick

    def _work(self, job_class: ClassSettings, deliveries: Sequence[Delivery], nonce: str, end_ms: int) -> list[str]:
        kind, jitter = self.kinds[job_class.name], self._jitter
        upstream = None if job_class.upstream is None else self.settings.upstreams[job_class.upstream]
        return work(self.ports, kind, job_class, upstream, deliveries, nonce=nonce, end_ms=end_ms, jitter=jitter)

    def _bury(self, job_class: ClassSettings, deliveries: Sequence[Delivery], nonce: str, _end_ms: int) -> list[str]:
        return read_dead_letters(self.ports, job_class, deliveries, nonce=nonce, jitter=self._jitter)


def redone_chunks(steps: Iterable[Step], starts: Iterable[ChunkStart]) -> int:
    """I4: chunks that were begun after their commit. A twin that had read the row before it counts too, so zero is
    required only of runs without duplicate deliveries and stalls."""
    committed_ms: dict[tuple[str, str], int] = {}
    for step in steps:
        if step.after.cursor != step.before.cursor or step.after.state is State.DONE:
            committed_ms.setdefault((step.before.job_id, step.before.cursor), step.at_ms)
    return sum(start.at_ms > committed_ms.get((start.job_id, start.cursor), start.at_ms) for start in starts)


def _over_budget(ledger: MemoryLedger) -> int:
    """I1: runs that admitted more, by claims of whatever number of invocations and by allowance, than was planned."""
    claims = Counter(step.after.run_id for step in ledger.steps if step.name in ("claim", "admit"))
    budgets = {run.key.run_id: run.budget for run in ledger.runs}
    return sum(count > budgets.get(run_id, 0) for run_id, count in claims.items())


def _max_in_flight(steps: Iterable[Step]) -> int:
    in_flight = most = 0
    for step in steps:
        in_flight += (step.after.state is State.QUEUED) - (step.before.state is State.QUEUED)
        most = max(most, in_flight)
    return most
