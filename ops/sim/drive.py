"""Run one scenario under our own policy: the production use cases, checked after every event, measured to the end."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from ops.sim.arrivals import Arrival, Arrivals
from ops.sim.checks.base import Checker
from ops.sim.checks.failing import Failing
from ops.sim.checks.suite import Suite
from ops.sim.invocations import Invocation, Outcome
from ops.sim.kinds import WorkKind
from ops.sim.measure import Measure
from ops.sim.mix import Mix
from ops.sim.repairs import Repairs, Word
from ops.sim.scenario import CLASS, Event, Scenario
from ops.sim.sluice_world import SimSluice
from ops.sim.world import START_MS, World
from shared.core.model import Job, NewJob, State
from shared.kind import Kind
from shared.usecases.operate import pause, resume

_WHY: Final = "the scenario says so"
_RETRY_MS: Final = 5_000


class Drive:
    """One run; afterwards `figures.result_of` says what came of it, and the world stays open to who wants to look.

    `stop_at_once`: at the first violation. `mix` replaces the seed's own mixture of faults.
    """

    def __init__(self, scenario: Scenario, seed: int, *, stop_at_once: bool = False, mix: Mix | None = None) -> None:
        self.scenario = scenario
        self.stop_at_once = stop_at_once
        self.mix = mix if mix is not None or not scenario.trouble.mix else Mix(seed)
        self.settings = scenario.settings if self.mix is None else self.mix.settings_of(scenario.settings)
        self._mended: set[str] = set()
        self.sluice = self._world(seed)
        more: list[type[Checker]] = [Measure] if self.mix is not None else [Measure, Failing]
        self.suite = Suite(self.sluice, more=more, clock_slack_ms=0 if self.mix is None else 2 * self.mix.skew_ms)
        self.measure = self.suite.of(Measure)
        self.measure.demand.limit = self.truth.limit
        self.measure.demand.from_ms = START_MS + round(scenario.drains_from_s * 1000)
        self.measure.calls_per_chunk = scenario.work.calls_per_chunk
        self.arrivals = Arrivals(scenario, self.sluice.world, self._take)
        self.backlog_ended_ms: int | None = None
        self._backlog: set[str] = set()
        self.measure.lives.on_end = self._job_ended
        self.repairs = self._repairs()
        self._rng = random.Random(f"{seed}/trouble")
        self._faults_over = False
        self._resuming = False
        self._producers = 0

    def _world(self, seed: int) -> SimSluice:
        scenario, mix = self.scenario, self.mix
        self.truth = scenario.upstream_truth if mix is None else mix.truth_of(scenario.upstream_truth)
        options: dict[str, Any] = {"schedule_faults": scenario.schedule_faults} if mix is None else mix.options()
        sluice = SimSluice(
            self.settings,
            seed,
            latency=scenario.latency,
            truths=dict.fromkeys(self.settings.upstreams, self.truth),
            kinds=self._kinds,
            hosting=scenario.hosting,
            keep_trace=False,
            **options,
        )
        if mix is not None:
            mix.begin(sluice)
        return sluice

    def _kinds(self, world: World) -> dict[str, Kind]:
        work, calls = self.scenario.work, self.scenario.work.calls_per_chunk
        return {"work": WorkKind(world, calls_per_chunk=calls, duration=work.duration, mended=self._mended)}

    def _repairs(self) -> Repairs:
        """Where the scenario does not ask for more, a dead job is given up: an ordered match would never end."""
        self._word_is_due = any(event.do == "repair" for event in self.scenario.events)
        return Repairs(
            self.sluice,
            self.settings.classes[CLASS],
            words=list(Word) if self._word_is_due else [Word.SKIP],
            mended=self._mended,
            over=self._over,
            expect=self._expect_replacement,
        )

    # -- the run

    def run(self) -> None:
        world, scenario = self.sluice.world, self.scenario
        for event in scenario.events:
            world.at(START_MS + round(event.at_s * 1000), partial(self._operate, event))
        if scenario.trouble.kills_per_minute:
            self._next_kill()
        if self.mix is not None:
            self.suite.faults_begin()
            world.at(START_MS + round(scenario.trouble.until_s * 1000), self._end_faults)
            for event in self.mix.events(scenario.trouble.until_s):
                world.at(START_MS + round(event.at_s * 1000), partial(self._operate, event))
        self.arrivals.start()
        world.run(START_MS + round(scenario.max_hours * 3_600_000), stop=self._over)
        self.suite.ended()

    def _over(self) -> bool:
        if self.stop_at_once and self.suite.broken:
            return True
        busy = self._producers or not self.arrivals.over or self.sluice.world.running
        if self._word_is_due and (self.repairs.found is None or self.sluice.ledger.states[State.DEAD]):
            return False
        return not busy and self.sluice.ledger.open_rows == 0 and (self.mix is None or self._faults_over)

    def _end_faults(self) -> None:
        assert self.mix is not None
        self._faults_over = True
        self.mix.end(self.sluice)
        self.suite.faults_over()
        if self.settings.classes[CLASS].ordered:
            self.repairs.begin()

    # -- what arrives

    def _take(self, batch: list[Arrival]) -> None:
        lives, calls = self.measure.lives, self.scenario.work.calls_per_chunk
        for arrival in batch:
            assert arrival.job.due_ms is not None
            lives.expect(
                arrival.job.job_id,
                due_ms=arrival.job.due_ms,
                created_ms=arrival.at_ms,
                live=arrival.live,
                calls=arrival.chunks * calls,
            )
            if not self.scenario.sources[arrival.number].endless:
                self._backlog.add(arrival.job.job_id)
        jobs = [arrival.job for arrival in batch]
        if self.mix is None:
            self.sluice.hand_in(jobs)
        else:
            self._produce(jobs)

    def _expect_replacement(self, job: Job) -> None:
        self.measure.lives.expect(
            job.job_id, due_ms=job.due_ms, created_ms=self.sluice.world.now_ms, live=False, calls=0
        )
        self._backlog.add(job.job_id)

    def _produce(self, jobs: Sequence[NewJob]) -> None:
        """A producer under faults may die or be refused: it hands the same jobs in again, until it is answered."""
        self._producers += 1
        self.sluice.world.spawn("producer", partial(self.sluice.hand_in, jobs), on_end=partial(self._produced, jobs))

    def _produced(self, jobs: Sequence[NewJob], invocation: Invocation) -> None:
        world = self.sluice.world
        if invocation.outcome is Outcome.RETURNED:
            self._producers -= 1
        else:
            world.at(world.now_ms + _RETRY_MS, partial(self._again, jobs))

    def _again(self, jobs: Sequence[NewJob]) -> None:
        self._producers -= 1
        self._produce(jobs)

    def _job_ended(self, job_id: str) -> None:
        self._backlog.discard(job_id)
        if not self._backlog and self.arrivals.backlog_over and self.backlog_ended_ms is None:
            self.backlog_ended_ms = self.sluice.world.now_ms
            self.arrivals.backlog_done()

    # -- what operators and chance do

    def _operate(self, event: Event) -> None:
        if event.do == "pause":
            self._command(partial(pause, self.sluice.ports, CLASS, by="operator", why=_WHY), "pause")
        elif event.do == "repair":
            self.repairs.begin()
        else:
            self._resuming = True
            self.suite.resumed(CLASS)
            told = partial(resume, self.sluice.ports, CLASS, by="operator", why="the scenario says so")
            self._command(told, "resume")

    def _command(self, entry: Callable[[], object], name: str) -> None:
        """What an operator types, and types again if it did not come to its end."""

        def ended(invocation: Invocation) -> None:
            if invocation.outcome is not Outcome.RETURNED and name == "resume":
                self.sluice.world.at(self.sluice.world.now_ms + _RETRY_MS, partial(self._command, entry, name))
            elif invocation.outcome is Outcome.RETURNED and name == "pause" and not self._resuming:
                self.suite.paused(CLASS)

        self.sluice.world.spawn(f"operator/{name}", entry, on_end=ended)

    def _next_kill(self) -> None:
        world, trouble = self.sluice.world, self.scenario.trouble
        wait_s = self._rng.expovariate(trouble.kills_per_minute / 60)
        if not trouble.until_s or world.now_ms + wait_s * 1000 < START_MS + trouble.until_s * 1000:
            world.at(world.now_ms + round(wait_s * 1000), self._kill)

    def _kill(self) -> None:
        world = self.sluice.world
        begun = [one for one in world.running if is_worker(one.name) and one.at_ms <= world.now_ms]
        if begun:
            world.kill(self._rng.choice(begun), Outcome.CRASHED)
        if not self.arrivals.over or self.sluice.ledger.open_rows:
            self._next_kill()


def is_worker(invocation: str) -> bool:
    """By its queue's name: a pacer's invocation is named after its tick, a dead-letter reader's after its queue."""
    return invocation.partition("/")[2].startswith(("live", "recovery"))
