"""The raw numbers of a run, collected as it goes: when jobs came and ended, calls, waiting rows, ticks, billed units.

`result` makes the figures of them; docs/simulation.md says what each figure means.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from ops.simulator.checks.checker import Checker
from ops.simulator.checks.rows import is_progress
from ops.simulator.kinds import ChunkStart
from ops.simulator.sluice_world import SimSluice
from ops.simulator.upstream import TOO_MANY, HiddenLimit, UpstreamCall
from ops.simulator.world import START_MS
from shared.domain.control import RunKey, TickLine
from shared.domain.job import Job, State
from shared.domain.settings import ClassSettings
from shared.memory.ledger import Step
from shared.pacer.cost import Usage, index_read_units, read_units, write_units

WORST_MINUTES: Final = 10
"""The worst stretch of a run, of which the refusals are a figure of their own, is this long."""

FIRST_TICK: Final = 3
"""An ETA is judged from the third working tick on: before it nothing was observed over a whole interval."""


@dataclass(slots=True)
class Demand:
    """What the true limit allowed while rows waited, and what of it was used: the two parts of the utilisation."""

    limit: HiddenLimit
    from_ms: int = START_MS
    waiting: int = 0
    stopped: bool = False
    allowed_calls: float = 0.0
    used_calls: int = 0
    _since_ms: int | None = None

    def change(self, now_ms: int, *, waiting: int = 0) -> None:
        """The number of waiting rows changes by `waiting`, or something else that matters does."""
        self.waiting += waiting
        open_now = self.waiting > 0 and not self.stopped
        if open_now and self._since_ms is None:
            self._since_ms = now_ms
        elif not open_now and self._since_ms is not None:
            self.allowed_calls += self.limit.calls_between(max(self._since_ms, self.from_ms), now_ms)
            self._since_ms = None

    def use(self, calls: int) -> None:
        if self._since_ms is not None:
            self.used_calls += calls

    def utilisation(self, now_ms: int) -> float | None:
        """None where nothing ever waited. A burst of the limiter can make it a little more than 1."""
        open_calls = 0.0 if self._since_ms is None else self.limit.calls_between(self._since_ms, now_ms)
        allowed = self.allowed_calls + open_calls
        return self.used_calls / allowed if allowed > 0 else None


class Traffic:
    """Calls and refusals by minute."""

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()
        self.refused: Counter[int] = Counter()

    def add(self, at_ms: int, *, refused: bool) -> None:
        minute = at_ms // 60_000
        self.calls[minute] += 1
        self.refused[minute] += refused

    @property
    def per_1000(self) -> float:
        return per_1000(sum(self.refused.values()), sum(self.calls.values()))

    @property
    def worst_per_1000(self) -> float:
        """Over the worst 10 minutes in a row; a shorter run is one such stretch."""
        if not self.calls:
            return 0.0
        first, last = min(self.calls), max(self.calls)
        stretches = (
            range(start, start + WORST_MINUTES) for start in range(first, max(first, last - WORST_MINUTES + 1) + 1)
        )
        return max(
            per_1000(sum(self.refused[minute] for minute in minutes), sum(self.calls[minute] for minute in minutes))
            for minutes in stretches
        )


def per_1000(part: int, whole: int) -> float:
    return 1000 * part / whole if whole else 0.0


class Lives:
    """When each job came, began and ended, for whatever policy."""

    def __init__(self) -> None:
        self.created_ms: dict[str, int] = {}
        self.ended_ms: dict[str, int] = {}
        self.live_waits_ms: list[int] = []
        self.on_end: Callable[[str], None] | None = None
        self._live_due_ms: dict[str, int] = {}
        self._calls: dict[str, int] = {}

    def expect(self, job_id: str, *, due_ms: int, created_ms: int, live: bool, calls: int) -> None:
        self.created_ms.setdefault(job_id, created_ms)
        self._calls[job_id] = calls
        if live:
            self._live_due_ms[job_id] = due_ms

    def began(self, job_id: str, at_ms: int) -> None:
        due_ms = self._live_due_ms.pop(job_id, None)
        if due_ms is not None:
            self.live_waits_ms.append(at_ms - due_ms)

    def ended(self, job_id: str, at_ms: int) -> None:
        if job_id not in self.ended_ms:
            self.ended_ms[job_id] = at_ms
            if self.on_end is not None:
                self.on_end(job_id)

    def ideal_drain_s(self, limit: HiddenLimit, *, from_ms: int, calls_per_s: float) -> float | None:
        """How long a pool that never wastes a call needs from `from_ms` until nothing is left of what had come by then.

        `calls_per_s` is what its slots could make; a second is the step.
        """
        coming = sorted((self.created_ms[job_id], calls) for job_id, calls in self._calls.items())
        times, sums, total = [at_ms for at_ms, _ in coming], [0], 0
        for _, calls in coming:
            total += calls
            sums.append(total)
        made, now_ms = 0.0, from_ms
        while made < total:
            arrived = sums[bisect_right(times, now_ms)]
            if made >= arrived and arrived > 0:
                break
            step = min(limit.calls_between(now_ms, now_ms + 1000), calls_per_s)
            if step <= 0 and not limit.changes:
                return None
            made, now_ms = min(made + step, float(sums[bisect_right(times, now_ms + 1000)])), now_ms + 1000
        return (now_ms - from_ms) / 1000


class Meter(Checker):
    """Breaks nothing; remembers what the figures and the series are made of."""

    invariant = "figures"

    def prepare(self) -> None:
        self.lives = Lives()
        self.traffic = Traffic()
        self.demand = Demand(HiddenLimit(per_s=1.0))
        self.lines: list[TickLine] = []
        self.marks: list[tuple[int, int]] = []
        """(calls, refusals) so far, at each line."""
        self.calls_per_chunk = 1
        self._calls = self._refusals = 0

    def created(self, job: Job) -> None:
        if job.state is State.WAITING:
            self.demand.change(self.now_ms, waiting=1)

    def stepped(self, step: Step) -> None:
        change = (step.after.state is State.WAITING) - (step.before.state is State.WAITING)
        if is_progress(step):
            self.demand.use(self.calls_per_chunk)
        if change:
            self.demand.change(self.now_ms, waiting=change)
        if step.after.state in (State.DONE, State.DEAD):
            self.lives.ended(step.after.job_id, step.at_ms)

    def began(self, invocation: str, start: ChunkStart) -> None:
        self.lives.began(start.job_id, start.at_ms)

    def called(self, call: UpstreamCall) -> None:
        refused = call.status == TOO_MANY
        self._calls += 1
        self._refusals += refused
        self.traffic.add(call.at_ms, refused=refused)

    def closed(self, key: RunKey, line: TickLine) -> None:
        if self.lines and self.lines[-1].run_id == line.run_id:
            return
        self.lines.append(line)
        self.marks.append((self._calls, self._refusals))

    def paused(self, job_class: str) -> None:
        self.demand.stopped = True
        self.demand.change(self.now_ms)

    def resumed(self, job_class: str) -> None:
        self.demand.stopped = False
        self.demand.change(self.now_ms)


class Truths:
    """When the backlog of each moment really was over, to judge the ETAs that ticks said."""

    def __init__(self, lives: Lives, done: Container[str]) -> None:
        lasting = sorted(
            (lives.created_ms[job_id], ended) for job_id, ended in lives.ended_ms.items() if job_id in done
        )
        self._created = [created for created, _ in lasting]
        self._last_ms: list[int] = []
        for _, ended in lasting:
            self._last_ms.append(max(ended, self._last_ms[-1] if self._last_ms else 0))

    def remaining_s(self, at_ms: int) -> float:
        """Until nothing that had come by then was unfinished; what ended dead or is held does not count."""
        number = bisect_right(self._created, at_ms)
        return max(0, self._last_ms[number - 1] - at_ms) / 1000 if number else 0.0

    def errors(self, lines: Sequence[TickLine], *, interval_s: float) -> tuple[list[float], int]:
        """The relative errors of what was said, and how many ticks with rows left said nothing.

        Not those inside a staged recovery: what they observe is slower than what comes, and they know it.
        """
        errors, silent = [], 0
        working = [line for line in lines if not line.paused]
        for line in working[FIRST_TICK - 1 :]:
            true_s = self.remaining_s(line.at_ms)
            if line.pending == 0 or true_s == 0 or line.staged:
                continue
            if line.eta_s is None:
                silent += 1
            else:
                errors.append(abs(line.eta_s - true_s) / max(true_s, interval_s))
        return errors, silent


class PortCounts(Struct, frozen=True, kw_only=True):
    """The port calls of a world with one class, counted one by one: write requests and reads of the ledger by name,
    rows that its index showed, permits asked for, queue requests, invocations and their time."""

    writes: Mapping[str, int]
    reads: Mapping[str, int]
    index_rows: int
    reservations: int
    queue_requests: int
    invocations: int
    compute_s: float
    memory_mb: int
    ordered: bool

    @property
    def usage(self) -> Usage:
        """In the units that AWS bills. A move that stores an output cannot show the row that it made, which is read
        afterwards."""
        stores = self.writes.get("commit", 0) + self.writes.get("continue", 0) + self.writes.get("finish", 0)
        write = sum(count * write_units(name, output=True, ordered=self.ordered) for name, count in self.writes.items())
        read = sum(count * read_units(name) for name, count in self.reads.items())
        return Usage(
            write_units=self.reservations + write,
            read_units=read + index_read_units(self.index_rows) + stores,
            queue_requests=self.queue_requests,
            invocations=self.invocations,
            gb_seconds=self.compute_s * self.memory_mb / 1024,
        )


def port_counts(sluice: SimSluice, job_class: ClassSettings) -> PortCounts:
    """A message is sent in a batch, received and deleted; the pacer's and the readers' time counts as the workers'."""
    ended = [one for one in sluice.world.invocations if one.ended_ms is not None]
    return PortCounts(
        writes=dict(sluice.ledger.writes),
        reads=dict(sluice.ledger.reads),
        index_rows=sluice.ledger.index_rows,
        reservations=sluice.limiter.requests,
        queue_requests=sluice.queue.send_calls + 2 * sum(mapping.batches for mapping in sluice.mappings),
        invocations=len(sluice.world.invocations),
        compute_s=sum(max(0, (one.ended_ms or 0) - one.at_ms) for one in ended) / 1000,
        memory_mb=job_class.memory_mb,
        ordered=job_class.ordered,
    )


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of them does not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, -int(-share * len(ordered) // 1) - 1))]


def median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
