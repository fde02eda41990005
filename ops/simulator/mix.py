"""All faults at once, with chances drawn from the seed: what a fault phase is made of.

Each seed has its own weather: some have many crashes and a fresh index, others a stale index and twins. Everything that
can go wrong is here once; when the phase ends it stops, and the rest of the run must put everything right.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from ops.simulator.faults import Call, Die, Fail, Fault, Repeat, Stall, When
from ops.simulator.hosts import MappingFaults, ScheduleFaults
from ops.simulator.scenario import Event
from ops.simulator.sluice_world import SimSluice
from ops.simulator.upstream import UpstreamTruth
from shared.domain.messages import Outgoing
from shared.domain.settings import AbortRules, Settings
from shared.errors import LedgerUnavailable, QueueUnavailable, Retryable, StorageUnavailable, UpstreamFailed
from shared.memory.ledger import Staleness
from shared.memory.queue import RETENTION_MS, EntryFault

_ERRORS: Final[Mapping[str, type[Retryable]]] = {
    "ledger": LedgerUnavailable,
    "limiter": LedgerUnavailable,
    "queue": QueueUnavailable,
    "upstream": UpstreamFailed,
    "blobs": StorageUnavailable,
}
"""What a port raises when it is throttled, or when its answer is lost."""

_NEVER_RAISES: Final = frozenset({"queue.extend"})
"""Adapters answer this one with False."""

_REPEATED: Final = frozenset(
    {"admit_run", "take_run", "plan_run", "close_run", "skip_run", "move", "step_match", "create", "withdraw", "spend"}
)
"""Writes that the SDK tries again by itself; statistics are not tried again, and calls to an upstream neither."""

_STALLS_MS: Final = (1_000, 60_000)
"""How long a process stands still, nine times in ten."""

_LONG_STALL_MS: Final = 1_200_000
"""And the tenth time: longer than any function may run."""

_RETENTION_MS: Final = 120_000
"""In seeds whose messages expire they do so before anybody would sweep."""


class Chances(Struct, frozen=True, kw_only=True):
    """Of each fault, per port call, batch, message or tick, whatever it is about.

    At a port call a process may `die` or `stall`, be `throttled`, have its `answer_lost`, or have its write `repeated`.
    An `entry` of a batch may fail; a batch may have a `twin`, or be received and `never_run`. `lag_ms` is how late the
    index is at most, `skew_ms` how far a clock is off.
    """

    die: float
    stall: float
    throttled: float
    answer_lost: float
    repeated: float
    entry: float
    twin: float
    never_run: float
    tick_missed: float
    tick_doubled: float
    overloaded: float
    messages_expire: bool
    ordered: bool
    paused: bool
    lag_ms: int
    skew_ms: int

    @classmethod
    def draw(cls, rng: random.Random) -> Chances:
        def often(most: float) -> float:
            return rng.choice((0.0, 0.3, 1.0)) * rng.random() * most

        return cls(
            die=often(0.02),
            stall=often(0.004),
            throttled=often(0.05),
            answer_lost=often(0.05),
            repeated=often(0.1),
            entry=often(0.3),
            twin=often(0.3),
            never_run=often(0.3),
            tick_missed=often(0.5),
            tick_doubled=often(0.8),
            overloaded=often(0.2),
            messages_expire=rng.random() < 0.2,
            ordered=rng.random() < 0.4,
            paused=rng.random() < 0.3,
            lag_ms=rng.choice((0, 500, 4_000)),
            skew_ms=rng.choice((0, 200, 700)),
        )


class Mix:
    """The faults of one seed: a hook of the world, and the options that a world is built with."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"{seed}/mix")
        self.chances = Chances.draw(self._rng)
        self.skew_ms = self.chances.skew_ms
        self.active = True

    def settings_of(self, settings: Settings) -> Settings:
        """Ordered classes have more to break, so some seeds are of them. Nothing aborts: that would end the trouble."""
        classes = {
            name: replace(job_class, ordered=self.chances.ordered, abort=AbortRules.off())
            for name, job_class in settings.classes.items()
        }
        return replace(settings, classes=classes)

    def truth_of(self, truth: UpstreamTruth) -> UpstreamTruth:
        return replace(truth, overloaded=self.chances.overloaded)

    def events(self, until_s: float) -> list[Event]:
        """In some seeds an operator pauses the class for a while, in the middle of it all."""
        if not self.chances.paused:
            return []
        at_s = self._rng.random() * until_s / 2
        return [Event(at_s=at_s, do="pause"), Event(at_s=at_s + 60 + self._rng.random() * 240, do="resume")]

    def options(self) -> dict[str, Any]:
        chances = self.chances
        return {
            "faults": [self],
            "entry_fault": self._entry_fault,
            "staleness": Staleness(lag_ms=lambda _: self._draw(chances.lag_ms), gap_ms=self._gap_ms),
            "mapping_faults": MappingFaults(duplicate=chances.twin, late_ms=600_000, throttled=chances.never_run),
            "schedule_faults": ScheduleFaults(
                late_ms=(0, 40_000), double=chances.tick_doubled, miss=chances.tick_missed
            ),
        }

    def begin(self, sluice: SimSluice) -> None:
        if self.chances.skew_ms:
            sluice.world.skew_ms = lambda _: self._rng.randint(-self.chances.skew_ms, self.chances.skew_ms)
        if self.chances.messages_expire:
            for queue in sluice.queue.queues:
                queue.retention_ms = _RETENTION_MS

    def end(self, sluice: SimSluice) -> None:
        """From now on nothing new goes wrong. The index stays as stale as it is, and the clocks as far apart."""
        self.active = False
        for mapping in sluice.mappings:
            mapping.faults = MappingFaults()
        for schedule in sluice.schedules.values():
            schedule.faults = ScheduleFaults()
        for queue in sluice.queue.queues:
            queue.retention_ms = RETENTION_MS

    # -- the hook

    def __call__(self, call: Call, when: When) -> Fault | None:
        if not self.active:
            return None
        chances, rng = self.chances, self._rng
        if rng.random() < chances.die / 2:
            return Die()
        if rng.random() < chances.stall / 2:
            return Stall(_LONG_STALL_MS if rng.random() < 0.1 else rng.randint(*_STALLS_MS))
        port, _, method = call.point.partition(".")
        if when is When.AFTER and method in _REPEATED and rng.random() < chances.repeated:
            return Repeat()
        chance = chances.throttled if when is When.BEFORE else chances.answer_lost
        if port in _ERRORS and call.point not in _NEVER_RAISES and rng.random() < chance:
            return Fail(_ERRORS[port]())
        return None

    # -- inside

    def _draw(self, most: int) -> int:
        return self._rng.randint(0, most) if most else 0

    def _gap_ms(self, _: str) -> int:
        """A move is a delete and an insert, in any order: for a moment a reader sees the row nowhere, or twice."""
        most = self.chances.lag_ms // 4
        return self._rng.randint(-most, most) if most else 0

    def _entry_fault(self, _: Outgoing) -> EntryFault | None:
        if not self.active or self._rng.random() >= self.chances.entry:
            return None
        return self._rng.choice(list(EntryFault))
