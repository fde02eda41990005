"""Checkers of rows, and of the messages and calls that go out for them.

One effect (I2), nothing lost (I3), no redone work (I4), order (I5), the upstream's allowance (I7), attempts (I9).
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ops.simulator.checks.checker import Checker
from ops.simulator.kinds import ChunkStart
from ops.simulator.upstream import UpstreamCall
from shared.domain.job import Job, State
from shared.domain.lifecycle import ENDED
from shared.domain.messages import Delivery, Message
from shared.errors import Retryable
from shared.memory.ledger import Step

_OWN_FAULTS: Final = frozenset({"no_progress", "bad_chunk"})
"""Failures of a job's code that show only in what it returned."""

_MAX_FACTOR: Final = 8
"""The sweep's bound doubles per re-send up to this: the checker's own word, as are the next two."""

LATE_MS: Final = 1_000
"""How late a call may follow its permit."""

_WINDOWS_MS: Final = (1_000, 10_000, 60_000)
"""In any window of these lengths no more calls may arrive than were allowed."""

_LISTS: Final = {
    State.WAITING: ("waiting", "retry"),
    State.QUEUED: ("inflight",),
    State.BEHIND: ("behind",),
    State.DEAD: ("dead",),
    **dict.fromkeys(ENDED, ("",)),
}
"""In which list of the index a row stands, "" being none, where an operator sees it."""


def is_progress(step: Step) -> bool:
    """A chunk was committed: the cursor moved, or the job is finished."""
    return step.after.state is State.DONE or step.after.cursor != step.before.cursor


class OneEffect(Checker):
    """The result of a (job, cursor) is committed once, and each chunk of a finished job has its one output."""

    invariant = "I2"

    def prepare(self) -> None:
        self.repeats = 0
        self._committed: set[tuple[str, str]] = set()

    def known(self, job_id: str, cursor: str) -> None:
        """A chunk that was committed before this run began: its ledger was loaded."""
        self._committed.add((job_id, cursor))

    def stepped(self, step: Step) -> None:
        if not is_progress(step):
            return
        chunk = (step.before.job_id, step.before.cursor)
        if chunk in self._committed:
            self.repeats += 1
            self.breaks(f"{chunk[0]} committed the chunk at {chunk[1]!r} twice")
        self._committed.add(chunk)

    def ended(self) -> None:
        ledger = self.sluice.ledger
        committed = Counter(job_id for job_id, _ in self._committed)
        for job_id, row in ledger.rows.items():
            outputs = len(ledger.outputs(job_id))
            if row.job.state is State.DONE and outputs not in (0, committed[job_id]):
                self.breaks(f"{job_id} is done with {outputs} outputs of {committed[job_id]} chunks")


