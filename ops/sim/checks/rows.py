"""Checkers of what happens to rows: one effect (I2), no redone work (I4), order (I5), attempts (I9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ops.sim.checks.base import Checker
from ops.sim.kinds import ChunkStart
from ops.sim.memory_ledger import Step
from shared.core.exchange import Delivery
from shared.core.model import Job, State
from shared.errors import Retryable

_ENDED: Final = frozenset({State.DONE, State.SKIPPED, State.REPLACED})
_OWN_FAULTS: Final = frozenset({"no_progress", "bad_chunk"})
"""Failures of a job's code that show only in what it returned."""


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
        self._seen: dict[tuple[str, str], Job] = {}
        self._messages: dict[tuple[str, str], int] = {}

    def delivered(self, invocation: str, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self._messages[invocation, delivery.message.job_id] = delivery.message.epoch

    def has_read(self, invocation: str, job: Job) -> None:
        self._seen[invocation, job.job_id] = job

    def stepped(self, step: Step) -> None:
        seen = (step.after.nonce, step.after.job_id)
        if seen in self._seen:
            if step.after.state is State.QUEUED:
                self._seen[seen] = step.after
            else:
                del self._seen[seen]
                self._messages.pop(seen, None)

    def began(self, invocation: str, start: ChunkStart) -> None:
        row = self._seen.get((invocation, start.job_id))
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
        if job.state in _ENDED:
            # A replaced job's number lives on in the job that took its place.
            if job.state is not State.REPLACED:
                self._open[match].discard(job.seq)
            if not self._open[match]:
                del self._open[match], self._queued[match]

    def began(self, invocation: str, start: ChunkStart) -> None:
        job = self.sluice.ledger.rows[start.job_id].job
        if job.job_class not in self._ordered or job.state in _ENDED:
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
