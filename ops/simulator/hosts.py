"""What runs the entry functions in AWS, simulated: event source mappings with their slots, and schedules."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from msgspec import Struct

from ops.simulator.world import Invocation, Outcome, World
from shared.domain.messages import Delivery
from shared.memory.queue import FifoQueue, MemoryQueue

WorkEntry: TypeAlias = Callable[[Sequence[Delivery], str, int], list[str]]
"""(deliveries, nonce, end_ms) -> the message ids that must come back."""

TickEntry: TypeAlias = Callable[[int, str, int], object]
"""(scheduled_ms, nonce, end_ms)."""

POLL_MS: Final = 20
"""From a change in a queue to the look of its mapping."""

RECURSION_LIMIT: Final = 16
"""Lambda stops a chain of so many functions that invoke one another through a queue (fact F15)."""


class MappingFaults(Struct, frozen=True, kw_only=True):
    """Chances per batch. A duplicate runs the same deliveries in a second invocation, at the same time or up to
    `late_ms` later (fact F11); a throttled batch is received and never run, which burns its receives (fact F10)."""

    duplicate: float = 0.0
    late_ms: int = 0
    throttled: float = 0.0


class Hosting(Struct, frozen=True, kw_only=True):
    """How functions are run. A container that rested for longer than `warm_ms` is gone, and its successor needs
    `cold_start_ms` before it begins. Unless allowed, a chain of `RECURSION_LIMIT` workers is stopped (fact F15)."""

    cold_start_ms: tuple[int, int] = (0, 0)
    warm_ms: int = 600_000
    recursion_allowed: bool = True


class EventSourceMapping:
    """Reads one queue for one function: at most `slots` invocations, up to `batch_size` messages each.

    What an invocation returns as failed becomes visible after the queue's visibility, the others are deleted. An
    invocation that raises, dies, runs out of time, or names a message that it was not given, fails the whole batch
    (fact F12).
    """

    def __init__(
        self,
        world: World,
        queue: MemoryQueue,
        source: FifoQueue,
        entry: WorkEntry,
        *,
        slots: int,
        batch_size: int,
        timeout_ms: int,
        faults: MappingFaults | None = None,
        hosting: Hosting | None = None,
    ) -> None:
        self.batches = 0
        self.cold_starts = 0
        self.stopped_chains = 0
        self.enabled = True
        self.faults = faults or MappingFaults()
        self.on_invoke: Callable[[str, Sequence[Delivery]], None] | None = None
        self._world = world
        self._queue = queue
        self._source = source
        self._entry = entry
        self._free = slots
        self._batch_size = batch_size
        self._timeout_ms = timeout_ms
        self._hosting = hosting or Hosting()
        self._warm_until_ms: list[int] = []
        self._rng: random.Random = world.random(f"mapping/{source.name}")
        self._polling = False
        self._wake_ms: int | None = None
        source.on_change = self.poke

    def poke(self) -> None:
        """Something may be there: look once, soon."""
        if not self._polling:
            self._polling = True
            self._world.at(self._world.now_ms + POLL_MS, self._poll)

    def _poll(self) -> None:
        while self.enabled and self._free > 0:
            deliveries = self._queue.receive_from(self._source, self._batch_size)
            if not deliveries:
                break
            self.batches += 1
            if not self._hits(self.faults.throttled) and not self._stops(deliveries):
                self._invoke(deliveries)
                if self._hits(self.faults.duplicate):
                    self._repeat(deliveries)
        self._polling = False  # only now: what receiving itself changed has been seen by this very loop
        self._wake_for_expiry()

    def _hits(self, chance: float) -> bool:
        return chance > 0 and self._rng.random() < chance

    def _stops(self, deliveries: list[Delivery]) -> bool:
        """Recursive-loop detection: the batch is not run, and its messages go the way of all that is never run."""
        if self._hosting.recursion_allowed or self._lineage(deliveries) < RECURSION_LIMIT:
            return False
        self.stopped_chains += 1
        return True

    def _lineage(self, deliveries: list[Delivery]) -> int:
        return max(self._source.lineage_of(delivery.receipt) for delivery in deliveries)

    def _repeat(self, deliveries: list[Delivery]) -> None:
        """At-least-once delivery: at once, or when everybody has forgotten the first one."""
        late_ms = self._rng.randint(0, self.faults.late_ms)
        self._world.at(self._world.now_ms + late_ms, partial(self._invoke, deliveries))

    def _invoke(self, deliveries: list[Delivery]) -> None:
        self._free -= 1
        name = self._world.new_id(self._source.name)
        if self.on_invoke is not None:
            self.on_invoke(name, deliveries)
        start_ms = self._world.now_ms + self._cold_start_ms()
        skew_ms = 0 if self._world.skew_ms is None else self._world.skew_ms(name)
        invocation = self._world.spawn(
            name,
            partial(self._entry, deliveries, name, start_ms + self._timeout_ms + skew_ms),
            start_ms,
            timeout_ms=self._timeout_ms,
            on_end=partial(self._ended, deliveries),
        )
        invocation.lineage = self._lineage(deliveries)

    def _cold_start_ms(self) -> int:
        """The container that ended last is taken first, as Lambda does it: the others get old."""
        now_ms = self._world.now_ms
        if self._warm_until_ms and self._warm_until_ms[-1] > now_ms:
            self._warm_until_ms.pop()
            return 0
        self._warm_until_ms.clear()
        self.cold_starts += 1
        return self._rng.randint(*self._hosting.cold_start_ms)

    def _ended(self, deliveries: list[Delivery], invocation: Invocation) -> None:
        self._free += 1
        if invocation.outcome in (Outcome.RETURNED, Outcome.RAISED):
            self._warm_until_ms.append(self._world.now_ms + self._hosting.warm_ms)
        ids = {delivery.message_id for delivery in deliveries}
        failed = invocation.value if invocation.outcome is Outcome.RETURNED else None
        if isinstance(failed, list) and ids.issuperset(failed):
            for delivery in deliveries:
                if delivery.message_id not in failed:
                    self._queue.delete(delivery)
        self.poke()

    def _wake_for_expiry(self) -> None:
        """Messages that nobody deletes come back by time alone, so somebody has to look then."""
        next_ms = self._source.next_visible_ms()
        if next_ms is not None and (self._wake_ms is None or next_ms < self._wake_ms):
            self._wake_ms = next_ms
            self._world.at(next_ms, partial(self._woken, next_ms))

    def _woken(self, at_ms: int) -> None:
        if self._wake_ms == at_ms:
            self._wake_ms = None
            self.poke()


class ScheduleFaults(Struct, frozen=True, kw_only=True):
    """A schedule fires late, twice or not at all; the scheduled time it names is right every time (fact F24)."""

    late_ms: tuple[int, int] = (0, 0)
    double: float = 0.0
    miss: float = 0.0


class Schedule:
    """Fires at every whole interval of UTC. An invocation that fails is tried again `retries` times, a minute apart."""

    def __init__(
        self,
        world: World,
        name: str,
        entry: TickEntry,
        *,
        interval_ms: int,
        timeout_ms: int,
        faults: ScheduleFaults | None = None,
        retries: int = 0,
    ) -> None:
        self.fired = 0
        self.enabled = True
        self.faults = faults or ScheduleFaults()
        self.on_value: Callable[[object], None] | None = None
        self._world = world
        self._name = name
        self._entry = entry
        self._interval_ms = interval_ms
        self._timeout_ms = timeout_ms
        self._retries = retries
        self._rng: random.Random = world.random(f"schedule/{name}")

    def start(self) -> None:
        """Begin with the next whole interval, so that what is submitted at once is there by then."""
        now_ms = self._world.now_ms
        self._arm(now_ms - now_ms % self._interval_ms + self._interval_ms)

    def fire(self, scheduled_ms: int, *, at_ms: int | None = None, retries: int = 0) -> Invocation:
        """One invocation for this scheduled time; a trigger of another kind may call it too."""
        self.fired += 1
        nonce = self._world.new_id(f"{self._name}/tick")
        start_ms = max(self._world.now_ms, at_ms or 0)
        return self._world.spawn(
            nonce,
            partial(self._entry, scheduled_ms, nonce, start_ms + self._timeout_ms),
            start_ms,
            timeout_ms=self._timeout_ms,
            on_end=partial(self._ended, scheduled_ms, retries),
        )

    def _arm(self, scheduled_ms: int) -> None:
        self._world.at(scheduled_ms, partial(self._due, scheduled_ms))

    def _due(self, scheduled_ms: int) -> None:
        self._arm(scheduled_ms + self._interval_ms)
        if not self.enabled or self._rng.random() < self.faults.miss:
            return
        for _ in range(2 if self._rng.random() < self.faults.double else 1):
            late_ms = self._rng.randint(*self.faults.late_ms)
            self.fire(scheduled_ms, at_ms=scheduled_ms + late_ms, retries=self._retries)

    def _ended(self, scheduled_ms: int, retries: int, invocation: Invocation) -> None:
        if self.on_value is not None:
            self.on_value(invocation.value)
        if invocation.outcome is not Outcome.RETURNED and retries > 0:
            self.fire(scheduled_ms, at_ms=self._world.now_ms + 60_000, retries=retries - 1)
