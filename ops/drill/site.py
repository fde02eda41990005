"""Where a drill is held: one class of a deployment, jobs of the drill's own in it, and how it waits for things."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from shared.domain import stats
from shared.domain.control import SCHEDULE, RunKey, TickLine
from shared.domain.job import MINUTE_MS, Job, Lane, NewJob, State
from shared.domain.messages import Message, Outgoing, group_id
from shared.domain.settings import ClassSettings, Schedule, Settings
from shared.errors import SluiceError
from shared.operate.ports import Mappings, Pacer
from shared.ports import Ports
from shared.submit.submission import submit_jobs

KIND: Final = "drill"
"""The kind that a drill can ask for anything; every other one gets the operator's payload."""

SOURCE: Final = "drill"
"""Who asked for a tick, on the run's record."""

_POLL_S: Final = 1.0
"""Between two looks at what is waited for."""


class DrillFailed(SluiceError):
    """The drill found:"""

    code = "drill_failed"


@dataclass(slots=True, kw_only=True)
class Site:
    """`payload` is what jobs of another kind than the drill's carry. `by` and `why` sign what the drill changes."""

    ports: Ports
    settings: Settings
    job_class: ClassSettings
    pacer: Pacer
    mappings: Mappings
    nonce: str
    by: str
    why: str
    payload: str
    job_ids: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.job_class.name

    @property
    def has_own_kind(self) -> bool:
        return self.job_class.kind == KIND

    @property
    def patience_s(self) -> float:
        """Two ticks, a message that comes back, and something for a slow machine."""
        return 2 * self.job_class.tick_interval_s + self.job_class.visibility_s + 60

    def now_ms(self) -> int:
        return self.ports.clock.now_ms()

    # -- jobs

    def submit(self, count: int, payload: str, *, due_ms: int | None = None) -> list[str]:
        """New jobs, each of a match of its own."""
        first = len(self.job_ids)
        ids = [f"drill-{self.nonce}-{number}" for number in range(first, first + count)]
        body = payload if self.has_own_kind else self.payload
        new = [NewJob(job_id=name, job_class=self.name, match_id=name, payload=body, due_ms=due_ms) for name in ids]
        report = submit_jobs(self.ports, self.settings, new, nonce=f"{self.nonce}-{first}")
        check(report.created == count, f"{report.created} of {count} drill jobs were created")
        self.job_ids += ids
        return ids

    def row(self, job_id: str) -> Job:
        job = self.ports.ledger.read_job(job_id)
        if job is None:
            raise DrillFailed("a drill job's row is gone")
        return job

    def states(self, job_ids: Sequence[str]) -> list[State]:
        return [self.row(job_id).state for job_id in job_ids]

    def send(self, job: Job, *, epoch: int, copy: int, lane: Lane, group: str | None = None) -> None:
        """A message as the queue would bring it again: of this row, but not necessarily as the row is now."""
        message = Message(job_id=job.job_id, job_class=self.name, cursor=job.cursor, epoch=epoch, copy=copy)
        outgoing = Outgoing(message=message, group=group_id(job.match_id) if group is None else group)
        answer = self.ports.queue.send_batch(self.name, lane, [outgoing])
        check(answer.successful == frozenset({0}), "the queue did not take the drill's message")

    # -- ticks and time

    def tick(self, key: RunKey) -> str:
        """Ask for the tick of a minute as its schedule would."""
        return self.pacer.tick(key, source=SCHEDULE if self.job_class.schedule is Schedule.RUNS else SOURCE)

    def this_minute(self) -> RunKey:
        return RunKey.of(self.name, self.now_ms())

    def ticks(self, key: RunKey) -> list[TickLine]:
        history = self.ports.ledger.read_control(self.name).history
        return [tick for tick in history if tick.run_id == key.run_id]

    def until_done(self, job_ids: Sequence[str], what: str) -> None:
        self.until(lambda: set(self.states(job_ids)) == {State.DONE}, what)

    def stale(self, since_ms: int) -> int:
        """Messages that workers have found stale since then, to the minute."""
        windows_ms = list(range(stats.window_of(since_ms), self.now_ms() + 1, MINUTE_MS))
        return stats.total(self.ports.ledger.read_stats(self.name, windows_ms=windows_ms), stats.STALE)

    def until(self, holds: Callable[[], bool], what: str, *, within_s: float | None = None) -> None:
        """Wait for it, asking for a tick in every minute that has none yet: an interval may be long."""
        end_ms = self.now_ms() + round((within_s or self.patience_s) * 1000)
        ticked: RunKey | None = None
        while not holds():
            check(self.now_ms() < end_ms, f"{what}: not within {within_s or self.patience_s:.0f} s")
            key = self.this_minute()
            if key != ticked:
                self.tick(key)
                ticked = key
            self.ports.clock.sleep(_POLL_S)


def check(holds: object, otherwise: str) -> None:
    """Raises `DrillFailed` with this sentence where something does not hold."""
    if not holds:
        raise DrillFailed(otherwise)