class NoRedoneWork(Checker):
    """A worker goes on at the cursor that it read, or that it committed itself: nowhere before, nowhere after.

    Nor does it begin anything for a stale message (rule 1): one of a row not in flight, or of another epoch.
    """

    invariant = "I4"

    def prepare(self) -> None:
        self._rows: dict[tuple[str, str], Job] = {}
        self._messages: dict[tuple[str, str], int] = {}

    def delivered(self, invocation: str, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self._messages[invocation, delivery.message.job_id] = delivery.message.epoch

    def has_read(self, invocation: str, job: Job) -> None:
        self._rows[invocation, job.job_id] = job

    def stepped(self, step: Step) -> None:
        attempt = (step.after.nonce, step.after.job_id)
        if attempt in self._rows:
            if step.after.state is State.QUEUED:
                self._rows[attempt] = step.after
            else:
                del self._rows[attempt]
                self._messages.pop(attempt, None)

    def began(self, invocation: str, start: ChunkStart) -> None:
        row = self._rows.get((invocation, start.job_id))
        epoch = self._messages.get((invocation, start.job_id), start.epoch)
        if row is None or row.cursor != start.cursor:
            stored = "nothing" if row is None else repr(row.cursor)
            self.breaks(f"{start.job_id} ran its chunk at {start.cursor!r} where {stored} was stored")
        elif row.state is not State.QUEUED or start.epoch != epoch:
            self.breaks(f"{start.job_id}, {row.state.value} in epoch {row.epoch}, ran for a message of epoch {epoch}")


class Order(Checker):
    """In an ordered class a job's chunks start only when every earlier job of its match has ended."""

    invariant = "I5"

    def prepare(self) -> None:
        classes = self.sluice.settings.classes.values()
        self._ordered = frozenset(job_class.name for job_class in classes if job_class.ordered)
        self._open: dict[tuple[str, str], set[int]] = {}
        self._queued: Counter[tuple[str, str]] = Counter()

    def created(self, job: Job) -> None:
        if job.job_class in self._ordered:
            self._open.setdefault((job.job_class, job.match_id), set()).add(job.seq)

    def stepped(self, step: Step) -> None:
        job = step.after
        if job.job_class not in self._ordered:
            return
        match = (job.job_class, job.match_id)
        self._queued[match] += (job.state is State.QUEUED) - (step.before.state is State.QUEUED)
        if job.state in ENDED:
            # A replaced job's number lives on in the job that took its place.
            if job.state is not State.REPLACED:
                self._open[match].discard(job.seq)
            if not self._open[match]:
                del self._open[match], self._queued[match]

    def began(self, invocation: str, start: ChunkStart) -> None:
        job = self.sluice.ledger.rows[start.job_id].job
        if job.job_class not in self._ordered or job.state in ENDED:
            return
        match = (job.job_class, job.match_id)
        if min(self._open[match]) < job.seq:
            self.breaks(
                f"{job.job_id}, number {job.seq} of its match, began while number {min(self._open[match])} is open"
            )
        if self._queued[match] > 1:
            self.breaks(f"{self._queued[match]} jobs of the match of {job.job_id} are in flight at once")


class Attempts(Checker):
    """Attempts are burned by failures of the job's own code and by nothing else."""

    invariant = "I9"

    def prepare(self) -> None:
        self.burned_by_others = 0
        self._own_failures: Counter[str] = Counter()
        self._burned: Counter[str] = Counter()

    def raised(self, job: Job, error: Exception) -> None:
        self._own_failures[job.job_id] += not isinstance(error, Retryable)

    def stepped(self, step: Step) -> None:
        before, after = step.before, step.after
        if after.attempts <= before.attempts:
            return
        self._burned[after.job_id] += after.attempts - before.attempts
        own = self._own_failures[after.job_id] + (after.last_error in _OWN_FAULTS)
        if self._burned[after.job_id] > own:
            self.burned_by_others += 1
            self.breaks(f"{after.job_id} burned an attempt for {after.last_error!r}")


class Failing(Checker):
    """For worlds whose workers are not stalled: how long a row waits is measured from the write that sent it back.

    Each delay is longer than the one before, up to the longest that the class has. A failure kills at the last attempt
    and at no other.
    """

    invariant = "I9"

    def prepare(self) -> None:
        self._delay_ms: dict[str, int] = {}

    def stepped(self, step: Step) -> None:
        job, retry = step.after, self.sluice.settings.classes[step.after.job_class].retry
        failed = job.attempts > step.before.attempts
        if failed and (step.name == "die") is not (job.attempts >= retry.max_attempts):
            lives = "died of" if step.name == "die" else "lives after"
            self.breaks(f"{job.job_id} {lives} attempt {job.attempts} of {retry.max_attempts}")
        if step.name == "fail":
            delay_ms, before_ms = job.eligible_ms - step.at_ms, self._delay_ms.get(job.job_id, 0)
            if delay_ms <= before_ms < retry.max_delay_s * 1000:
                self.breaks(f"{job.job_id} waits {delay_ms} ms after attempt {job.attempts} and before {before_ms} ms")
            self._delay_ms[job.job_id] = delay_ms
        elif step.name in ("die", "retry", "commit", "finish"):
            self._delay_ms.pop(job.job_id, None)


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
    slack_ms = 0
    """How far the workers' clocks may be apart."""

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
