"""Faults as values. A hook sees every port call twice, before and after its effect, and may answer with a fault.

Crash points are enumerated from a clean run's trace and never listed by hand: run once, then once more per call of
`world.trace` with `CrashAt(call.n, When.BEFORE)` and `CrashAt(call.n, When.AFTER)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class When(StrEnum):
    """`before`: nothing has happened yet. `after`: the effect is applied, the caller has not seen the answer."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Call:
    """One port call. `n` counts all calls of the run from 1, `nth` the calls of this point."""

    n: int
    time_ms: int
    invocation: str
    point: str
    nth: int


@dataclass(frozen=True, slots=True)
class Die:
    """The process is gone at this instruction."""


@dataclass(frozen=True, slots=True)
class Stall:
    """The process stands still, and wakes up into a world that went on (fact F18)."""

    ms: int


@dataclass(frozen=True, slots=True)
class Fail:
    """The caller gets this error. After the effect it is a lost answer."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Repeat:
    """The answer of the first attempt is lost and the SDK sends the call again (fact F16). Only after an effect."""


Fault: TypeAlias = Die | Stall | Fail | Repeat

FaultHook: TypeAlias = Callable[[Call, When], Fault | None]


@dataclass(frozen=True, slots=True)
class CrashAt:
    """Die at the call with this number in the trace."""

    call: int
    when: When = When.BEFORE

    def __call__(self, call: Call, when: When) -> Fault | None:
        return Die() if (call.n, when) == (self.call, self.when) else None


@dataclass(frozen=True, slots=True)
class CrashOn:
    """Die at the nth call of one point, for example ("ledger.move", 3, When.AFTER)."""

    point: str
    nth: int = 1
    when: When = When.BEFORE

    def __call__(self, call: Call, when: When) -> Fault | None:
        return Die() if (call.point, call.nth, when) == (self.point, self.nth, self.when) else None


@dataclass(frozen=True, slots=True)
class FaultOn:
    """Any fault at the nth call of one point; `nth` None is every call of it."""

    point: str
    fault: Fault
    nth: int | None = 1
    when: When = When.BEFORE

    def __call__(self, call: Call, when: When) -> Fault | None:
        hit = call.point == self.point and when is self.when and self.nth in (None, call.nth)
        return self.fault if hit else None
