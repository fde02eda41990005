"""What only operators' commands need of the world, beside `shared.ports`. Nothing that ships to Lambda touches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from shared.domain.control import RunKey
from shared.domain.job import Lane


class LaneMapping(Struct, frozen=True, kw_only=True):
    """How many invocations a lane's event source mapping allows at once; None: it is not bounded.

    `settled` is False while the service still applies a change.
    """

    slots: int | None
    settled: bool = True


class Mappings(Protocol):
    """The event source mappings of a class's lanes.

    Both raise `MappingsUnavailable` where the service does not answer, `MappingMissing` where a lane has not got one.
    """

    def read(self, job_class: str) -> Mapping[Lane, LaneMapping]: ...

    def bound(self, job_class: str, lane: Lane, *, slots: int) -> None:
        """Ask for at most `slots` invocations at once. It takes a while: `read` says when it is so."""
        ...


class MetricHistory(Protocol):
    def maxima(self, job_class: str, metric: str, *, since_ms: int, until_ms: int) -> Sequence[float]:
        """The largest value of each hour that has any. Raises `HistoryUnavailable`: not allowed to, or no answer."""
        ...


class Pacer(Protocol):
    def tick(self, key: RunKey, *, source: str) -> str:
        """Run the pacer for this minute and wait for what came of it: closed, duplicate, skipped, left or lost.

        Raises `TriggerUnavailable`: the tick may have run or not.
        """
        ...
