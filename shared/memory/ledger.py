"""The ledger in memory, the twin of the DynamoDB adapter. A method is atomic because nothing switches in it.

For the simulator, the notebook and tests; not shipped. Its parts keep the index, the runs with their control and
allowances, and the order of matches, each with the conditions that `shared.aws.ledger` states.
"""

from __future__ import annotations

import heapq
import json
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict, replace

from shared.domain.control import (
    SLICES,
    Allowance,
    Busy,
    Control,
    Ended,
    Grant,
    RateOverride,
    Run,
    RunKey,
    RunState,
    SlotsOverride,
    Taken,
    TakeResult,
    TickClose,
    TickMemory,
)
from shared.domain.job import Created, Flag, Job, Output, State, same_work
from shared.domain.lifecycle import (
    Fence,
    IndexFence,
    Lost,
    Move,
    MoveResult,
    OutputTaken,
    RowFence,
    Won,
    after,
    place_of,
)
from shared.domain.ordering import Match, MatchChanged, MatchStep, Stepped, StepResult
from shared.domain.stats import StatsWindow
from shared.domain.upstream import Learned
from shared.domain.work_index import IndexKey, IndexPage, KeepPlace, Nominee, Place

_UNFINISHED = (RunState.OPEN, RunState.PLANNED)
"""The states of a run that a tick may still take."""

_UNLOCKED: dict[str, Any] = {"lock_owner": "", "lock_run_id": "", "lock_until_ms": 0}

_Entry: TypeAlias = tuple[str, str]
"""(position, job id): the order within a partition of the index."""


class Staleness(Struct, frozen=True, kw_only=True):
    """How late an index shows a row: one rule for all rows, or a draw per change."""

    lag_ms: Callable[[str], int]
    gap_ms: Callable[[str], int]

    @classmethod
    def fixed(cls, lag_ms: int = 0, *, gap_ms: int = 0) -> Staleness:
        return cls(lag_ms=lambda _: lag_ms, gap_ms=lambda _: gap_ms)


@dataclass(slots=True)
class _Partition:
    """Entries in order. Bisection in a plain list: moving 12,500 pointers is microseconds."""

    order: list[_Entry] = field(default_factory=list)
    nominees: dict[_Entry, Nominee] = field(default_factory=dict)

    def add(self, nominee: Nominee) -> None:
        entry = (nominee.key.position, nominee.job_id)
        if entry not in self.nominees:
            insort(self.order, entry)
        self.nominees[entry] = nominee

    def drop(self, key: IndexKey, job_id: str) -> None:
        entry = (key.position, job_id)
        if self.nominees.pop(entry, None) is not None:
            del self.order[bisect_left(self.order, entry)]


class MemoryIndex:
    """The sparse `work` index, as stale as it is told to be (fact F17).

    A change reaches readers `lag_ms` later, and a move between two places is a delete and an insert: with a gap between
    them a reader sees the row in neither place, with a negative gap in both. One row's changes stay in order.
    """

    def __init__(self, now_ms: Callable[[], int], staleness: Staleness | None = None) -> None:
        self._now_ms = now_ms
        self._staleness = staleness
        self._partitions: dict[str, _Partition] = {}
        self._pending: list[tuple[int, int, Callable[[], None]]] = []
        self._changes = 0
        self._settled_ms: dict[str, int] = {}

    def shift(self, job: Job, old: IndexKey | None, new: IndexKey | None) -> None:
        """The row stood at `old` and now stands at `new`; None is nowhere."""
        if old == new:
            return
        nominee = None
        if new is not None:
            nominee = Nominee(job_id=job.job_id, match_id=job.match_id, epoch=job.epoch, key=new)
        if self._staleness is None:
            self._drop(old, job.job_id)
            self._add(nominee)
            return
        gap_ms = self._staleness.gap_ms(job.job_id) if old and new else 0
        start_ms = max(self._now_ms() + self._staleness.lag_ms(job.job_id), self._settled_ms.get(job.job_id, 0))
        self._settled_ms[job.job_id] = start_ms + abs(gap_ms)
        self._later(start_ms + max(0, -gap_ms), lambda: self._drop(old, job.job_id))
        self._later(start_ms + max(0, gap_ms), lambda: self._add(nominee))

    def count(self, partition: str, *, low: str, high: str) -> int:
        order = self._read(partition).order
        return max(0, bisect_left(order, (high, "")) - bisect_left(order, (low, "")))

    def page(self, partition: str, *, low: str, high: str, limit: int, resume: str | None = None) -> IndexPage:
        """As DynamoDB pages: a full page always names a key to resume from, also where nothing follows."""
        if limit < 1:
            raise ValueError(f"limit: got {limit}, expected 1 or more")
        rows = self._read(partition)
        start = bisect_left(rows.order, (low, ""))
        if resume is not None:
            position, job_id = json.loads(resume)
            start = max(start, bisect_right(rows.order, (position, job_id)))
        entries = rows.order[start : max(start, min(start + limit, bisect_left(rows.order, (high, ""))))]
        return IndexPage(
            nominees=tuple(rows.nominees[entry] for entry in entries),
            resume=json.dumps(entries[-1]) if len(entries) == limit else None,
        )

    def _read(self, partition: str) -> _Partition:
        while self._pending and self._pending[0][0] <= self._now_ms():
            heapq.heappop(self._pending)[2]()
        return self._partitions.setdefault(partition, _Partition())

    def _later(self, at_ms: int, change: Callable[[], None]) -> None:
        self._changes += 1
        heapq.heappush(self._pending, (at_ms, self._changes, change))

    def _add(self, nominee: Nominee | None) -> None:
        if nominee is not None:
            self._partitions.setdefault(nominee.key.partition, _Partition()).add(nominee)

    def _drop(self, key: IndexKey | None, job_id: str) -> None:
        if key is not None:
            self._partitions.setdefault(key.partition, _Partition()).drop(key, job_id)


