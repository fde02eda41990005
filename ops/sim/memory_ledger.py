"""The ledger in memory, the twin of the DynamoDB adapter. A method is atomic because nothing switches in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ops.sim.memory_index import MemoryIndex, Staleness
from ops.sim.memory_matches import MemoryMatches
from ops.sim.memory_runs import MemoryRuns
from ops.sim.memory_ticks import MemoryTicks
from shared.core.allowance import Allowance
from shared.core.exchange import IndexPage
from shared.core.lifecycle import after, place_of
from shared.core.model import (
    Created,
    Fence,
    IndexFence,
    IndexKey,
    Job,
    KeepPlace,
    Lost,
    Match,
    MatchChanged,
    MatchStep,
    Move,
    MoveResult,
    Output,
    OutputTaken,
    Place,
    RowFence,
    State,
    Stepped,
    StepResult,
    Won,
    same_work,
)
from shared.core.rate import Learned
from shared.core.runs import Run


@dataclass(frozen=True, slots=True)
class Row:
    """A job and where it stands in the index; None is nowhere."""

    job: Job
    place: IndexKey | None


@dataclass(frozen=True, slots=True)
class Step:
    """One move that was made, for the checkers: what happened to which row, in order. `admit` is a creation as claimed,
    which the checkers hear of as one."""

    at_ms: int
    name: str
    before: Job
    after: Job


@dataclass(frozen=True, slots=True)
class Stores:
    """What the ledger holds beside rows, for whoever copies it."""

    outputs: dict[str, dict[str, Output]]
    matches: MemoryMatches
    runs: MemoryRuns
    learned: dict[str, Learned]


class MemoryLedger(MemoryTicks):
    """`writes` counts write requests by kind (moves by their name, lost ones included), `reads` the others, and
    `index_rows` what the index showed in them."""

    def __init__(
        self, now_ms: Callable[[], int], *, staleness: Staleness | None = None, keep_steps: bool = True
    ) -> None:
        self.rows: dict[str, Row] = {}
        self.states: Counter[State] = Counter()
        self.steps: list[Step] = []
        self.index_rows = 0
        super().__init__()
        self.lost: Counter[str] = Counter()
        self.on_step: Callable[[Step], None] | None = None
        self.on_new: Callable[[Job], None] | None = None
        self._now_ms = now_ms
        self._keep_steps = keep_steps
        self._outputs: dict[str, dict[str, Output]] = {}
        self._index = MemoryIndex(now_ms, staleness)
        self._matches = MemoryMatches()

    @property
    def open_rows(self) -> int:
        """Rows that someone still has to move: what "drained" is the end of (TRAPS 13)."""
        return self.states[State.WAITING] + self.states[State.QUEUED] + self.states[State.BEHIND]

    # -- rows

    def create(self, jobs: Sequence[Job]) -> list[Created]:
        return [self._create(job) for job in jobs]

    def read_job(self, job_id: str) -> Job | None:
        self.reads["read_job"] += 1
        row = self.rows.get(job_id)
        return None if row is None else row.job

    def outputs(self, job_id: str) -> list[Output]:
        self.reads["outputs"] += 1
        found = self._outputs.get(job_id, {})
        return [found[cursor] for cursor in sorted(found, key=lambda text: text.encode("utf-8", "surrogatepass"))]

    def move(self, move: Move) -> MoveResult:
        self.writes[move.name] += 1
        row = self.rows.get(move.job_id)
        if row is not None:
            if _holds(move.fence, row):
                if self._output_taken(move):
                    return OutputTaken()
                return Won(job=self._apply(move, row))
            if self._is_ours(move, row):
                return Won(job=row.job)
        self.lost[move.name] += 1
        return Lost()

    # -- ordered matches

    def read_match(self, job_class: str, match_id: str) -> Match:
        self.reads["read_match"] += 1
        return self._matches.read(job_class, match_id)

    def job_id_at(self, match: Match, seq: int) -> str | None:
        self.reads["job_id_at"] += 1
        return self._matches.job_id_at(match, seq)

    def step_match(self, step: MatchStep, *, spends: Allowance | None = None) -> StepResult:
        self.writes["+".join(move.name for move in step.moves) or "enter"] += 1
        rows = [self.rows.get(move.job_id) for move in step.moves]
        held = [row is not None and _holds(move.fence, row) for move, row in zip(step.moves, rows, strict=True)]
        entered = step.enters is not None and step.enters.job_id in self.rows
        if not all(held) or entered or not self._matches.is_as_read(step):
            if self._stepped(step):
                return Stepped()
            return Lost() if held and not held[0] else MatchChanged()
        if any(self._output_taken(move) for move in step.moves):
            return OutputTaken()
        if spends is not None and step.enters is not None and not self._take(spends, [step.enters]):
            return MatchChanged()
        for move, row in zip(step.moves, rows, strict=True):
            assert row is not None
            self._apply(move, row)
        if step.enters is not None:
            self._put(step.enters, _key_of(place_of(step.enters)))
        self._matches.apply(step)
        return Stepped()

    # -- the index

    def count(self, partition: str, *, low: str, high: str) -> int:
        self.reads["count"] += 1
        found = self._index.count(partition, low=low, high=high)
        self.index_rows += found
        return found

    def page(self, partition: str, *, low: str, high: str, limit: int, resume: str | None = None) -> IndexPage:
        self.reads["page"] += 1
        page = self._index.page(partition, low=low, high=high, limit=limit, resume=resume)
        self.index_rows += len(page.nominees)
        return page

    # -- the live allowance

    def spend(self, allowance: Allowance, jobs: Sequence[Job]) -> bool:
        self.writes["spend"] += len(jobs)
        found = [self.rows.get(job.job_id) for job in jobs]
        if any(found):
            return all(row is not None and row.job == job for row, job in zip(found, jobs, strict=True))
        taken = self._take(allowance, jobs)
        for job in jobs if taken else ():
            self._put(job, _key_of(place_of(job)))
        return taken

    # -- what only tests and checkers ask

    @property
    def runs(self) -> list[Run]:
        return list(self._runs.runs.values())

    @property
    def stores(self) -> Stores:
        return Stores(self._outputs, self._matches, self._runs, self._learned)

    # -- inside

    def _create(self, job: Job) -> Created:
        self.writes["create"] += 1
        row = self.rows.get(job.job_id)
        if row is None:
            self._put(job, _key_of(place_of(job)))
            return Created.CREATED
        if job.nonce and (row.job.nonce, row.job.created_ms) == (job.nonce, job.created_ms):
            return Created.CREATED  # by an earlier attempt of ours whose answer was lost
        return Created.EXISTING if same_work(row.job, job) else Created.DIFFERENT

    def _take(self, allowance: Allowance, jobs: Sequence[Job]) -> bool:
        return self._runs.allowances.take(allowance, rows=len(jobs), at_ms=jobs[0].sent_at_ms)

    def _output_taken(self, move: Move) -> bool:
        return move.output is not None and move.output.cursor in self._outputs.get(move.job_id, {})

    def _stepped(self, step: MatchStep) -> bool:
        """An earlier attempt of this very step won and its answer was lost."""
        for move in step.moves:
            row = self.rows.get(move.job_id)
            if row is None or not self._is_ours(move, row):
                return False
        if step.enters is not None:
            row = self.rows.get(step.enters.job_id)
            if row is None or row.job != step.enters:
                return False
        return self._matches.is_ours(step)

    def _apply(self, move: Move, row: Row) -> Job:
        job = after(row.job, move)
        self._put(job, row.place if isinstance(move.place, KeepPlace) else _key_of(move.place))
        if move.output is not None:
            self._outputs.setdefault(move.job_id, {})[move.output.cursor] = move.output
        step = Step(self._now_ms(), move.name, row.job, job)
        if self._keep_steps:
            self.steps.append(step)
        if self.on_step is not None:
            self.on_step(step)
        return job

    def _put(self, job: Job, place: IndexKey | None) -> None:
        row = self.rows.get(job.job_id)
        if row is not None:
            self.states[row.job.state] -= 1
        self.states[job.state] += 1
        self.rows[job.job_id] = Row(job, place)
        self._index.shift(job, None if row is None else row.place, place)
        if row is None and job.state is State.QUEUED and self._keep_steps:
            self.steps.append(Step(self._now_ms(), "admit", replace(job, state=State.WAITING, epoch=0), job))
        if row is None and self.on_new is not None:
            self.on_new(job)

    def _is_ours(self, move: Move, row: Row) -> bool:
        """The fence does not hold because our own first attempt won: the row is exactly what the move makes of it.

        A twin's win has another nonce. A re-send has none; there the new copy, its time and its place must be ours.
        """
        if move.nonce is not None and row.job.nonce != move.nonce:
            return False
        if not isinstance(move.place, KeepPlace) and row.place != _key_of(move.place):
            return False
        if move.output is not None and self._outputs.get(move.job_id, {}).get(move.output.cursor) != move.output:
            return False
        return all(getattr(row.job, name) == value for name, value in move.changes.items())


def _holds(fence: Fence, row: Row) -> bool:
    match fence:
        case IndexFence(key=key):
            return row.place == key
        case RowFence(state=state, epoch=epoch, cursor=cursor, copy=copy):
            job = row.job
            return (
                job.state is state and job.epoch == epoch and cursor in (None, job.cursor) and copy in (None, job.copy)
            )


def _key_of(place: Place) -> IndexKey | None:
    return place if isinstance(place, IndexKey) else None
