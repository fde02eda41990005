"""The ports of the simulation that are not stores: the proxy that makes calls switch, clock, threads, log, metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, cast

from ops.simulator.world import World
from shared.ports import check_fields

Adapter = TypeVar("Adapter")

Item = TypeVar("Item")

Result = TypeVar("Result")

Value: TypeAlias = int | float | str | bool | None

DEFAULT_THREADS: Final = 16
"""As many as the thread pool of a deployed function has."""


class SwitchingPort:
    """Every method call of the adapter behind it becomes two switch points of the world (before and after)."""

    def __init__(self, world: World, name: str, adapter: object) -> None:
        self._world = world
        self._name = name
        self._adapter = adapter

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)
        target = getattr(self._adapter, method)
        if not callable(target):
            return target
        world, point = self._world, f"{self._name}.{method}"

        def call(*args: Any, **kwargs: Any) -> Any:
            return world.call(point, partial(target, *args, **kwargs))

        setattr(self, method, call)  # found directly from now on
        return call


def switching(world: World, name: str, adapter: Adapter) -> Adapter:
    """The adapter as its callers see it. The cast is honest: the proxy has exactly the adapter's attributes."""
    return cast("Adapter", SwitchingPort(world, name, adapter))


class VirtualClock:
    """Reading it is no switch point: whatever could happen beside a reading happens beside the next call as well."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now_ms(self) -> int:
        current = self._world.current
        return self._world.now_ms if current is None else self._world.now_ms + current.skew_ms

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self._world.call("clock.sleep", partial(self._world.sleep, math.ceil(seconds * 1000)))


class GreenletParallel:
    """A pool of `threads` greenlets per map, as a pool of threads would work through the items."""

    def __init__(self, world: World, *, threads: int = DEFAULT_THREADS) -> None:
        self._world = world
        self._threads = threads

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        results: dict[int, Result] = {}
        errors: dict[int, Exception] = {}
        queue = iter(enumerate(items))

        def thread() -> None:
            for number, item in queue:
                try:
                    results[number] = work(item)
                except Exception as error:  # noqa: BLE001 - kept for the caller, who gets it once all have ended
                    errors[number] = error

        if len(items) == 1:
            thread()  # the caller would only wait for it
        else:
            self._world.fan_out([thread] * min(self._threads, len(items)))
        if errors:
            raise errors[min(errors)]
        return [results[number] for number in range(len(items))]


@dataclass(frozen=True, slots=True)
class LogLine:
    at_ms: int
    name: str
    fields: Mapping[str, Value]


class SimLog:
    """Not a switch point: a crash beside a log line is the crash before the next call."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.lines: list[LogLine] = []

    def event(self, name: str, **fields: Value) -> None:
        check_fields(fields)
        self.lines.append(LogLine(self._now_ms(), name, fields))


@dataclass(frozen=True, slots=True)
class MetricSet:
    at_ms: int
    job_class: str
    values: Mapping[str, float]


class SimMetrics:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.sets: list[MetricSet] = []

    def emit(self, job_class: str, values: Mapping[str, float]) -> None:
        bad = sorted(name for name, value in values.items() if not math.isfinite(value))
        if bad:
            raise ValueError(f"metrics that are not finite: {', '.join(bad)}")
        self.sets.append(MetricSet(self._now_ms(), job_class, dict(values)))
