"""The `Ledger` on DynamoDB: one table, one object.

Each request's condition is a constant with a name and a small time-line: what was read ── (what another may do
meanwhile) ── what becomes of our write. `✗` is a write that is refused and answered, never an exception.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from botocore.exceptions import ClientError
from msgspec import structs

from shared.aws import keys
from shared.aws.clients import is_passing
from shared.aws.items import encode, item_of_job, job_of_item, load, present, stored
from shared.aws.keys import INDEX, PARTITION, POSITION, Attribute, Item
from shared.aws.table import (
    PAUSES_S,
    Answer,
    Conflict,
    Table,
    Unmet,
    Written,
    all_pages,
    batch_get,
    one_page,
    update_of,
)
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
from shared.domain.job import Created, Flag, Job, Output, same_work
from shared.domain.lifecycle import IndexFence, Lost, Move, MoveResult, OutputTaken, Won
from shared.domain.ordering import Match, MatchChanged, MatchStep, Stepped, StepResult
from shared.domain.stats import SHARDS, StatsWindow
from shared.domain.upstream import Learned
from shared.domain.work_index import IndexKey, IndexPage, KeepPlace, Nominee
from shared.errors import LedgerUnavailable

Request: TypeAlias = dict[str, Any]
"""The arguments of one UpdateItem or Put, without the table's name."""

# -- conditions: rows

ABSENT: Final = "attribute_not_exists(pk)"
"""no item ── INSERT ──▶ item: a second INSERT of the key, ours or another's, changes nothing."""

ROW_AS_READ: Final = "#state = :was_state AND #epoch = :was_epoch"
"""read ── (a claim, a release, an operator: another state or epoch) ── write ✗"""

CURSOR_AS_READ: Final = "#cursor = :was_cursor"
"""read at cursor ── (a twin's commit) ── write ✗"""

COPY_AS_READ: Final = "#copy = :was_copy"
"""message of copy n died ── (the sweep sent copy n+1) ── its death is written ✗"""

PLACE_AS_SEEN: Final = f"#{PARTITION} = :was_{PARTITION} AND #{POSITION} = :was_{POSITION}"
"""seen in the index, maybe long ago ── (any move of the row: the position holds epoch and copy) ── write ✗"""

# -- conditions: ordered matches

ORDER_AS_READ: Final = "#head_seq = :was_head_seq AND #tail_seq = :was_tail_seq"
"""read (head, tail) ── (a submission, an end, a skip) ── step ✗, read again"""

ORDER_NEVER_WRITTEN: Final = ABSENT
"""read: nobody in it ── (the first submission) ── step ✗, read again"""

# -- conditions: runs and the class lock

LOCK_FREE: Final = (
    "attribute_not_exists(#lock_owner) OR #lock_owner = :was_nobody OR #lock_until_ms <= :was_now"
    " OR (#lock_owner = :new_lock_owner AND #lock_run_id = :new_lock_run_id)"
)
"""take ── tick ── close: nobody's again. take ── crash ── until_ms: anybody's. take ── (answer lost) ── take: ours."""

LOCK_MINE: Final = "#lock_owner = :was_lock_owner AND #lock_run_id = :was_lock_run_id"
"""take ── (until_ms passed, another took it) ── close ✗"""

RUN_AS_READ: Final = "#state = :was_state AND #owner = :was_owner"
"""read ── (planned, closed or taken by another) ── take ✗"""

OPEN_AND_MINE: Final = RUN_AS_READ
"""take ── (lock expired, another took the run) ── plan ✗"""

NEVER_OWNED: Final = "#state = :was_state AND #owner = :was_nobody"
"""admit ── (a tick took it) ── skip ✗"""

UNCLOSED_AND_MINE: Final = "#owner = :was_owner AND (#state = :was_open OR #state = :was_planned)"
"""take ── (another took the run and closed it) ── close ✗"""

# -- conditions: control

ADMITS: Final = "attribute_not_exists(#pause) AND attribute_not_exists(#halt)"
"""plan ── (somebody pauses or halts the class) ── close with a grant ✗, close without one"""