class MemoryAllowances:
    """The live allowances, with the conditions that the DynamoDB transactions state."""

    def __init__(self) -> None:
        self._by_class: dict[str, Allowance] = {}

    def read(self, job_class: str) -> Allowance:
        return self._by_class.get(job_class) or Allowance(job_class=job_class)

    def withdraw(self, job_class: str) -> Allowance:
        return self._change(job_class, rows=0)

    def take(self, grant: Allowance, *, rows: int, at_ms: int) -> bool:
        """Rows of this very grant, as it was read."""
        now = self.read(grant.job_class)
        if now.run_id != grant.run_id or now.rows < rows:
            return False
        spent = list(now.spent)
        spent[now.slice_at(at_ms)] += rows
        self._change(grant.job_class, rows=now.rows - rows, spent=tuple(spent))
        return True

    def miss(self, job_class: str, rows: int) -> None:
        self._change(job_class, missed=self.read(job_class).missed + rows)

    def account(self, job_class: str, *, missed: int) -> None:
        """A plan takes the record away; what was missed since it was read stays for the next one."""
        still_missed = max(0, self.read(job_class).missed - missed)
        self._change(job_class, rows=0, granted=0, spent=(0,) * SLICES, missed=still_missed)

    def grant(self, job_class: str, grant: Grant) -> None:
        fields = asdict(grant)
        self._change(job_class, granted=grant.rows, granted_ms=fields.pop("at_ms"), **fields)

    def _change(self, job_class: str, **fields: Any) -> Allowance:
        self._by_class[job_class] = replace(self.read(job_class), **fields)
        return self._by_class[job_class]


class MemoryMatches:
    """The order of every match: its head and tail, and who stands at each place."""

    def __init__(self) -> None:
        self.orders: dict[tuple[str, str], Match] = {}
        self.places: dict[tuple[str, str, int], str] = {}

    def read(self, job_class: str, match_id: str) -> Match:
        return self.orders.get((job_class, match_id)) or Match(job_class=job_class, match_id=match_id)

    def job_id_at(self, match: Match, seq: int) -> str | None:
        return self.places.get((match.job_class, match.match_id, seq))

    def is_as(self, match: Match) -> bool:
        return self.read(match.job_class, match.match_id) == match

    def apply(self, step: MatchStep) -> None:
        match = step.after
        self.orders[match.job_class, match.match_id] = match
        if step.enters is not None:
            self.places[match.job_class, match.match_id, step.enters.seq] = step.enters.job_id


