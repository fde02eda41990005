"""Jobs arrive in the virtual world as a scenario's sources say, each handed in the way a producer does it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeAlias

from msgspec import Struct

from ops.simulator.scenario import CLASS, Scenario, Source
from ops.simulator.world import START_MS, World
from shared.domain.job import NewJob

_BATCH: Final = 500
"""At most so many jobs that come at one moment are handed in together."""


class Arrival(Struct, frozen=True, kw_only=True):
    """A job at the moment when it is handed in."""

    at_ms: int
    job: NewJob
    live: bool
    chunks: int
    number: int


Take: TypeAlias = Callable[[list[Arrival]], None]


class Arrivals:
    """`take` gets every job, in batches of what comes at one moment. `backlog_done` ends the endless sources."""

    def __init__(self, scenario: Scenario, world: World, take: Take) -> None:
        self._scenario = scenario
        self._world = world
        self._take = take
        self._open = len(scenario.sources)
        self._ending = False
        self._poison = [random.Random(f"{world.seed}/poison/{number}") for number in range(len(scenario.sources))]

    @property
    def over(self) -> bool:
        return self._open == 0

    @property
    def backlog_over(self) -> bool:
        """Every source that ends by itself has ended."""
        return self._open <= sum(source.endless for source in self._scenario.sources)

    def start(self) -> None:
        for number, source in enumerate(self._scenario.sources):
            self._next(self._moments(number, source), [])

    def backlog_done(self) -> None:
        self._ending = True

    def _next(self, moments: Iterator[Arrival], batch: list[Arrival]) -> None:
        """Hand in what comes now, and be back for what comes later."""
        for arrival in moments:
            if arrival.at_ms > self._world.now_ms or len(batch) == _BATCH:
                self._world.at(arrival.at_ms, partial(self._go_on, moments, arrival))
                break
            batch.append(arrival)
        else:
            self._open -= 1
        if batch:
            self._take(batch)

    def _go_on(self, moments: Iterator[Arrival], first: Arrival) -> None:
        if self._ending and self._scenario.sources[first.number].endless:
            self._open -= 1
        else:
            self._next(moments, [first])

    def _moments(self, number: int, source: Source) -> Iterator[Arrival]:
        rng = random.Random(f"{self._world.seed}/source/{number}")
        at_s = source.from_s
        index = 0
        while True:
            if source.count:
                if index == source.count:
                    return
                at_s = source.from_s + (max(source.to_s, source.from_s) - source.from_s) * index / source.count
            else:
                at_s += rng.expovariate(source.per_s)
                if source.to_s and at_s > source.to_s:
                    return
            yield self._arrival(number, source, index, at_s)
            index += 1

    def _arrival(self, number: int, source: Source, index: int, at_s: float) -> Arrival:
        """The oldest first: of a backlog with an age, the first job became due that long ago and the last one now."""
        age_s = source.age_s * (1 - index / source.count) if source.count else 0.0
        payload: dict[str, object] = {"note": "canary", "chunks": source.chunks}
        by_chance = self._poison[number].random() < source.poison_share
        if by_chance or (source.poison_every and index % source.poison_every == 0):
            payload["poison"] = True
        if source.crash_every and index % source.crash_every == source.crash_every - 1:
            payload["crash"] = True
        at_ms = START_MS + round(at_s * 1000)
        job = NewJob(
            job_id=f"job-{number}-{index}",
            job_class=CLASS,
            match_id=f"match-{number}-{index // source.jobs_per_match}",
            payload=json.dumps(payload),
            due_ms=at_ms - round(age_s * 1000),
        )
        return Arrival(at_ms=at_ms, job=job, live=source.live, chunks=source.chunks, number=number)
