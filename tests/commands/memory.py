"""The operators' ports in memory: mappings that take their time and can fail, and the metrics of a virtual world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ops.simulator.ports import MetricSet
from shared.domain.job import Lane
from shared.domain.settings import Settings
from shared.errors import HistoryUnavailable, MappingMissing, MappingsUnavailable
from shared.operate.ports import LaneMapping

HOUR_MS = 3_600_000


@dataclass(slots=True)
class MemoryMappings:
    """`lag` reads say that a change is being applied still; the `fail_at`-th `bound` gets no answer."""

    lag: int = 0
    fail_at: int | None = None
    slots: dict[tuple[str, Lane], int] = field(default_factory=dict)
    bounds: int = 0
    _unsettled: dict[tuple[str, Lane], int] = field(default_factory=dict)

    def deploy(self, settings: Settings) -> None:
        """As the template has it, where nothing is deployed yet."""
        for each in settings.classes.values():
            for lane in Lane:
                self.slots.setdefault((each.name, lane), each.lane_slots(lane))

    def read(self, job_class: str) -> dict[Lane, LaneMapping]:
        if (job_class, Lane.LIVE) not in self.slots:
            raise MappingMissing(job_class)
        return {lane: self._read((job_class, lane)) for lane in Lane}

    def bound(self, job_class: str, lane: Lane, *, slots: int) -> None:
        self.bounds += 1
        if self.bounds == self.fail_at:
            raise MappingsUnavailable("throttled")
        self.slots[job_class, lane] = slots
        self._unsettled[job_class, lane] = self.lag

    def of(self, job_class: str) -> dict[str, int]:
        return {lane.value: self.slots[job_class, lane] for lane in Lane}

    def _read(self, key: tuple[str, Lane]) -> LaneMapping:
        left = self._unsettled.get(key, 0)
        self._unsettled[key] = max(0, left - 1)
        return LaneMapping(slots=self.slots[key], settled=left == 0)


@dataclass(frozen=True, slots=True)
class MemoryHistory:
    """What the metrics of the world's ticks would say."""

    sets: Sequence[MetricSet]

    def maxima(self, job_class: str, metric: str, *, since_ms: int, until_ms: int) -> list[float]:
        hours: dict[int, float] = {}
        for each in self.sets:
            if each.job_class == job_class and metric in each.values and since_ms <= each.at_ms < until_ms:
                hour = each.at_ms // HOUR_MS
                hours[hour] = max(each.values[metric], hours.get(hour, each.values[metric]))
        return [hours[hour] for hour in sorted(hours)]


@dataclass(frozen=True, slots=True)
class GivenHistory:
    """Metrics as a test says them, the same in each of 24 hours; None is refused."""

    values: dict[str, float] | None
    hours: int = 24

    def maxima(self, job_class: str, metric: str, *, since_ms: int, until_ms: int) -> list[float]:
        if self.values is None:
            raise HistoryUnavailable("AccessDenied")
        return [self.values[metric]] * self.hours if metric in self.values else []
