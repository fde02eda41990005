"""One scenario under one policy, whichever it is: what arrives, what chance and operators do, when the backlog is over.

A policy is a class of its own: `drive` runs the production code, `policies` the schemes that it is compared with.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Final

from ops.simulator.arrivals import Arrival, Arrivals
from ops.simulator.measure import Demand, Lives, Traffic
from ops.simulator.result import Result, figures_of
from ops.simulator.scenario import Event, Scenario
from ops.simulator.upstream import SimUpstream, UpstreamTruth
from ops.simulator.world import START_MS, Outcome, World
from shared.domain.settings import ClassSettings
from shared.pacer.cost import Usage

PACED: Final = "paced"
"""Our own policy, with the rate policy that the scenario declares."""


def world_ms(second: float) -> int:
    """The world's time at a second of the run."""
    return START_MS + round(second * 1000)


class Run(ABC):
    """`run` goes to the end; then `finish` says what came of it, and the world stays open to who wants to look."""

    def __init__(
        self,
        scenario: Scenario,
        policy: str,
        *,
        world: World,
        upstream: SimUpstream,
        truth: UpstreamTruth,
        job_class: ClassSettings,
        lives: Lives,
        demand: Demand,
        traffic: Traffic,
    ) -> None:
        self.scenario, self.policy, self.world, self.upstream = scenario, policy, world, upstream
        self.truth, self.job_class = truth, job_class
        self.lives, self.demand, self.traffic = lives, demand, traffic
        self.arrivals = Arrivals(scenario, world, self._take)
        self.backlog_ended_ms: int | None = None
        """When the last job of the sources that end had ended, or had died."""
        self._backlog: set[str] = set()
        self._rng = random.Random(f"{world.seed}/trouble")
        lives.on_end = self._job_ended

    def run(self) -> None:
        for event in self.scenario.events:
            self.world.at(world_ms(event.at_s), partial(self._operate, event))
        if self.scenario.trouble.kills_per_minute:
            self._next_kill()
        self._prepare()
        self.arrivals.start()
        self.world.run(world_ms(self.scenario.max_hours * 3600), stop=self._over)

    def finish(self) -> Result:
        return Result(figures=figures_of(self))

    # -- what a policy does

    @property
    @abstractmethod
    def done(self) -> int:
        """Jobs that are done."""

    @property
    @abstractmethod
    def dead(self) -> int:
        """Jobs that were given up by the policy."""

    @property
    @abstractmethod
    def open_jobs(self) -> int:
        """Jobs that have come and not ended."""

    @property
    @abstractmethod
    def usage(self) -> Usage:
        """What AWS would have billed."""

    def _prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Just before the first job comes."""

    @abstractmethod
    def _over(self) -> bool:
        """Asked after every event."""

    @abstractmethod
    def _operate(self, event: Event) -> None:
        """An operator does what the scenario says."""

    @abstractmethod
    def _hand_in(self, batch: Sequence[Arrival]) -> None:
        """These jobs come now."""

    # -- the backlog

    def _take(self, batch: list[Arrival]) -> None:
        for arrival in batch:
            job, source = arrival.job, self.scenario.sources[arrival.number]
            assert job.due_ms is not None
            calls = arrival.chunks * self.scenario.work.calls_per_chunk
            self.lives.expect(job.job_id, due_ms=job.due_ms, created_ms=arrival.at_ms, live=arrival.live, calls=calls)
            if not source.endless:
                self._backlog.add(job.job_id)
        self._hand_in(batch)

    def _job_ended(self, job_id: str) -> None:
        self._backlog.discard(job_id)
        if not self._backlog and self.arrivals.backlog_over and self.backlog_ended_ms is None:
            self.backlog_ended_ms = self.world.now_ms
            self.arrivals.backlog_done()

    # -- kills of running workers

    def _next_kill(self) -> None:
        trouble, now_ms = self.scenario.trouble, self.world.now_ms
        wait_s = self._rng.expovariate(trouble.kills_per_minute / 60)
        if not trouble.until_s or now_ms + wait_s * 1000 < world_ms(trouble.until_s):
            self.world.at(now_ms + round(wait_s * 1000), self._kill)

    def _kill(self) -> None:
        world = self.world
        begun = [one for one in world.running if is_worker(one.name) and one.at_ms <= world.now_ms]
        if begun:
            world.kill(self._rng.choice(begun), Outcome.CRASHED)
        if not self.arrivals.over or self.open_jobs:
            self._next_kill()


def is_worker(invocation: str) -> bool:
    """By its queue's name: a pacer's invocation is named after its tick, a dead-letter reader's after its queue."""
    return invocation.partition("/")[2].startswith(("live", "recovery"))
