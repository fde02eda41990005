"""What runs in the world: invocations, the processes of the simulation, and how long their calls take."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

Action: TypeAlias = Callable[[], None]

_OWN_TIME: Final = {"clock.sleep": 0, "kind.work": 0, "upstream.call": 0, "metrics.emit": 0}
"""Points that bring their duration with them, or take none."""


class Crash(BaseException):
    """The process is gone. Not an Exception, so that no `except Exception` of production code survives it."""


class Outcome(StrEnum):
    PENDING = "pending"
    RETURNED = "returned"
    RAISED = "raised"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"


@dataclass(eq=False, slots=True)
class Invocation:
    """One process: a Lambda invocation or an operator's command, with all its threads."""

    name: str
    at_ms: int
    outcome: Outcome = Outcome.PENDING
    value: Any = None
    error: Exception | None = None
    ended_ms: int | None = None
    death: Outcome | None = None
    skew_ms: int = 0
    """How far its clock is from the world's."""
    lineage: int = 0
    """How many workers handed on to one another before it: what recursion detection counts."""
    tasks: list[Task] = field(default_factory=list, repr=False)
    on_end: Callable[[Invocation], None] | None = field(default=None, repr=False)

    @property
    def ended(self) -> bool:
        return self.outcome is not Outcome.PENDING


@dataclass(eq=False, slots=True)
class Task:
    """One greenlet of an invocation. `naps` numbers its waits, so that a wake-up of an earlier wait is recognised."""

    invocation: Invocation
    thread: Any = None
    naps: int = 0
    done: bool = False
    then: Action | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long a port call takes, half of it before its effect: a number, or a range to draw from, per point."""

    default_ms: int | tuple[int, int] = 5
    by_point: Mapping[str, int | tuple[int, int]] = field(default_factory=dict)

    def draw(self, point: str, rng: random.Random) -> int:
        span = self.by_point.get(point, _OWN_TIME.get(point, self.default_ms))
        return span if isinstance(span, int) else rng.randint(*span)

    def longest_ms(self, point: str) -> int:
        span = self.by_point.get(point, _OWN_TIME.get(point, self.default_ms))
        return span if isinstance(span, int) else span[1]


def record(invocation: Invocation, fn: Callable[[], object]) -> None:
    """The body of an invocation's first thread."""
    try:
        invocation.value = fn()
        invocation.outcome = Outcome.RETURNED
    except Exception as error:  # noqa: BLE001 - a process boundary: its host decides what an error means
        invocation.error = error
        invocation.outcome = Outcome.RAISED


def live(task: Task, body: Action) -> None:
    """The frame around every thread: a crash in one of them is the death of the process."""
    try:
        body()
    except Crash:
        task.invocation.death = task.invocation.death or Outcome.CRASHED
    finally:
        task.done = True
