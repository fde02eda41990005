"""Checkers of what flows: nothing lost (I3), the upstream's allowance (I7)."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from dataclasses import dataclass
from typing import Final

from ops.sim.checks.base import Checker
from ops.sim.memory_ledger import Step
from ops.sim.upstream import UpstreamCall
from shared.core.model import Job, Message, State

_MAX_FACTOR: Final = 8

LATE_MS: Final = 1_000
"""How late a call may follow its permit: this checker's own word, or a change of the worker's would not be noticed."""

_WINDOWS_MS: Final = (1_000, 10_000, 60_000)


class NothingLost(Checker):
    """A row in flight whose message is in no queue is healed within B (doubled per re-send, at most 8 B) and one tick.

    While faults go on, sweeps die too: there the bound is 8 B and `_FAULTY_TICKS`. At the end every row has ended, and
    whatever waits stands in the waiting index, where an operator sees it.
    """

    invariant = "I3"
    _FAULTY_TICKS: Final = 20

    def prepare(self) -> None:
        self._messages: Counter[tuple[str, int]] = Counter()
        self._orphans: dict[str, int] = {}
        self._bounds: list[tuple[int, str, int]] = []

    def created(self, job: Job) -> None:
        if job.state is State.QUEUED:
            self._watch(job)

    def stepped(self, step: Step) -> None:
        job = step.after
        if job.state is not State.QUEUED:
            self._orphans.pop(job.job_id, None)
        elif (job.epoch, step.before.state) != (step.before.epoch, State.QUEUED) or step.name == "resend":
            self._watch(job)
        self._check_place(job)

    def stored(self, message: Message) -> None:
        self._messages[message.job_id, message.epoch] += 1
        row = self.sluice.ledger.rows.get(message.job_id)
        if row is not None and row.job.epoch == message.epoch:
            self._orphans.pop(message.job_id, None)

    def gone(self, message: Message) -> None:
        key = (message.job_id, message.epoch)
        self._messages[key] -= 1
        if not self._messages[key]:
            del self._messages[key]
            row = self.sluice.ledger.rows.get(message.job_id)
            if row is not None and row.job.state is State.QUEUED and row.job.epoch == message.epoch:
                self._watch(row.job)

    def event(self) -> None:
        while self._bounds and self._bounds[0][0] <= self.now_ms:
            _, job_id, since_ms = heapq.heappop(self._bounds)
            if self._orphans.get(job_id) != since_ms:
                continue
            job = self.sluice.ledger.rows[job_id].job
            bound_ms = self._bound_ms(job, since_ms)
            if bound_ms > self.now_ms:
                heapq.heappush(self._bounds, (bound_ms, job_id, since_ms))
            else:
                self._orphans.pop(job_id)
                self.breaks(f"{job_id} is in flight without a message for {(self.now_ms - since_ms) // 1000} s")

    def ended(self) -> None:
        states = self.sluice.ledger.states
        if self.sluice.ledger.open_rows:
            left = {state.value: count for state, count in sorted(states.items()) if count}
            self.breaks(f"not everything has ended: {left}")

    def _watch(self, job: Job) -> None:
        if (job.job_id, job.epoch) not in self._messages:
            self._orphans[job.job_id] = self.now_ms
            heapq.heappush(self._bounds, (self._bound_ms(job, self.now_ms), job.job_id, self.now_ms))

    def _bound_ms(self, job: Job, since_ms: int) -> int:
        job_class = self.sluice.settings.classes[job.job_class]
        interval_ms, late_ms = job_class.tick_interval_s * 1000, self.sluice.settings.pacer_timeout_s * 1000
        if self.clean_from_ms is None:
            return since_ms + job_class.sweep_after_s * 1000 * _MAX_FACTOR + self._FAULTY_TICKS * interval_ms
        sweep_ms: int = job_class.sweep_after_s * 1000 * min(2**job.copy, _MAX_FACTOR)
        # A tick that was planned by a dead owner in the last faulty minute holds its class for the lock's time.
        lock_ms = 2 * late_ms if since_ms <= self.clean_from_ms else late_ms
        schedule = self.sluice.schedules[job.job_class].faults
        ticks = 1 + round(16 * schedule.miss)  # 16 missed in a row are one in many millions at 0.3
        late_ms = schedule.late_ms[1] + lock_ms
        return max(since_ms, self.clean_from_ms) + sweep_ms + ticks * interval_ms + late_ms

    def _check_place(self, job: Job) -> None:
        place = self.sluice.ledger.rows[job.job_id].place
        listed = "" if place is None else place.partition.split("#")[1]
        if listed not in _LISTS[job.state]:
            self.breaks(f"{job.job_id} is {job.state.value} and stands in the index under {listed or 'nothing'!r}")


_LISTS: Final = {
    State.WAITING: ("waiting", "retry"),
    State.QUEUED: ("inflight",),
    State.BEHIND: ("behind",),
    State.DEAD: ("dead",),
    State.DONE: ("",),
    State.SKIPPED: ("",),
    State.REPLACED: ("",),
}


@dataclass(slots=True)
class _Window:
    """The calls of the last `length_ms`, and how many there may be."""

    length_ms: int
    most: float
    times: deque[int]


class Allowance(Checker):
    """Calls to an upstream in any window of 1, 10 and 60 s stay within its declared limit and burst.

    A permit may be used until `LATE_MS` after its slot, and a call takes time to arrive: a window of the calls as they
    arrive can hold the slots of a window that is longer by both.
    """

    invariant = "I7"

    def prepare(self) -> None:
        self._windows: dict[str, list[_Window]] = {}

    def called(self, call: UpstreamCall) -> None:
        for window in self._windows.get(call.upstream) or self._begin(call.upstream):
            times = window.times
            times.append(call.at_ms)
            while times[0] <= call.at_ms - window.length_ms:
                times.popleft()
            if len(times) > window.most:
                self.breaks(
                    f"{len(times)} calls in {window.length_ms / 1000:g} s, at most {window.most:g} were allowed"
                )

    def _begin(self, name: str) -> list[_Window]:
        upstream, latency = self.sluice.settings.upstreams[name], self.sluice.world.latency
        slip_ms = LATE_MS + latency.longest_ms("upstream.call") + self.slack_ms
        self._windows[name] = [
            _Window(ms, upstream.limit_per_s * (ms + slip_ms) / 1000 + upstream.burst_calls, deque())
            for ms in _WINDOWS_MS
        ]
        return self._windows[name]

    slack_ms = 0
    """How far the workers' clocks may be apart."""
