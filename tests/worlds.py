"""What the tests of the small world share: settings, jobs, kinds made of a function, and a world run by hand."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ops.simulator.checks.suite import Suite
from ops.simulator.sluice_world import SimSluice
from ops.simulator.world import START_MS, Invocation
from shared.domain.control import Control, Run, TickLine
from shared.domain.job import Job, Lane, NewJob
from shared.domain.messages import Delivery
from shared.domain.settings import AbortRules, ClassSettings, RetrySettings, Settings, UpstreamSettings
from shared.domain.stats import window_of
from shared.kind import Chunk, ChunkContext
from shared.memory.ledger import Step
from shared.pacer.tick import TickReport, TickRequest, run_tick
from shared.submit.submission import SubmitReport, submit_jobs
from shared.worker.dead_letters import read_dead_letters
from shared.worker.invocation import work

CLASS: Final = "replays"
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000

TWENTY_A_TICK: Final[dict[str, Any]] = {"slots": 4, "declared_service_s": 12.0}
"""4 slots at 12 s a job are 20 rows a minute; the level is ceil((60 + 15 + 12) / 3) = 29 rows."""


def settings(*, limit_per_s: float | None = None, retry: RetrySettings | None = None, **changes: Any) -> Settings:
    """One class, paced by what is declared of it; it neither recovers in stages nor stops by itself unless asked to.

    With `limit_per_s` it calls an upstream of that limit once a chunk, otherwise none.
    """
    fields: dict[str, Any] = {"kind": "sim", "slots": 20, "declared_service_s": 0.5, "measured": False}
    fields |= {"staged_recovery": False, "abort": AbortRules.off()}
    fields["retry"] = retry or RetrySettings()
    upstreams = {}
    if limit_per_s is not None:
        upstreams["inference"] = UpstreamSettings(name="inference", endpoint="http://upstream", limit_per_s=limit_per_s)
        fields["upstream"] = "inference"
    return Settings(upstreams=upstreams, classes={CLASS: ClassSettings(name=CLASS, **(fields | changes))})


def jobs(
    count: int, *, matches: int | None = None, name: str = "j", due_ms: int | None = None, **payload: Any
) -> list[NewJob]:
    """Jobs `j0`, `j1`, ..., each of a match of its own unless `matches` says how many there are."""
    return [
        NewJob(
            job_id=f"{name}{number}",
            job_class=CLASS,
            match_id=f"{name}-m{number % (matches or count)}",
            payload=json.dumps(payload),
            due_ms=due_ms,
        )
        for number in range(count)
    ]


@dataclass(slots=True)
class FunctionKind:
    """A kind whose chunks are one function."""

    chunk: Callable[[Job, str, ChunkContext], Any]
    calls_per_chunk: int = 0

    def process_chunk(self, job: Job, cursor: str, context: ChunkContext) -> Chunk:
        made: Chunk = self.chunk(job, cursor, context)
        return made


class Bench(SimSluice):
    """The world with its schedule and its mappings switched off: the test fires ticks and invokes workers itself.

    What it submits waits for a tick; `produce` submits as a producer does, which spends live allowance.
    """

    def __init__(
        self, settings: Settings, seed: int = 1, *, ticks: bool = False, workers: bool = False, **options: Any
    ) -> None:
        super().__init__(settings, seed, **options)
        self.job_class = settings.classes[CLASS]
        self.upstream_settings = next(iter(settings.upstreams.values()), None)
        self.schedules[CLASS].enabled = ticks
        self.switch(workers)

    def hand_in(self, jobs: Sequence[NewJob]) -> SubmitReport:
        return submit_jobs(self.ports, self.settings, jobs, spends=False)

    def produce(self, jobs: Sequence[NewJob], *, nonce: str = "") -> SubmitReport:
        (report,) = self.ended(self.producer(jobs, nonce=nonce))
        assert isinstance(report, SubmitReport)
        return report

    def producer(self, jobs: Sequence[NewJob], *, nonce: str = "") -> Invocation:
        return self.world.spawn("producer", partial(submit_jobs, self.ports, self.settings, jobs, nonce=nonce))

    def switch(self, on: bool, *, lanes: Sequence[Lane] = tuple(Lane)) -> None:
        """Event source mappings of these lanes (and the dead-letter reader's) on or off."""
        for mapping, lane in zip(self.mappings, [*Lane, None], strict=True):
            if lane is None or lane in lanes:
                mapping.enabled = on
                mapping.poke()

    def until(self, second: float) -> None:
        """Let time pass until `second` after the world's beginning."""
        self.world.run(START_MS + round(second * 1000))

    def ended(self, *invocations: Invocation) -> list[Any]:
        """What the invocations returned, once all have ended. One that raised raises here; one that died gives None."""
        self.world.run(self.world.now_ms + HOUR_MS, stop=lambda: all(one.ended for one in invocations))
        for one in invocations:
            if one.error is not None:
                raise one.error
        return [one.value for one in invocations]

    # -- the pacer

    def tick(self, minute: int = 0, *, at_s: float | None = None) -> Invocation:
        """Trigger this minute's tick, `at_s` after the world's beginning (now). It is killed at the pacer's timeout."""
        at_ms = None if at_s is None else START_MS + round(at_s * 1000)
        return self.schedules[CLASS].fire(START_MS + minute * MINUTE_MS, at_ms=at_ms)

    def ticked(self, minute: int = 0, *, at_s: float | None = None) -> TickReport:
        (report,) = self.ended(self.tick(minute, at_s=at_s))
        assert isinstance(report, TickReport)
        return report

    def zombie_tick(self, minute: int = 0) -> Invocation:
        """A pacer that its host forgets to kill at its deadline."""
        nonce = self.world.new_id("zombie")
        request = TickRequest(
            scheduled_ms=START_MS + minute * MINUTE_MS,
            source="test",
            nonce=nonce,
            deadline_ms=self.world.now_ms + self.settings.pacer_timeout_s * 1000,
        )
        return self.world.spawn(nonce, partial(run_tick, self.ports, self.job_class, self.upstream_settings, request))

    # -- the workers

    def receive(self, limit: int = 10, *, lane: Lane = Lane.LIVE) -> list[Delivery]:
        return self.queue.receive(CLASS, lane, limit)

    def work(self, deliveries: Sequence[Delivery], *, timeout_s: float | None = None) -> Invocation:
        """One worker invocation, killed after `timeout_s` (the function's timeout)."""
        timeout_ms = round((self.job_class.function_timeout_s if timeout_s is None else timeout_s) * 1000)
        nonce = self.world.new_id("worker")
        entry = partial(
            work,
            self.ports,
            self.kinds[CLASS],
            self.job_class,
            self.upstream_settings,
            deliveries,
            nonce=nonce,
            end_ms=self.world.now_ms + timeout_ms,
            jitter=lambda: 0.5,
        )
        return self.world.spawn(nonce, entry, timeout_ms=timeout_ms)

    def worked(self, deliveries: Sequence[Delivery]) -> list[str]:
        """Work the messages to the end as a mapping would: what was not reported as failed is deleted."""
        (failed,) = self.ended(self.work(deliveries))
        for delivery in deliveries:
            if failed is not None and delivery.message_id not in failed:
                self.queue.delete(delivery)
        return [] if failed is None else list(failed)

    def buried(self, deliveries: Sequence[Delivery]) -> list[str]:
        """Give these deliveries to the dead-letter reader."""
        read = partial(read_dead_letters, self.ports, self.job_class, deliveries, nonce="reader", jitter=lambda: 0.5)
        (failed,) = self.ended(self.world.spawn("reader", read))
        return list(failed)

    # -- what came of it

    def steps(self, name: str) -> list[Step]:
        """The moves of this name that were made, in order."""
        return [step for step in self.ledger.steps if step.name == name]

    def moves(self) -> list[str]:
        return [step.name for step in self.ledger.steps]

    def claimed(self, lane: Lane | None = None) -> int:
        return sum(lane in (None, step.after.lane) for step in self.steps("claim"))

    @property
    def control(self) -> Control:
        return self.ledger.read_control(CLASS)

    @property
    def history(self) -> tuple[TickLine, ...]:
        return self.control.history

    def run_of(self, minute: int) -> Run:
        (run,) = [run for run in self.ledger.runs if run.key.minute_ms == START_MS + minute * MINUTE_MS]
        return run

    def counters(self) -> Counter[str]:
        """The statistics of the class over all minutes so far."""
        minutes = range(START_MS, window_of(self.world.now_ms) + 1, MINUTE_MS)
        sums: Counter[str] = Counter()
        for window in self.ledger.read_stats(CLASS, windows_ms=list(minutes)):
            sums.update(window.counters)
        return sums

    def queued(self, lane: Lane) -> list[str]:
        """Job ids of the messages in this lane's queue that can be received now."""
        return [delivery.message.job_id for delivery in self.receive(10_000, lane=lane)]


class Watched(Bench):
    """With every checker at work from the beginning."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        super().__init__(settings, **options)
        self.suite = Suite(self)

    @property
    def broken(self) -> list[str]:
        return [str(each) for each in self.suite.findings.first]
