"""Virtual time. Every invocation is a greenlet, every port call a point of interleaving and a point of crash.

Ready greenlets run in an order drawn from the world's seed; time moves only from event to event. The same seed and the
same faults give the same trace. Production code knows nothing of this: it calls ports, and the ports call the world.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from greenlet import getcurrent, greenlet
from msgspec import Struct

from ops.simulator.faults import Call, Die, Fail, Fault, FaultHook, Repeat, Stall, When

Result = TypeVar("Result")

Action: TypeAlias = Callable[[], None]

START_MS: Final = 1_796_040_000_000
"""2026-11-30T12:00Z, a whole minute: every world begins here unless told otherwise."""

_FOREVER_MS: Final = 2**62
"""Later than anything that happens."""

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


class Latency(Struct, frozen=True, kw_only=True):
    """How long a port call takes, half of it before its effect: a number, or a range to draw from, per point."""

    default_ms: int | tuple[int, int] = 5
    by_point: Mapping[str, int | tuple[int, int]] = {}

    def draw(self, point: str, rng: random.Random) -> int:
        span = self._span(point)
        return span if isinstance(span, int) else rng.randint(*span)

    def longest_ms(self, point: str) -> int:
        span = self._span(point)
        return span if isinstance(span, int) else span[1]

    def _span(self, point: str) -> int | tuple[int, int]:
        return self.by_point.get(point, _OWN_TIME.get(point, self.default_ms))


Watch: TypeAlias = Callable[[Invocation, str, Callable[[], Any], Any], None]
"""(invocation, point, the effect with its arguments, its answer), after every effect of a port."""


class World:
    """The hub. Not re-entrant: `run` is called from outside of every invocation."""

    def __init__(
        self,
        seed: int,
        *,
        start_ms: int = START_MS,
        latency: Latency | None = None,
        faults: Sequence[FaultHook] = (),
        keep_trace: bool = True,
    ) -> None:
        self.seed = seed
        self.now_ms = start_ms
        self.latency = latency or Latency()
        self.faults = list(faults)
        self.trace: list[Call] = []
        self.calls = 0
        self.invocations: list[Invocation] = []
        self.watch: Watch | None = None
        self.after_event: Action | None = None
        self.skew_ms: Callable[[str], int] | None = None
        self.running: dict[Invocation, None] = {}
        self._keep_trace = keep_trace
        self._rng = self.random("order")
        self._nths: Counter[str] = Counter()
        self._heap: list[tuple[int, float, int, Action]] = []
        self._events = 0
        self._ids = 0
        self._until_ms = _FOREVER_MS
        self._hub: Any = None
        self._current: Task | None = None

    def random(self, name: str) -> random.Random:
        """A stream of its own for one purpose, so that one more draw here does not change every draw elsewhere."""
        return random.Random(f"{self.seed}/{name}")

    def new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}-{self._ids}"

    # -- events

    def at(self, time_ms: int, action: Action) -> None:
        """Run `action` in the hub at `time_ms`; what is ready at one time runs in seeded random order."""
        self._events += 1
        heapq.heappush(self._heap, (max(time_ms, self.now_ms), self._rng.random(), self._events, action))

    def run(self, until: int | None = None, *, stop: Callable[[], bool] | None = None) -> None:
        """Run events up to and including `until`; without it, until none is left. `stop` is asked after each event."""
        if self._current is not None:
            raise RuntimeError("World.run was called from inside an invocation")
        self._hub = getcurrent()
        self._until_ms = _FOREVER_MS if until is None else until
        while self._heap and self._heap[0][0] <= self._until_ms:
            time_ms, _, _, action = heapq.heappop(self._heap)
            self.now_ms = time_ms
            action()
            if self.after_event is not None:
                self.after_event()
            if stop is not None and stop():
                return
        if until is not None:
            self.now_ms = max(self.now_ms, until)

    # -- invocations

    def spawn(
        self,
        name: str,
        fn: Callable[[], object],
        at_ms: int | None = None,
        *,
        timeout_ms: int | None = None,
        on_end: Callable[[Invocation], None] | None = None,
    ) -> Invocation:
        """Start `fn` as an invocation at `at_ms`; `timeout_ms` later it is killed. `on_end` runs in the hub."""
        invocation = Invocation(name, self.now_ms if at_ms is None else max(at_ms, self.now_ms), on_end=on_end)
        if self.skew_ms is not None:
            invocation.skew_ms = self.skew_ms(name)
        self.invocations.append(invocation)
        self.running[invocation] = None
        self._start(invocation, partial(_record, invocation, fn), at_ms=invocation.at_ms)
        if timeout_ms is not None:
            self.at(invocation.at_ms + timeout_ms, partial(self.kill, invocation))
        return invocation

    def kill(self, invocation: Invocation, outcome: Outcome = Outcome.TIMED_OUT) -> None:
        """End an invocation from outside, with all its threads, wherever they stand. Call it from the hub."""
        if not invocation.ended:
            invocation.death = outcome
            self._bury(invocation)

    def fan_out(self, bodies: Sequence[Action]) -> None:
        """Run `bodies` as concurrent threads of the current invocation; return when all have ended."""
        parent = self._current
        if parent is None:
            for body in bodies:
                body()
            return
        if parent.invocation.death is not None:
            raise Crash
        left = len(bodies)

        def ended() -> None:
            nonlocal left
            left -= 1
            if not left:
                self.at(self.now_ms, partial(self._wake, parent, nap))

        parent.naps += 1
        nap = parent.naps
        for body in bodies:
            self._start(parent.invocation, body, at_ms=self.now_ms, then=ended)
        if bodies:
            self._park(parent)

    # -- what ports call

    def call(self, point: str, effect: Callable[[], Result]) -> Result:
        """One port call of the current invocation; outside of one it is just the effect."""
        task = self._current
        if task is None:
            return effect()
        if task.invocation.death is not None:  # unwinding: a dead process calls nobody, `finally` or not
            raise Crash
        call = self._record_call(point, task)
        latency_ms = self.latency.draw(point, self._rng)
        self._strike(task, call, When.BEFORE)
        self._pause(task, latency_ms - latency_ms // 2)
        try:
            answer = self._applied(task, point, effect)
            if self._strike(task, call, When.AFTER):
                answer = self._applied(task, point, effect)
        finally:  # an error is an answer too: it travels back as long
            if task.invocation.death is None:
                self._pause(task, latency_ms // 2)
        return answer

    def sleep(self, ms: int) -> None:
        """Let time pass for the current thread; outside of an invocation, for the world."""
        if self._current is None:
            self.run(self.now_ms + ms)
        else:
            self._pause(self._current, ms)

    @property
    def current(self) -> Invocation | None:
        """The invocation that runs at this moment; None in the hub and outside."""
        return None if self._current is None else self._current.invocation

    def die(self) -> NoReturn:
        """The current invocation takes its own process down: what a job's code can do to its worker."""
        if self._current is None:
            raise RuntimeError("nothing runs that could die")
        self._current.invocation.death = Outcome.CRASHED
        raise Crash

    # -- inside

    def _applied(self, task: Task, point: str, effect: Callable[[], Result]) -> Result:
        answer = effect()
        if self.watch is not None:
            self.watch(task.invocation, point, effect, answer)
        return answer

    def _record_call(self, point: str, task: Task) -> Call | None:
        """None where nobody would look at it."""
        self.calls += 1
        if not self._keep_trace and not self.faults:
            return None
        self._nths[point] += 1
        call = Call(self.calls, self.now_ms, task.invocation.name, point, self._nths[point])
        if self._keep_trace:
            self.trace.append(call)
        return call

    def _strike(self, task: Task, call: Call | None, when: When) -> bool:
        """Apply the hooks' faults; True asks for the effect a second time."""
        if call is None:
            return False
        repeat = False
        for hook in self.faults:
            repeat = self._apply(task, hook(call, when)) or repeat
        return repeat and when is When.AFTER

    def _apply(self, task: Task, fault: Fault | None) -> bool:
        match fault:
            case Die():
                task.invocation.death = Outcome.CRASHED
                raise Crash
            case Stall(ms=ms):
                self._pause(task, ms)
            case Fail(error=error):
                raise error
            case Repeat():
                return True
        return False

    def _pause(self, task: Task, ms: int) -> None:
        wake_ms = self.now_ms + ms
        if wake_ms <= self._until_ms and (not self._heap or self._heap[0][0] > wake_ms):
            self.now_ms = wake_ms  # nobody else could run in between: the same as a switch, without its price
            return
        task.naps += 1
        self.at(wake_ms, partial(self._wake, task, task.naps))
        self._park(task)

    def _park(self, task: Task) -> None:
        self._hub.switch()
        if task.invocation.death is not None:
            raise Crash

    def _start(self, invocation: Invocation, body: Action, *, at_ms: int, then: Action | None = None) -> None:
        task = Task(invocation, then=then)
        invocation.tasks.append(task)
        self.at(at_ms, partial(self._begin, task, body))

    def _begin(self, task: Task, body: Action) -> None:
        if not task.done:
            task.thread = greenlet(partial(_live, task, body))
            self._enter(task, task.thread.switch)

    def _wake(self, task: Task, nap: int) -> None:
        if not task.done and task.naps == nap:
            self._enter(task, task.thread.switch)

    def _enter(self, task: Task, switch: Action) -> None:
        self._current = task
        try:
            switch()
        finally:
            self._current = None
        invocation = task.invocation
        if invocation.death is not None:
            self._bury(invocation)
        elif task.done:
            invocation.tasks.remove(task)
            if task.then is not None:
                task.then()
            elif invocation.outcome is not Outcome.PENDING:
                self._end(invocation)

    def _bury(self, invocation: Invocation) -> None:
        """Every thread of a dead process ends where it stands; its ports refuse whatever it tries on the way out."""
        for task in invocation.tasks:
            if task.thread is not None and not task.done:
                self._current = task
                try:
                    task.thread.throw(Crash)
                finally:
                    self._current = None
                if not task.done:
                    raise RuntimeError(f"{invocation.name} swallowed its own crash")
            task.done = True
        invocation.tasks.clear()
        if invocation.ended_ms is None:
            invocation.outcome = invocation.death or Outcome.CRASHED
            self._end(invocation)

    def _end(self, invocation: Invocation) -> None:
        invocation.ended_ms = self.now_ms
        del self.running[invocation]
        if invocation.on_end is not None:
            invocation.on_end(invocation)


def _record(invocation: Invocation, fn: Callable[[], object]) -> None:
    """The body of an invocation's first thread."""
    try:
        invocation.value = fn()
        invocation.outcome = Outcome.RETURNED
    except Exception as error:  # noqa: BLE001 - a process boundary: its host decides what an error means
        invocation.error = error
        invocation.outcome = Outcome.RAISED


def _live(task: Task, body: Action) -> None:
    """The frame around every thread: a crash in one of them is the death of the process."""
    try:
        body()
    except Crash:
        task.invocation.death = task.invocation.death or Outcome.CRASHED
    finally:
        task.done = True