NOT_PAUSED: Final = "attribute_not_exists(#pause)"
"""a rule broken ── (an operator pauses, with a reason of her own) ── our pause ✗"""

SLOTS_AS_READ: Final = "#slots = :was_slots"
"""read ── (another operator sets the slots) ── ours ✗"""

SLOTS_NEVER_SET: Final = "attribute_not_exists(#slots)"
"""read: never set ── (another operator sets the slots) ── ours ✗"""

# -- conditions: the live allowance and the learned rate

GRANT_AS_READ: Final = "#run_id = :was_run_id AND #rows >= :was_rows"
"""read the grant ── (withdrawn, zeroed by a pause, granted anew, spent by others) ── spend ✗"""

NEVER_LEARNED: Final = ABSENT
"""nothing stored ── (another class's tick decided on the window) ── ours ✗"""

SAME_WINDOW: Final = "#window_ms = :was_window_ms"
"""read after window n ── (another class's tick decided on window n+1) ── ours on n+1 ✗: one decrease a window"""

RUN_KEPT_S: Final = 35 * 24 * 3600
"""Long after any trigger could repeat the minute; then TTL may remove the row (it is never a timer, fact F23)."""

STATS_KEPT_S: Final = 14 * 24 * 3600
"""Counters of a minute may go after two weeks: nothing reads that far back."""

_STATEMENTS: Final = 25
"""The most statements that BatchExecuteStatement takes."""

_DUPLICATE: Final = frozenset({"DuplicateItem", "ConditionalCheckFailed"})
"""What a statement's error says of an id that exists."""

_TAKES: Final = 4
"""How often a run is read again that others moved between the read and the transaction."""

_BURSTS: Final = 4
"""How often the whole patience with conflicts is spent before the end of an allowance is given up."""

_NOBODY: Final = ""
"""The owner of a lock or a run that nobody holds."""

_UNLOCKED: Final[Mapping[str, object]] = {"lock_owner": _NOBODY, "lock_run_id": "", "lock_until_ms": 0}

_SPENT: Final = tuple(f"spent_{place}" for place in range(SLICES))
"""The attributes that count what was spent of an allowance: one a slice, so that submitters can add to them."""

_COUNTER: Final = "c_"
"""Begins a counter's attribute: a kind may name a counter anything, also `pk`."""


