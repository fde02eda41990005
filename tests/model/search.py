"""Breadth-first search over all interleavings of a world, with the shortest trace to whatever breaks an invariant.

I3 is judged at every state that is reached: from there, with no further fault, everything must come to its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model import others, pacer, workers
from tests.model.world import BUDGETS, ENDED, FAULTS, Control, Run, Setup, Step, World, initial

_PATIENCE_TICKS = 3


@dataclass(slots=True)
class Found:
    """`broken` maps an invariant to the shortest trace that breaks it."""

    states: int = 0
    broken: dict[str, list[str]] = field(default_factory=dict)


def steps(setup: Setup, world: World) -> Iterator[Step]:
    yield from own_steps(setup, world)
    if world.budgets:
        yield from pacer.ticks(setup, world)
        if setup.pause:
            yield from others.pause_command(setup, world)


def own_steps(setup: Setup, world: World) -> Iterator[Step]:
    """What happens without anybody from outside: no new tick, no pause."""
    for at in range(setup.workers):
        yield from workers.worker(setup, world, at)
    yield from others.time(setup, world)
    yield from others.dead_letter_reader(setup, world)
    for at in range(len(world.pacers)):
        yield from pacer.pacer(setup, world, at)
    yield from others.submitter(setup, world)
    yield from others.operators(setup, world)


def search(setup: Setup, *, until: str | None = None, limit: int = 500_000) -> Found:
    """Visit every state. `until` stops at the first break of the invariant with this number."""
    start = initial(setup)
    came_from: dict[World, tuple[World | None, str]] = {start: (None, "")}
    todo, found, judge = deque([start]), Found(), Judge(setup, start)
    while todo and not (until and any(each.split()[0] == until for each in found.broken)):
        world = todo.popleft()
        for fault, rest in judge.stuck(world):
            found.broken.setdefault(fault, [*_trace(came_from, world), "NOTHING FAILS ANY MORE", *rest])
        for step in steps(setup, world):
            if step.broken is not None and step.broken not in found.broken:
                found.broken[step.broken] = [*_trace(came_from, world), step.label]
            if step.world not in came_from:
                came_from[step.world] = (world, step.label)
                todo.append(step.world)
        if len(came_from) > limit:
            raise RuntimeError(f"{setup.name} has more than {limit} states")
    found.states = len(came_from)
    return found


def _trace(came_from: dict[World, tuple[World | None, str]], world: World) -> list[str]:
    labels: list[str] = []
    at: World | None = world
    while at is not None:
        at, label = came_from[at]
        labels.append(label)
    return labels[-2::-1]


class Judge:
    """Follows one fair, fault-free continuation of a state, and remembers the states that it has followed before."""

    def __init__(self, setup: Setup, start: World) -> None:
        self._setup = setup
        self._unswept = setup._replace(without=setup.without | {"sweep"})
        self._faults = [(BUDGETS.index(name), start.budgets[BUDGETS.index(name)]) for name in FAULTS]
        self._good: dict[str, set[World]] = {"end": set(), "rest": set(), "end without a sweep": set()}

    def stuck(self, world: World) -> Iterator[tuple[str, list[str]]]:
        """What does not come to its end from here, and how it does not."""
        rest = self._follow("end", self._setup, _fair(world, Control()))
        if rest is not None:
            yield "I3 a job never ends, though nothing fails any more", rest
        if world.control.paused:
            rest = self._follow("rest", self._setup, _fair(world, world.control))
            if rest is not None:
                yield "I10 what was in flight at the pause does not settle", rest
        if all(world.budgets[at] == full for at, full in self._faults):
            rest = self._follow("end without a sweep", self._unswept, _fair(world, Control()))
            if rest is not None:
                yield "I3 a job waits for the sweep, though nothing has failed", rest

    def _follow(self, goal: str, setup: Setup, world: World) -> list[str] | None:
        """None if the goal is reached, otherwise what happens up to the third tick in a row that changes nothing."""
        good = self._good[goal]
        path: list[World] = []
        labels: list[str] = []
        before: object = None
        idle = 0
        while idle < _PATIENCE_TICKS:
            if world in good or _reached(goal, world):
                good.update(path)
                return None
            path.append(world)
            step = next(own_steps(setup, world), None)
            if step is not None:
                world = step.world
                labels.append(step.label)
                continue
            now = (tuple(row._replace(copy=0) for row in world.rows), len(world.queue))
            idle = idle + 1 if now == before else 0
            before = now
            world = pacer.spawn(world._replace(runs=(Run(), *world.runs[1:])), 0)
            labels.append("all is quiet: one more tick")
        return labels


def _fair(world: World, control: Control) -> World:
    return world._replace(control=control, budgets=())


def _reached(goal: str, world: World) -> bool:
    if goal == "rest":
        return not any(row.state == "queued" for row in world.rows) and not world.pacers
    return all(row.state in (*ENDED, "absent") for row in world.rows)