class MemoryRuns:
    """Runs, the class lock and control, with the conditions that the DynamoDB transactions state (rule 5)."""

    def __init__(self) -> None:
        self.runs: dict[RunKey, Run] = {}
        self.allowances = MemoryAllowances()
        self._controls: dict[str, Control] = {}

    def control(self, job_class: str) -> Control:
        return self._controls.get(job_class) or Control(job_class=job_class)

    @property
    def controls(self) -> list[Control]:
        return list(self._controls.values())

    def put(self, control: Control) -> None:
        """Every write of control raises its version, as the table's writes do."""
        self._controls[control.job_class] = replace(control, version=control.version + 1)

    def change(self, job_class: str, **fields: Any) -> None:
        self.put(replace(self.control(job_class), **fields))

    def stop(self, job_class: str, flag: str, signature: Flag | None) -> None:
        """Raise or lower the flag; raised, it ends the live allowance with it (I10)."""
        self.change(job_class, **{flag: signature})
        if signature is not None:
            self.allowances.withdraw(job_class)

    def admit(self, key: RunKey, *, source: str) -> bool:
        if key in self.runs:
            return False
        self.runs[key] = Run(key=key, state=RunState.OPEN, source=source)
        return True

    def take(self, key: RunKey, *, owner: str, now_ms: int, until_ms: int) -> TakeResult:
        """A run without a row ended long ago: the row expired. Taking a run twice with one nonce is taking it once."""
        run, control = self.runs.get(key), self.control(key.job_class)
        if run is None or run.state not in _UNFINISHED:
            return Ended()
        ours = control.lock_owner == owner and control.lock_run_id == key.run_id
        if control.lock_owner and control.lock_until_ms > now_ms and not ours:
            return Busy(run_id=control.lock_run_id)
        self.change(key.job_class, lock_owner=owner, lock_run_id=key.run_id, lock_until_ms=until_ms)
        self.runs[key] = replace(run, owner=owner)
        return Taken(planned=run.state is RunState.PLANNED)

    def plan(self, key: RunKey, *, owner: str, plan: TickMemory) -> bool:
        run, control = self.runs.get(key), self.control(key.job_class)
        if run is None or not self._owns(run, control, owner):
            return False
        if run.state is RunState.PLANNED:  # a lost answer: the plan is ours if it is this one
            return (run.budget, control.carry, control.planned_at_ms) == (plan.budget, plan.carry, plan.planned_at_ms)
        if run.state is not RunState.OPEN:
            return False
        self.runs[key] = replace(run, state=RunState.PLANNED, budget=plan.budget)
        self.change(key.job_class, carry=plan.carry, planned_at_ms=plan.planned_at_ms, recent=plan.recent)
        self.allowances.account(key.job_class, missed=plan.missed)
        return True

    def skip(self, key: RunKey, *, reason: str) -> bool:
        run = self.runs.get(key)
        if run is None or run.owner:
            return False
        if run.state is RunState.OPEN:
            self.runs[key] = replace(run, state=RunState.SKIPPED, reason=reason)
        return self.runs[key].state is RunState.SKIPPED

    def close(self, key: RunKey, *, owner: str, close: TickClose) -> bool:
        run, control = self.runs.get(key), self.control(key.job_class)
        if run is None:
            return False
        state = RunState.SKIPPED if close.skipped else RunState.CLOSED
        if run.state is state:  # a lost answer: nobody else closes a run that we own
            return run.owner == owner
        if run.state not in _UNFINISHED or not self._owns(run, control, owner):
            return False
        if not control.admits:
            close = close.without_grant
        self.runs[key] = replace(run, state=state, reason=close.skipped)
        if close.grant is not None:
            self.allowances.grant(key.job_class, close.grant)
        memory = {"recent": close.recent, "history": close.history, "measures": close.measures, "stage": close.stage}
        self.change(key.job_class, **memory, **_UNLOCKED)
        return True

    def open(self, job_class: str, *, minutes_ms: Sequence[int]) -> list[Run]:
        keys = (RunKey(job_class=job_class, minute_ms=minute_ms) for minute_ms in sorted(minutes_ms))
        return [self.runs[key] for key in keys if key in self.runs and self.runs[key].state in _UNFINISHED]

    def drop(self, key: RunKey, *, owner: str) -> None:
        control = self.control(key.job_class)
        if control.lock_owner == owner and control.lock_run_id == key.run_id:
            self.change(key.job_class, **_UNLOCKED)

    def _owns(self, run: Run, control: Control, owner: str) -> bool:
        return run.owner == owner and control.lock_owner == owner and control.lock_run_id == run.key.run_id