class DynamoLedger:
    """`shared.ports.Ledger`, which says what each method promises."""

    def __init__(self, table: Table) -> None:
        self._table = table

    # -- rows

    def create(self, jobs: Sequence[Job]) -> list[Created]:
        """Conditional INSERTs, 25 to a request (BatchWriteItem has no conditions); a single job is one PutItem."""
        results: dict[int, Created] = {}
        existing: list[int] = []
        for batch in _batches(jobs):
            refused = self._put(jobs, batch) if len(batch) == 1 else self._insert(jobs, batch)
            existing += refused
            results |= dict.fromkeys(set(batch) - set(refused), Created.CREATED)
        if existing:
            wanted = [keys.job(job_id) for job_id in sorted({jobs[index].job_id for index in existing})]
            rows = {job.job_id: job for job in map(job_of_item, batch_get(self._table, wanted, consistent=True))}
            results |= {index: _recognised(jobs[index], rows) for index in existing}
        return [results[index] for index in range(len(jobs))]

    def read_job(self, job_id: str) -> Job | None:
        item = self._table.get(keys.job(job_id))
        return None if item is None else job_of_item(item)

    def outputs(self, job_id: str) -> list[Output]:
        partition, prefix = keys.outputs(job_id)
        pages = all_pages(
            self._table,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :out)",
            ExpressionAttributeValues={":pk": partition, ":out": prefix},
            ConsistentRead=True,
        )
        return [Output(cursor=keys.cursor_of(item), body=item["body"]["S"]) for page in pages for item in page["Items"]]

    def _put(self, jobs: Sequence[Job], batch: Sequence[int]) -> list[int]:
        answer = self._table.put(item_of_job(jobs[batch[0]]), condition=ABSENT)
        return list(batch) if isinstance(answer, Unmet) else []

    def _insert(self, jobs: Sequence[Job], batch: Sequence[int]) -> list[int]:
        """Insert the batch; returns the positions whose id exists already. What was throttled is sent again."""
        existing: list[int] = []
        left = list(batch)
        for pause_s in (*PAUSES_S, None):
            statements = [self._statement(item_of_job(jobs[index])) for index in left]
            answers = self._table.call("batch_execute_statement", Statements=statements)["Responses"]
            again: list[int] = []
            for index, answer in zip(left, answers, strict=True):
                code = answer.get("Error", {}).get("Code", "")
                if code in _DUPLICATE:
                    existing.append(index)
                elif is_passing(code):
                    again.append(index)
                elif code:
                    raise ClientError({"Error": answer["Error"]}, "BatchExecuteStatement")
            left = again
            if not left:
                return existing
            if pause_s is not None:
                self._table.pause(pause_s)
        raise LedgerUnavailable("throttled")

    def _statement(self, item: Item) -> Request:
        values = ", ".join(f"'{name}': ?" for name in item)
        statement = f'INSERT INTO "{self._table.name}" VALUE {{{values}}}'
        return {"Statement": statement, "Parameters": list(item.values())}

    # -- the index

    def count(self, partition: str, *, low: str, high: str) -> int:
        request = _between(partition, low, high)
        if request is None:
            return 0
        return sum(page["Count"] for page in all_pages(self._table, Select="COUNT", **request))

    def page(self, partition: str, *, low: str, high: str, limit: int, resume: str | None = None) -> IndexPage:
        request = _between(partition, low, high)
        if request is None:
            return IndexPage(nominees=(), resume=None)
        start = None if resume is None else _start_of(partition, resume)
        page, last = one_page(self._table, resume=start, Limit=limit, **request)
        nominees = tuple(map(_nominee, page["Items"]))
        return IndexPage(nominees=nominees, resume=None if last is None else _resume_of(last))

    # -- moves

    def move(self, move: Move) -> MoveResult:
        request = request_of(move)
        if move.output is not None:
            return self._with_output(move, request)
        answer = self._table.update(request, returns="ALL_NEW")
        if isinstance(answer, Written):
            return Won(job=job_of_item(answer.item))
        return _won_if_ours(move, answer.old)

    def _with_output(self, move: Move, request: Request) -> MoveResult:
        """Row and output in one transaction, which cannot return the new row: it is read afterwards.

        A row that by then is not as this move left it was moved on by someone else, and `Lost` is the answer that
        stops the caller: to go on with a row that carries another's epoch would break the fence.
        """
        refused = self._table.transact(("Update", request), ("Put", _put_of_output(move)))
        if refused is not None and isinstance(refused[0], Unmet):
            return _won_if_ours(move, refused[0].old)
        item = self._table.get(keys.job(move.job_id)) or {}
        if refused is not None and _fence_holds(move, item) and not _is_ours(move, item):
            return OutputTaken()
        return _won_if_ours(move, item)

    # -- ordered matches

    def read_match(self, job_class: str, match_id: str) -> Match:
        item = self._table.get(keys.match(job_class, match_id)) or {}
        return load(Match, item, job_class=job_class, match_id=match_id)

    def job_id_at(self, match: Match, seq: int) -> str | None:
        item = self._table.get(keys.place_in_match(match.job_class, match.match_id, seq))
        return None if item is None else str(item["job_id"]["S"])

    def step_match(self, step: MatchStep, *, spends: Allowance | None = None) -> StepResult:
        moves = [("Update", request_of(move)) for move in step.moves]
        outputs = [("Put", _put_of_output(move)) for move in step.moves if move.output is not None]
        entering, spent = [], []
        if step.enters is not None:
            entering = _entering(step.after, step.enters)
            if spends is not None:
                spent = [("Update", _taking(spends, rows=1, at_ms=step.enters.sent_at_ms))]
        try:
            refused = self._table.transact(*moves, *outputs, ("Update", _order(step)), *entering, *spent)
        except Conflict:
            if not spent:
                raise
            return MatchChanged()  # most likely other submitters at the allowance: the row can do without it
        if refused is None or self._is_made(step):
            return Stepped()
        return _why_not_stepped(refused, moves=len(moves), outputs=len(outputs))

    def _is_made(self, step: MatchStep) -> bool:
        """Whether an earlier attempt of ours made this very step and its answer was lost: all is as it would be now."""
        rows = [(move, self._table.get(keys.job(move.job_id)) or {}) for move in step.moves]
        entered = step.enters
        return (
            all(_is_ours(move, row) for move, row in rows)
            and (entered is None or self._table.get(keys.job(entered.job_id)) == item_of_job(entered))
            and self.read_match(step.after.job_class, step.after.match_id) == step.after
        )

    # -- runs and the class lock

    def admit_run(self, key: RunKey, *, source: str, now_ms: int) -> bool:
        """A put with a nonce: an SDK retry after a lost answer finds its own, and must not look like a duplicate.

        Not a transaction, whose token would do the same: fifty callers of one minute would cancel one another's.
        """
        nonce = encode(uuid.uuid4().hex)
        item = item_of_run(Run(key=key, state=RunState.OPEN, source=source), since_ms=now_ms) | {"nonce": nonce}
        answer = self._table.put(item, condition=ABSENT)
        return isinstance(answer, Written) or answer.old.get("nonce") == nonce

    def take_run(self, key: RunKey, *, owner: str, now_ms: int, until_ms: int) -> TakeResult:
        """A run that does not exist counts as ended: it was never admitted, or long ago."""
        lock = _control(
            key.job_class,
            {"lock_owner": owner, "lock_run_id": key.run_id, "lock_until_ms": until_ms},
            condition=LOCK_FREE,
            was={"nobody": _NOBODY, "now": now_ms},
        )
        for _ in range(_TAKES):
            run = self.read_run(key)
            if run is None or run.state not in (RunState.OPEN, RunState.PLANNED):
                return Ended()
            was = {"state": run.state, "owner": run.owner}
            own = update_of(keys.run(key), values={"owner": owner}, condition=RUN_AS_READ, was=was)
            refused = self._table.transact(("Update", lock), ("Update", own))
            if refused is None:
                return Taken(planned=run.state is RunState.PLANNED)
            if isinstance(refused[0], Unmet):
                return Busy(run_id=str(refused[0].old["lock_run_id"]["S"]))
            # Only the run changed between the read and the transaction: look again.
        raise LedgerUnavailable("conflict")

    def plan_run(self, key: RunKey, *, owner: str, plan: TickMemory) -> bool:
        memory = {"carry": plan.carry, "planned_at_ms": plan.planned_at_ms, "recent": plan.recent}
        planned, was = {"state": RunState.PLANNED, "budget": plan.budget}, {"state": RunState.OPEN, "owner": owner}
        run = update_of(keys.run(key), values=planned, condition=OPEN_AND_MINE, was=was)
        control, record = _owned_control(key, owner, memory), _accounted(key.job_class, missed=plan.missed)
        if self._table.transact(("Update", control), ("Update", run), ("Update", record)) is None:
            return True
        run_now, control_now = self.read_run(key), self.read_control(key.job_class)
        # A plan is ours if the run is ours and it says what we would have written: the answer was lost.
        return (
            run_now is not None
            and (run_now.state, run_now.owner, run_now.budget) == (RunState.PLANNED, owner, plan.budget)
            and (control_now.lock_owner, control_now.lock_run_id) == (owner, key.run_id)
            and (control_now.carry, control_now.planned_at_ms) == (plan.carry, plan.planned_at_ms)
        )

    def skip_run(self, key: RunKey, *, reason: str) -> bool:
        """Skipped already counts as done: two callers that skip the same run want the same."""
        values = {"state": RunState.SKIPPED, "reason": reason}
        was = {"state": RunState.OPEN, "nobody": _NOBODY}
        answer = self._table.update(update_of(keys.run(key), values=values, condition=NEVER_OWNED, was=was))
        return isinstance(answer, Written) or answer.old.get("state") == encode(RunState.SKIPPED)

    def close_run(self, key: RunKey, *, owner: str, close: TickClose) -> bool:
        state = RunState.SKIPPED if close.skipped else RunState.CLOSED
        was = {"owner": owner, "open": RunState.OPEN, "planned": RunState.PLANNED}
        values = {"state": state, "reason": close.skipped}
        run_ends = ("Update", update_of(keys.run(key), values=values, condition=UNCLOSED_AND_MINE, was=was))
        if close.grant is not None:
            release = _release(key, owner, close, condition=f"{LOCK_MINE} AND {ADMITS}")
            grant = granted(key.job_class, close.grant)
            if self._table.transact(("Update", release), run_ends, ("Update", grant)) is None:
                return True
            # Paused or halted, if the next attempt holds; if not, the lock is another's, or this one was made already.
            close = close.without_grant
        if self._table.transact(("Update", _release(key, owner, close)), run_ends) is None:
            return True
        run = self.read_run(key)
        # Only its owner closes a run: closed and ours means that our own earlier attempt did it.
        return run is not None and (run.state, run.owner) == (state, owner)

    def drop_lock(self, key: RunKey, *, owner: str) -> None:
        self._table.update(_owned_control(key, owner, _UNLOCKED))

    def read_run(self, key: RunKey) -> Run | None:
        item = self._table.get(keys.run(key))
        return None if item is None else load(Run, item)

    def open_runs(self, job_class: str, *, minutes_ms: Sequence[int]) -> list[Run]:
        wanted = [keys.run(RunKey(job_class=job_class, minute_ms=minute_ms)) for minute_ms in minutes_ms]
        runs = [load(Run, item) for item in batch_get(self._table, wanted, consistent=True)]
        unclosed = [run for run in runs if run.state in (RunState.OPEN, RunState.PLANNED)]
        return sorted(unclosed, key=lambda run: run.key.minute_ms)

    # -- control

    def read_control(self, job_class: str) -> Control:
        return load(Control, self._table.get(keys.control(job_class)) or {}, job_class=job_class)

    def set_pause(self, job_class: str, flag: Flag | None) -> None:
        self._stop(job_class, "pause", flag)

    def pause_unless_paused(self, job_class: str, flag: Flag) -> bool:
        pause = self._stop(job_class, "pause", flag, condition=NOT_PAUSED)
        return pause is None or pause == encode(flag)

    def set_halt(self, job_class: str, flag: Flag | None) -> None:
        self._stop(job_class, "halt", flag)

    def resume(self, job_class: str, flag: Flag) -> None:
        self._table.update(_control(job_class, {"pause": None, "halt": None, "resumed": flag}))

    def switch_webhook(self, job_class: str, flag: Flag, *, closed: bool) -> None:
        self._table.update(_control(job_class, {"webhook_closed": closed, "webhook_switched": flag}))

    def set_rate(self, job_class: str, override: RateOverride) -> None:
        self._table.update(_control(job_class, {"rate": override}))

    def set_slots(self, job_class: str, override: SlotsOverride, *, before: SlotsOverride | None) -> bool:
        condition = SLOTS_NEVER_SET if before is None else SLOTS_AS_READ
        was = {} if before is None else {"slots": before}
        answer = self._table.update(_control(job_class, {"slots": override}, condition=condition, was=was))
        return isinstance(answer, Written) or answer.old.get("slots") == encode(override)

    def _stop(self, job_class: str, name: str, flag: Flag | None, *, condition: str = "") -> Attribute | None:
        """Raise or lower a flag; what stands there instead, if the condition does not hold.

        The allowance ends with the flag's own transaction. It is ended by itself before: submitters then find nothing
        left, and do not contend with the transaction. A death in between has only let rows wait for their tick.
        """
        request = _control(job_class, {name: flag}, condition=condition)
        if flag is None:
            self._table.update(request)
            return None
        self.withdraw(job_class)
        refused = self._table.transact(("Update", request), ("Update", _withdrawn(job_class)))
        return refused[0].old[name] if refused is not None and isinstance(refused[0], Unmet) else None

    # -- the live allowance: an item of its own, so that submitters never wait for the class lock

    def read_allowance(self, job_class: str) -> Allowance:
        return _allowance(job_class, self._table.get(keys.allowance(job_class)) or {})

    def withdraw(self, job_class: str) -> Allowance:
        """Of many submitters at the allowance each gives up within half a second: a tick or a pause outlasts them, or a
        burst of matches that end would cost the class its tick."""
        for _ in range(_BURSTS):
            with suppress(Conflict):
                answer = self._table.update(_withdrawn(job_class), returns="ALL_NEW")
                assert not isinstance(answer, Unmet), "it has no condition"
                return _allowance(job_class, answer.item)
        raise Conflict("conflict")

    def spend(self, allowance: Allowance, jobs: Sequence[Job]) -> bool:
        """A conflict with another submitter is an answer, too: the rows then wait for their tick."""
        items = [item_of_job(job) for job in jobs]
        puts = [("Put", {"Item": item, "ConditionExpression": ABSENT}) for item in items]
        taking = _taking(allowance, rows=len(jobs), at_ms=jobs[0].sent_at_ms)
        try:
            refused = self._table.transact(*puts, ("Update", taking))
        except Conflict:
            return False
        # Created only together with the decrement: rows that are as we would write them are an earlier attempt's.
        return refused is None or all(
            isinstance(answer, Unmet) and answer.old == item for answer, item in zip(refused, items, strict=False)
        )

    def miss(self, job_class: str, *, rows: int) -> None:
        self._table.update(update_of(keys.allowance(job_class), add={"missed": rows}), once=True)

    # -- the learned rate: one item an upstream, one decision a window

    def read_learned(self, upstream: str) -> Learned | None:
        item = self._table.get(keys.learned(upstream))
        return None if item is None else load(Learned, item)

    def store_learned(self, upstream: str, learned: Learned, *, before: Learned | None) -> bool:
        request = update_of(
            keys.learned(upstream),
            values=structs.asdict(learned),
            condition=NEVER_LEARNED if before is None else SAME_WINDOW,
            was={} if before is None else {"window_ms": before.window_ms},
        )
        answer = self._table.update(request)
        return isinstance(answer, Written) or load(Learned, answer.old) == learned

    # -- stats: counters that are only ever added to, one item per class, minute and shard

    def add_stats(self, job_class: str, *, window_ms: int, shard: int, counters: Mapping[str, int]) -> None:
        if not 0 <= shard < SHARDS:
            raise ValueError("a shard that read_stats would not read")
        added = [(f"{_COUNTER}{name}", amount) for name, amount in counters.items() if amount]
        if not added:
            return
        # Numbered and not named in the expression: a counter's name may hold what no placeholder may.
        request = {
            "Key": keys.stats(job_class, window_ms, shard),
            "UpdateExpression": "SET expires_s = :expires ADD "
            + ", ".join(f"#{number} :{number}" for number in range(len(added))),
            "ExpressionAttributeNames": {f"#{number}": name for number, (name, _) in enumerate(added)},
            "ExpressionAttributeValues": {":expires": encode(window_ms // 1000 + STATS_KEPT_S)}
            | {f":{number}": encode(amount) for number, (_, amount) in enumerate(added)},
        }
        self._table.update(request, once=True)

    def read_stats(self, job_class: str, *, windows_ms: Sequence[int]) -> list[StatsWindow]:
        """Eventually consistent: half the price, and nothing is ever conditional on a counter."""
        sums: dict[int, Counter[str]] = {window_ms: Counter() for window_ms in windows_ms}
        places = [(window_ms, keys.stats(job_class, window_ms, shard)) for window_ms in sums for shard in range(SHARDS)]
        window_of = {key["pk"]["S"]: window_ms for window_ms, key in places}
        for item in batch_get(self._table, [key for _, key in places], consistent=False):
            for name, attribute in item.items():
                if name.startswith(_COUNTER):
                    sums[window_of[item["pk"]["S"]]][name.removeprefix(_COUNTER)] += int(attribute["N"])
        return [StatsWindow(start_ms=window_ms, counters=dict(sums[window_ms])) for window_ms in windows_ms]


# -- rows and the index


def _batches(jobs: Sequence[Job]) -> Iterator[list[int]]:
    """Positions in batches; the same id twice goes into two, or DynamoDB would refuse both."""
    batch: list[int] = []
    ids: set[str] = set()
    for index, job in enumerate(jobs):
        if len(batch) == _STATEMENTS or job.job_id in ids:
            yield batch
            batch, ids = [], set()
        batch.append(index)
        ids.add(job.job_id)
    if batch:
        yield batch


def _recognised(job: Job, rows: Mapping[str, Job]) -> Created:
    """What to say of an id that exists: our own write (its answer was lost), the same job again, or another one."""
    row = rows.get(job.job_id)
    if row is None:
        raise LedgerUnavailable("a row vanished")
    if job.nonce and row.nonce == job.nonce and row.created_ms == job.created_ms:
        return Created.CREATED
    return Created.EXISTING if same_work(row, job) else Created.DIFFERENT


def _between(partition: str, low: str, high: str) -> Request | None:
    """low <= position < high, or None where that is empty (DynamoDB refuses an empty range, and an empty key)."""
    first, last = low or " ", _just_below(high)
    if not last or first > last:
        return None
    return {
        "IndexName": INDEX,
        "KeyConditionExpression": f"{PARTITION} = :partition AND {POSITION} BETWEEN :low AND :high",
        "ExpressionAttributeValues": {":partition": {"S": partition}, ":low": {"S": first}, ":high": {"S": last}},
    }


def _just_below(high: str) -> str:
    """The end of what sorts below `high`: BETWEEN includes its ends, and a position is made of digits and #."""
    return f"{high[:-1]}{chr(ord(high[-1]) - 1)}~" if high else ""


def _nominee(item: Item) -> Nominee:
    return Nominee(
        job_id=keys.job_id_of(item),
        match_id=item["match_id"]["S"],
        epoch=int(item["epoch"]["N"]),
        key=IndexKey(partition=item[PARTITION]["S"], position=item[POSITION]["S"]),
    )


def _resume_of(last: Item) -> str:
    return json.dumps([keys.job_id_of(last), last[POSITION]["S"]])


def _start_of(partition: str, resume: str) -> Item:
    job_id, position = json.loads(resume)
    return keys.job(job_id) | {PARTITION: {"S": partition}, POSITION: {"S": position}}


# -- moves


def request_of(move: Move) -> Request:
    condition, was = _condition(move)
    return update_of(keys.job(move.job_id), values=_target(move), condition=condition, was=was)


def _condition(move: Move) -> tuple[str, dict[str, object]]:
    fence = move.fence
    if isinstance(fence, IndexFence):
        return PLACE_AS_SEEN, {PARTITION: fence.key.partition, POSITION: fence.key.position}
    parts: list[str] = [ROW_AS_READ]
    was: dict[str, object] = {"state": fence.state, "epoch": fence.epoch}
    if fence.cursor is not None:
        parts.append(CURSOR_AS_READ)
        was["cursor"] = fence.cursor
    if fence.copy is not None:
        parts.append(COPY_AS_READ)
        was["copy"] = fence.copy
    return " AND ".join(parts), was


def _target(move: Move) -> dict[str, object]:
    """Every attribute that this move writes, as it stands in the row afterwards; None where it is absent then."""
    target = dict(move.changes)
    if move.nonce is not None:
        target["nonce"] = move.nonce
    if not isinstance(move.place, KeepPlace):
        key = move.place if isinstance(move.place, IndexKey) else None
        target[PARTITION] = key.partition if key else None
        target[POSITION] = key.position if key else None
    return target


def _put_of_output(move: Move) -> Request:
    assert move.output is not None
    item = keys.output(move.job_id, move.output.cursor) | {"body": encode(move.output.body)}
    return {"Item": item, "ConditionExpression": ABSENT}


def _won_if_ours(move: Move, item: Item) -> MoveResult:
    return Won(job=job_of_item(item)) if _is_ours(move, item) else Lost()


def _is_ours(move: Move, item: Item) -> bool:
    """Whether the row is as this move would have left it, nonce included: our own earlier attempt won (fact F16)."""
    return bool(item) and all(item.get(name) == value for name, value in present(_target(move)).items())


def _fence_holds(move: Move, item: Item) -> bool:
    """Whether the condition of `request_of` would hold for the row as it is now."""
    _, was = _condition(move)
    return bool(item) and all(item.get(name) == encode(value) for name, value in was.items())


# -- ordered matches


def _order(step: MatchStep) -> Request:
    """The order as the step leaves it. The first submission finds none: no item, which reads as an empty order."""
    before, after = step.before, step.after
    empty = before.tail_seq == 0
    return update_of(
        keys.match(after.job_class, after.match_id),
        values={"head_seq": after.head_seq, "tail_seq": after.tail_seq},
        condition=ORDER_NEVER_WRITTEN if empty else ORDER_AS_READ,
        was={} if empty else {"head_seq": before.head_seq, "tail_seq": before.tail_seq},
    )


def _entering(match: Match, job: Job) -> list[tuple[str, Request]]:
    """The row, if its id is free, and its place in the order, which a replacement takes over."""
    place = keys.place_in_match(match.job_class, match.match_id, job.seq) | {"job_id": encode(job.job_id)}
    return [("Put", {"Item": item_of_job(job), "ConditionExpression": ABSENT}), ("Put", {"Item": place})]


def _why_not_stepped(answers: list[Answer], *, moves: int, outputs: int) -> StepResult:
    """By whose condition failed: the first row stops the caller, the order and any later row make it read again."""
    unmet = [isinstance(answer, Unmet) for answer in answers]
    if moves and unmet[0]:
        return Lost()
    others = unmet[1:moves] + unmet[moves + outputs :]
    return MatchChanged() if any(others) else OutputTaken()


# -- runs and control


def item_of_run(run: Run, *, since_ms: int) -> Item:
    """A whole run, for its creation. It expires long after `since_ms`."""
    return keys.run(run.key) | stored(structs.asdict(run)) | {"expires_s": encode(since_ms // 1000 + RUN_KEPT_S)}


def _control(
    job_class: str,
    values: Mapping[str, object],
    *,
    condition: str = "",
    was: Mapping[str, object] | None = None,
) -> Request:
    """Every write of control raises its version."""
    return update_of(keys.control(job_class), values=values, add={"version": 1}, condition=condition, was=was)


def _owned_control(key: RunKey, owner: str, values: Mapping[str, object], *, condition: str = LOCK_MINE) -> Request:
    was = {"lock_owner": owner, "lock_run_id": key.run_id}
    return _control(key.job_class, values, condition=condition, was=was)


def _release(key: RunKey, owner: str, close: TickClose, *, condition: str = LOCK_MINE) -> Request:
    memory = {"recent": close.recent, "history": close.history, "measures": close.measures, "stage": close.stage}
    return _owned_control(key, owner, {**memory, **_UNLOCKED}, condition=condition)


# -- the live allowance


def _allowance(job_class: str, item: Item) -> Allowance:
    spent = tuple(int(item[name]["N"]) if name in item else 0 for name in _SPENT)
    return load(Allowance, item, job_class=job_class, spent=spent)


def _withdrawn(job_class: str) -> Request:
    """Nothing more may be spent; what was granted and spent stays on record."""
    return update_of(keys.allowance(job_class), values={"rows": 0})


def _accounted(job_class: str, *, missed: int) -> Request:
    """The record as a plan leaves it. `missed` is taken off: it may have grown since it was read."""
    values: dict[str, object] = {"rows": 0, "granted": 0} | dict.fromkeys(_SPENT)
    return update_of(keys.allowance(job_class), values=values, add={"missed": -missed})


def granted(job_class: str, grant: Grant) -> Request:
    values: dict[str, object] = structs.asdict(grant)
    values |= {"granted": grant.rows, "granted_ms": values.pop("at_ms")}
    return update_of(keys.allowance(job_class), values=values)


def _taking(allowance: Allowance, *, rows: int, at_ms: int) -> Request:
    """Take rows from this very grant, and count them where the next tick looks for them."""
    return update_of(
        keys.allowance(allowance.job_class),
        add={"rows": -rows, _SPENT[allowance.slice_at(at_ms)]: rows},
        condition=GRANT_AS_READ,
        was={"run_id": allowance.run_id, "rows": rows},
    )