class Row(Struct, frozen=True):
    """A job and where it stands in the index; None is nowhere."""

    job: Job
    place: IndexKey | None


class Step(Struct, frozen=True):
    """One move that was made, for the checkers: what happened to which row, in order. `admit` is a creation as claimed,
    which the checkers hear of as one."""

    at_ms: int
    name: str
    before: Job
    after: Job


class Stores(Struct, frozen=True):
    """What the ledger holds beside rows, for whoever copies it."""

    outputs: dict[str, dict[str, Output]]
    matches: MemoryMatches
    runs: MemoryRuns
    learned: dict[str, Learned]


class MemoryLedger:
    """`writes` counts write requests by kind (moves by their name, lost ones included), `reads` the others, `lost` the
    moves that lost, and `index_rows` what the index showed. `on_step` and `on_new` are told of every change."""

    def __init__(
        self, now_ms: Callable[[], int], *, staleness: Staleness | None = None, keep_steps: bool = True
    ) -> None:
        self.rows: dict[str, Row] = {}
        self.states: Counter[State] = Counter()
        self.steps: list[Step] = []
        self.writes: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.index_rows = 0
        self.on_step: Callable[[Step], None] | None = None
        self.on_new: Callable[[Job], None] | None = None
        self._now_ms = now_ms
        self._keep_steps = keep_steps
        self._outputs: dict[str, dict[str, Output]] = {}
        self._index = MemoryIndex(now_ms, staleness)
        self._matches = MemoryMatches()
        self._runs = MemoryRuns()
        self._stats: dict[tuple[str, int], Counter[str]] = {}
        self._learned: dict[str, Learned] = {}

    @property
    def open_rows(self) -> int:
        """Rows that someone still has to move: what "drained" is the end of (fact F13)."""
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
        outputs = self._outputs.get(job_id, {})
        return [outputs[cursor] for cursor in sorted(outputs, key=lambda text: text.encode("utf-8", "surrogatepass"))]

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
        if not all(held) or entered or not self._matches.is_as(step.before):
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
            self._put_new(step.enters)
        self._matches.apply(step)
        return Stepped()

    # -- the index

    def count(self, partition: str, *, low: str, high: str) -> int:
        self.reads["count"] += 1
        rows = self._index.count(partition, low=low, high=high)
        self.index_rows += rows
        return rows

    def page(self, partition: str, *, low: str, high: str, limit: int, resume: str | None = None) -> IndexPage:
        self.reads["page"] += 1
        page = self._index.page(partition, low=low, high=high, limit=limit, resume=resume)
        self.index_rows += len(page.nominees)
        return page

    # -- runs and the class lock

    def admit_run(self, key: RunKey, *, source: str, now_ms: int) -> bool:
        self.writes["admit_run"] += 1
        return self._runs.admit(key, source=source)

    def take_run(self, key: RunKey, *, owner: str, now_ms: int, until_ms: int) -> TakeResult:
        self.writes["take_run"] += 1
        return self._runs.take(key, owner=owner, now_ms=now_ms, until_ms=until_ms)

    def plan_run(self, key: RunKey, *, owner: str, plan: TickMemory) -> bool:
        self.writes["plan_run"] += 1
        return self._runs.plan(key, owner=owner, plan=plan)

    def skip_run(self, key: RunKey, *, reason: str) -> bool:
        self.writes["skip_run"] += 1
        return self._runs.skip(key, reason=reason)

    def close_run(self, key: RunKey, *, owner: str, close: TickClose) -> bool:
        self.writes["close_run"] += 1
        return self._runs.close(key, owner=owner, close=close)

    def drop_lock(self, key: RunKey, *, owner: str) -> None:
        self.writes["drop_lock"] += 1
        self._runs.drop(key, owner=owner)

    def read_run(self, key: RunKey) -> Run | None:
        self.reads["read_run"] += 1
        return self._runs.runs.get(key)

    def open_runs(self, job_class: str, *, minutes_ms: Sequence[int]) -> list[Run]:
        self.reads["open_runs"] += 1
        return self._runs.open(job_class, minutes_ms=minutes_ms)

    def read_control(self, job_class: str) -> Control:
        self.reads["read_control"] += 1
        return self._runs.control(job_class)

    # -- control

    def set_pause(self, job_class: str, flag: Flag | None) -> None:
        self.writes["set_pause"] += 1
        self._runs.stop(job_class, "pause", flag)

    def pause_unless_paused(self, job_class: str, flag: Flag) -> bool:
        if self._runs.control(job_class).pause is None:
            self.set_pause(job_class, flag)
        return self._runs.control(job_class).pause == flag

    def set_halt(self, job_class: str, flag: Flag | None) -> None:
        self.writes["set_halt"] += 1
        self._runs.stop(job_class, "halt", flag)

    def resume(self, job_class: str, flag: Flag) -> None:
        self.writes["resume"] += 1
        self._runs.change(job_class, pause=None, halt=None, resumed=flag)

    def switch_webhook(self, job_class: str, flag: Flag, *, closed: bool) -> None:
        self.writes["switch_webhook"] += 1
        self._runs.change(job_class, webhook_closed=closed, webhook_switched=flag)

    def set_rate(self, job_class: str, override: RateOverride) -> None:
        self.writes["set_rate"] += 1
        self._runs.change(job_class, rate=override)

    def set_slots(self, job_class: str, override: SlotsOverride, *, before: SlotsOverride | None) -> bool:
        self.writes["set_slots"] += 1
        if self._runs.control(job_class).slots == before:
            self._runs.change(job_class, slots=override)
        return self._runs.control(job_class).slots == override

    # -- the live allowance

    def read_allowance(self, job_class: str) -> Allowance:
        self.reads["read_allowance"] += 1
        return self._runs.allowances.read(job_class)

    def withdraw(self, job_class: str) -> Allowance:
        self.writes["withdraw"] += 1
        return self._runs.allowances.withdraw(job_class)

    def miss(self, job_class: str, *, rows: int) -> None:
        self.writes["miss"] += 1
        self._runs.allowances.miss(job_class, rows)

    def spend(self, allowance: Allowance, jobs: Sequence[Job]) -> bool:
        self.writes["spend"] += len(jobs)
        rows = [self.rows.get(job.job_id) for job in jobs]
        if any(rows):  # our own earlier attempt, or others have these ids
            return all(row is not None and row.job == job for row, job in zip(rows, jobs, strict=True))
        taken = self._take(allowance, jobs)
        for job in jobs if taken else ():
            self._put_new(job)
        return taken

    # -- the learned rate

    def read_learned(self, upstream: str) -> Learned | None:
        self.reads["read_learned"] += 1
        return self._learned.get(upstream)

    def store_learned(self, upstream: str, learned: Learned, *, before: Learned | None) -> bool:
        self.writes["store_learned"] += 1
        now = self._learned.get(upstream)
        if (now and now.window_ms) == (before and before.window_ms):
            self._learned[upstream] = learned
        return self._learned.get(upstream) == learned

    # -- stats

    def add_stats(self, job_class: str, *, window_ms: int, shard: int, counters: Mapping[str, int]) -> None:
        self.writes["add_stats"] += 1
        self._stats.setdefault((job_class, window_ms), Counter()).update(counters)

    def read_stats(self, job_class: str, *, windows_ms: Sequence[int]) -> list[StatsWindow]:
        self.reads["read_stats"] += 1
        return [
            StatsWindow(start_ms=start_ms, counters=dict(self._stats.get((job_class, start_ms), {})))
            for start_ms in windows_ms
        ]

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
            self._put_new(job)
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
        moved = [(move, self.rows.get(move.job_id)) for move in step.moves]
        if not all(row is not None and self._is_ours(move, row) for move, row in moved):
            return False
        entered = None if step.enters is None else self.rows.get(step.enters.job_id)
        if step.enters is not None and (entered is None or entered.job != step.enters):
            return False
        return self._matches.is_as(step.after)

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

    def _put_new(self, job: Job) -> None:
        self._put(job, _key_of(place_of(job)))
        if job.state is State.QUEUED and self._keep_steps:
            self.steps.append(Step(self._now_ms(), "admit", replace(job, state=State.WAITING, epoch=0), job))
        if self.on_new is not None:
            self.on_new(job)

    def _put(self, job: Job, place: IndexKey | None) -> None:
        row = self.rows.get(job.job_id)
        if row is not None:
            self.states[row.job.state] -= 1
        self.states[job.state] += 1
        self.rows[job.job_id] = Row(job, place)
        self._index.shift(job, None if row is None else row.place, place)

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
