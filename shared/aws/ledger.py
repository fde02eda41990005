"""The live allowance: an item of its own, so that submitters never wait for the class lock (DESIGN section 7).

Moves: one conditional write of one row, and the question whose write it was that made the condition fail.

The lines of ordered matches: one item for head and tail, one per place (I5).

What was learned of an upstream's rate: one item, one decision a window.

Rows: creating and reading them, their outputs, and the index that nominates them.

Runs, the class lock and control (rule 5): who may tick, and what a tick leaves behind.

Stats: counters that are only ever added to, one item per class, minute and shard. They expire.

The `Ledger` on DynamoDB, put together from its parts.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from botocore.exceptions import ClientError

from shared.aws import keys
from shared.aws.clients import is_passing
from shared.aws.items import encode, item_of_job, job_of_item, load, present
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
from shared.domain.lifecycle import IndexFence, Lost, Move, MoveResult, OutputTaken, RowFence, Won
from shared.domain.ordering import Match, MatchChanged, MatchStep, Stepped, StepResult
from shared.domain.stats import SHARDS, StatsWindow
from shared.domain.upstream import Learned
from shared.domain.work_index import IndexKey, IndexPage, KeepPlace, Nominee
from shared.errors import LedgerUnavailable

GRANT_AS_READ: Final = "#run_id = :was_run_id AND #rows >= :was_rows"
"""read the grant ── (withdrawn, zeroed by a pause, granted anew, spent by others) ── spend ✗"""

_BURSTS: Final = 4
"""How often the whole patience with conflicts is spent before an end is given up."""

_SPENT: Final = tuple(f"spent_{place}" for place in range(SLICES))


class Allowances:
    """The part of the `Ledger` that knows the live allowance."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def read_allowance(self, job_class: str) -> Allowance:
        return _allowance(job_class, self._table.get(keys.allowance(job_class)) or {})

    def withdraw(self, job_class: str) -> Allowance:
        return _allowance(job_class, end(self._table, job_class))

    def spend(self, allowance: Allowance, jobs: Sequence[Job]) -> bool:
        """A conflict with another submitter is an answer, too: the rows then wait for their tick."""
        items = [item_of_job(job) for job in jobs]
        puts = [("Put", {"Item": item, "ConditionExpression": ABSENT}) for item in items]
        taken = taking(allowance, rows=len(jobs), at_ms=jobs[0].sent_at_ms)
        try:
            refused = self._table.transact(*puts, ("Update", taken))
        except Conflict:
            return False
        if refused is None:
            return True
        # Created only together with the decrement: rows that are as we would write them are an earlier attempt's.
        return all(
            isinstance(answer, Unmet) and answer.old == item for answer, item in zip(refused, items, strict=False)
        )

    def miss(self, job_class: str, *, rows: int) -> None:
        self._table.update(update_of(keys.allowance(job_class), values={}, add={"missed": rows}), once=True)


def end(table: Table, job_class: str) -> Item:
    """Nothing more may be spent; returns the record. Of many submitters at it each gives up within half a second: a
    tick or a pause outlasts them, or a burst of matches that end would cost the class its tick."""
    for _ in range(_BURSTS):
        with suppress(Conflict):
            answer = table.update(ended(job_class), returns="ALL_NEW")
            assert not isinstance(answer, Unmet), "it has no condition"
            return answer.item
    raise Conflict("conflict")


def ended(job_class: str) -> dict[str, Any]:
    """Nothing more may be spent; what was granted and spent stays on record."""
    return update_of(keys.allowance(job_class), values=present({"rows": 0}))


def accounted(job_class: str, *, missed: int) -> dict[str, Any]:
    """The record as a plan leaves it. `missed` is taken off: it may have grown since it was read."""
    values = present({"rows": 0, "granted": 0} | dict.fromkeys(_SPENT))
    return update_of(keys.allowance(job_class), values=values, add={"missed": -missed})


def granted(job_class: str, grant: Grant) -> dict[str, Any]:
    values = {
        "rows": grant.rows,
        "granted": grant.rows,
        "run_id": grant.run_id,
        "granted_ms": grant.at_ms,
        "hand_until_ms": grant.hand_until_ms,
        "slice_ms": grant.slice_ms,
    }
    return update_of(keys.allowance(job_class), values=present(values))


def taking(allowance: Allowance, *, rows: int, at_ms: int) -> dict[str, Any]:
    """Take rows from this very grant, and count them where the next tick looks for them."""
    return update_of(
        keys.allowance(allowance.job_class),
        values={},
        add={"rows": -rows, _SPENT[allowance.slice_at(at_ms)]: rows},
        condition=GRANT_AS_READ,
        was={"run_id": encode(allowance.run_id), "rows": encode(rows)},
    )


def _allowance(job_class: str, item: Item) -> Allowance:
    spent = tuple(int(item[name]["N"]) if name in item else 0 for name in _SPENT)
    return load(Allowance, item, job_class=job_class, spent=spent)


ROW_AS_READ: Final = "#state = :was_state AND #epoch = :was_epoch"
"""read ── (a claim, a release, an operator: another state or epoch) ── write ✗"""

CURSOR_AS_READ: Final = "#cursor = :was_cursor"
"""read at cursor ── (a twin's commit) ── write ✗"""

COPY_AS_READ: Final = "#copy = :was_copy"
"""message of copy n died ── (the sweep sent copy n+1) ── its death is written ✗"""

PLACE_AS_SEEN: Final = f"#{PARTITION} = :was_{PARTITION} AND #{POSITION} = :was_{POSITION}"
"""seen in the index, maybe long ago ── (any move of the row: the position holds epoch and copy) ── write ✗"""


class Moves:
    """The part of the `Ledger` that moves rows."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def move(self, move: Move) -> MoveResult:
        request = request_of(move)
        if move.output is not None:
            return self._with_output(move, request)
        answer = self._table.update(request, returns="ALL_NEW")
        if isinstance(answer, Written):
            return Won(job=job_of_item(answer.item))
        return _judged(move, answer.old)

    def _with_output(self, move: Move, request: dict[str, Any]) -> MoveResult:
        """Row and output in one transaction, which cannot return the new row: it is read afterwards.

        A row that by then is not as this move left it was moved on by someone else, and `Lost` is the answer that
        stops the caller: to go on with a row that carries another's epoch would break the fence.
        """
        refused = self._table.transact(("Update", request), ("Put", put_of_output(move)))
        if refused is not None and isinstance(refused[0], Unmet):
            return _judged(move, refused[0].old)
        item = self._table.get(keys.job(move.job_id)) or {}
        if refused is not None and _fence_holds(move, item) and not is_own(move, item):
            return OutputTaken()
        return _judged(move, item)


def request_of(move: Move) -> dict[str, Any]:
    condition, was = _condition(move)
    return update_of(keys.job(move.job_id), values=_target(move), condition=condition, was=was)


def _condition(move: Move) -> tuple[str, dict[str, Attribute]]:
    if isinstance(move.fence, IndexFence):
        key = move.fence.key
        return PLACE_AS_SEEN, {PARTITION: encode(key.partition), POSITION: encode(key.position)}
    parts, was = [ROW_AS_READ], {"state": encode(move.fence.state), "epoch": encode(move.fence.epoch)}
    if move.fence.cursor is not None:
        parts.append(CURSOR_AS_READ)
        was["cursor"] = encode(move.fence.cursor)
    if move.fence.copy is not None:
        parts.append(COPY_AS_READ)
        was["copy"] = encode(move.fence.copy)
    return " AND ".join(parts), was


def _target(move: Move) -> dict[str, Attribute | None]:
    """Every attribute that this move writes, as it stands in the row afterwards; None where it is absent then."""
    target = present(move.changes)
    if move.nonce is not None:
        target["nonce"] = encode(move.nonce)
    if not isinstance(move.place, KeepPlace):
        key = move.place if isinstance(move.place, IndexKey) else None
        target[PARTITION] = encode(key.partition) if key else None
        target[POSITION] = encode(key.position) if key else None
    return target


def put_of_output(move: Move) -> dict[str, Any]:
    assert move.output is not None
    item = keys.output(move.job_id, move.output.cursor) | {"body": encode(move.output.body)}
    return {"Item": item, "ConditionExpression": ABSENT}


def _judged(move: Move, item: Item) -> MoveResult:
    return Won(job=job_of_item(item)) if is_own(move, item) else Lost()


def is_own(move: Move, item: Item) -> bool:
    """Whether the row is as this move would have left it, nonce included: our own earlier attempt won (TRAPS 16)."""
    return bool(item) and all(item.get(name) == value for name, value in _target(move).items())


def _fence_holds(move: Move, item: Item) -> bool:
    if not item:
        return False
    job = job_of_item(item)
    if isinstance(move.fence, RowFence):
        fence = move.fence
        return (
            (job.state, job.epoch) == (fence.state, fence.epoch)
            and fence.cursor in (None, job.cursor)
            and fence.copy in (None, job.copy)
        )
    key = move.fence.key
    return (item.get(PARTITION), item.get(POSITION)) == (encode(key.partition), encode(key.position))


LINE_AS_READ: Final = "#head_seq = :was_head_seq AND #tail_seq = :was_tail_seq"
"""read (head, tail) ── (a submission, an end, a skip) ── step ✗, read again"""

LINE_NEVER_WRITTEN: Final = "attribute_not_exists(pk)"
"""read: nobody in it ── (the first submission) ── step ✗, read again"""


class Matches:
    """The part of the `Ledger` that keeps a match's jobs in line."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def read_match(self, job_class: str, match_id: str) -> Match:
        item = self._table.get(keys.match(job_class, match_id))
        if item is None:
            return Match(job_class=job_class, match_id=match_id)
        head, tail = int(item["head_seq"]["N"]), int(item["tail_seq"]["N"])
        return Match(job_class=job_class, match_id=match_id, head_seq=head, tail_seq=tail)

    def job_id_at(self, match: Match, seq: int) -> str | None:
        item = self._table.get(keys.place_in_match(match.job_class, match.match_id, seq))
        return None if item is None else str(item["job_id"]["S"])

    def step_match(self, step: MatchStep, *, spends: Allowance | None = None) -> StepResult:
        actions = [("Update", request_of(move)) for move in step.moves]
        outputs = [("Put", put_of_output(move)) for move in step.moves if move.output is not None]
        entering = [] if step.enters is None else _entering(step.after, step.enters)
        taken = _taking(spends, step)
        try:
            refused = self._table.transact(*actions, *outputs, ("Update", _line(step)), *entering, *taken)
        except Conflict:
            if not taken:
                raise
            return MatchChanged()  # most likely other submitters at the allowance: the row can do without it
        if refused is None or self._is_made(step):
            return Stepped()
        return _judged_step(refused, moves=len(actions), outputs=len(outputs))

    def _is_made(self, step: MatchStep) -> bool:
        """Whether an earlier attempt of ours made this very step and its answer was lost: all is as it would be now."""
        rows = [(move, self._table.get(keys.job(move.job_id)) or {}) for move in step.moves]
        entered = step.enters
        return (
            all(is_own(move, row) for move, row in rows)
            and (entered is None or self._table.get(keys.job(entered.job_id)) == item_of_job(entered))
            and self.read_match(step.after.job_class, step.after.match_id) == step.after
        )


def _judged_step(answers: list[Answer], *, moves: int, outputs: int) -> StepResult:
    """By whose condition failed: the first row stops the caller, the line and any later row make it read again."""
    unmet = [isinstance(answer, Unmet) for answer in answers]
    if moves and unmet[0]:
        return Lost()
    others = unmet[1:moves] + unmet[moves + outputs :]
    return MatchChanged() if any(others) else OutputTaken()


def _line(step: MatchStep) -> dict[str, Any]:
    before, after = step.before, step.after
    fresh = before.tail_seq == 0
    was = {} if fresh else {"head_seq": encode(before.head_seq), "tail_seq": encode(before.tail_seq)}
    return update_of(
        keys.match(after.job_class, after.match_id),
        values=present({"head_seq": after.head_seq, "tail_seq": after.tail_seq}),
        condition=LINE_NEVER_WRITTEN if fresh else LINE_AS_READ,
        was=was,
    )


def _taking(spends: Allowance | None, step: MatchStep) -> list[tuple[str, dict[str, Any]]]:
    if spends is None or step.enters is None:
        return []
    return [("Update", taking(spends, rows=1, at_ms=step.enters.sent_at_ms))]


def _entering(line: Match, job: Job) -> list[tuple[str, dict[str, Any]]]:
    """The row, if its id is free, and its place in the line, which a replacement takes over."""
    place = keys.place_in_match(line.job_class, line.match_id, job.seq) | {"job_id": encode(job.job_id)}
    return [("Put", {"Item": item_of_job(job), "ConditionExpression": ABSENT}), ("Put", {"Item": place})]


NEVER_LEARNED: Final = "attribute_not_exists(pk)"
"""nothing stored ── (another class's tick decided on the window) ── ours ✗"""

SAME_WINDOW: Final = "#window_ms = :was_window_ms"
"""read after window n ── (another class's tick decided on window n+1) ── ours on n+1 ✗: one decrease a window"""


class Rates:
    """The part of the `Ledger` that remembers rates."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def read_learned(self, upstream: str) -> Learned | None:
        item = self._table.get(keys.learned(upstream))
        return None if item is None else load(Learned, item)

    def store_learned(self, upstream: str, learned: Learned, *, before: Learned | None) -> bool:
        values: dict[str, Any] = {name: getattr(learned, name) for name in learned.__struct_fields__}
        request = update_of(
            keys.learned(upstream),
            values=present(values),
            condition=NEVER_LEARNED if before is None else SAME_WINDOW,
            was={} if before is None else {"window_ms": encode(before.window_ms)},
        )
        answer = self._table.update(request)
        return isinstance(answer, Written) or load(Learned, answer.old) == learned


ABSENT: Final = "attribute_not_exists(pk)"
"""no row ── INSERT ──▶ row: a second INSERT of the id, ours or another's, changes nothing."""

_BATCH: Final = 25
"""The most statements that BatchExecuteStatement takes."""

_DUPLICATE: Final = frozenset({"DuplicateItem", "ConditionalCheckFailed"})


class Rows:
    """The part of the `Ledger` that knows jobs and their places."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def create(self, jobs: Sequence[Job]) -> list[Created]:
        """Conditional INSERTs, 25 to a request (BatchWriteItem has no conditions); a single job is one PutItem."""
        results: dict[int, Created] = {}
        there: list[int] = []
        for batch in _batches(jobs):
            taken = self._put(jobs, batch) if len(batch) == 1 else self._insert(jobs, batch)
            there += taken
            results |= dict.fromkeys(set(batch) - set(taken), Created.CREATED)
        if there:
            rows = self._read_jobs({jobs[index].job_id for index in there})
            results |= {index: _recognised(jobs[index], rows) for index in there}
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
        return IndexPage(
            nominees=tuple(_nominee(item) for item in page["Items"]), resume=None if last is None else _resume_of(last)
        )

    def _put(self, jobs: Sequence[Job], batch: Sequence[int]) -> list[int]:
        answer = self._table.put(item_of_job(jobs[batch[0]]), condition=ABSENT)
        return list(batch) if isinstance(answer, Unmet) else []

    def _insert(self, jobs: Sequence[Job], batch: Sequence[int]) -> list[int]:
        """Insert the batch; returns the positions whose id exists already. What was throttled is sent again."""
        taken: list[int] = []
        left = list(batch)
        for pause_s in (*PAUSES_S, None):
            statements = [self._statement(item_of_job(jobs[index])) for index in left]
            answers = self._table.call("batch_execute_statement", Statements=statements)["Responses"]
            again: list[int] = []
            for index, answer in zip(left, answers, strict=True):
                code = answer.get("Error", {}).get("Code", "")
                if code in _DUPLICATE:
                    taken.append(index)
                elif is_passing(code):
                    again.append(index)
                elif code:
                    raise ClientError({"Error": answer["Error"]}, "BatchExecuteStatement")
            left = again
            if not left:
                return taken
            if pause_s is not None:
                self._table.pause(pause_s)
        raise LedgerUnavailable("throttled")

    def _statement(self, item: Item) -> dict[str, Any]:
        values = ", ".join(f"'{name}': ?" for name in item)
        return {
            "Statement": f'INSERT INTO "{self._table.name}" VALUE {{{values}}}',
            "Parameters": list(item.values()),
        }

    def _read_jobs(self, job_ids: set[str]) -> dict[str, Job]:
        items = batch_get(self._table, [keys.job(job_id) for job_id in sorted(job_ids)], consistent=True)
        return {job.job_id: job for job in map(job_of_item, items)}


def _batches(jobs: Sequence[Job]) -> Iterator[list[int]]:
    """Positions in batches; the same id twice goes into two, or DynamoDB would refuse both."""
    batch: list[int] = []
    ids: set[str] = set()
    for index, job in enumerate(jobs):
        if len(batch) == _BATCH or job.job_id in ids:
            yield batch
            batch, ids = [], set()
        batch.append(index)
        ids.add(job.job_id)
    if batch:
        yield batch


def _recognised(job: Job, rows: dict[str, Job]) -> Created:
    """What to say of an id that was there: our own write (its answer was lost), the same job again, or another one."""
    row = rows.get(job.job_id)
    if row is None:
        raise LedgerUnavailable("a row vanished")
    if job.nonce and row.nonce == job.nonce and row.created_ms == job.created_ms:
        return Created.CREATED
    return Created.EXISTING if same_work(row, job) else Created.DIFFERENT


# -- the index


def _between(partition: str, low: str, high: str) -> dict[str, Any] | None:
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


NOT_PAUSED: Final = "attribute_not_exists(#pause)"
"""a rule broken ── (an operator pauses, with a reason of her own) ── our pause ✗"""

SLOTS_AS_READ: Final = "#slots = :was_slots"
"""read ── (another operator sets the slots) ── ours ✗"""

SLOTS_NEVER_SET: Final = "attribute_not_exists(#slots)"

LOCK_FREE: Final = (
    "attribute_not_exists(#lock_owner) OR #lock_owner = :was_nobody OR #lock_until_ms <= :was_now"
    " OR (#lock_owner = :new_lock_owner AND #lock_run_id = :new_lock_run_id)"
)
"""take ── tick ── close: nobody's again. take ── crash ── until_ms: anybody's. take ── (answer lost) ── take: ours."""

ADMITS: Final = "attribute_not_exists(#pause) AND attribute_not_exists(#halt)"
"""plan ── (somebody pauses or halts the class) ── close with a grant ✗, close without one"""

LOCK_MINE: Final = "#lock_owner = :was_lock_owner AND #lock_run_id = :was_lock_run_id"
"""take ── (until_ms passed, another took it) ── close ✗"""

RUN_AS_READ: Final = "#state = :was_state AND #owner = :was_owner"
"""read ── (planned, closed or taken by another) ── take ✗"""

OPEN_AND_MINE: Final = "#state = :was_state AND #owner = :was_owner"
"""take ── (lock expired, another took the run) ── plan ✗"""

NEVER_OWNED: Final = "#state = :was_state AND #owner = :was_nobody"
"""admit ── (a tick took it) ── skip ✗"""

UNCLOSED_AND_MINE: Final = "#owner = :was_owner AND (#state = :was_open OR #state = :was_planned)"
"""take ── (another took the run and closed it) ── close ✗"""

RUN_KEPT_S: Final = 35 * 24 * 3600
"""Long after any trigger could repeat the minute; then TTL may remove the row (it is never a timer, TRAPS 24)."""

_TRIES: Final = 4

_NOBODY: Final[Attribute] = {"S": ""}


class Runs:
    """The part of the `Ledger` that knows runs and control."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def admit_run(self, key: RunKey, *, source: str, now_ms: int) -> bool:
        """A put with a nonce: an SDK retry after a lost answer finds its own, and must not look like a duplicate.

        Not a transaction, whose token would do the same: fifty callers of one minute would cancel one another's.
        """
        run = Run(key=key, state=RunState.OPEN, source=source)
        nonce = encode(uuid.uuid4().hex)
        extra = {"expires_s": encode(now_ms // 1000 + RUN_KEPT_S), "nonce": nonce}
        answer = self._table.put(keys.run(key) | encode(run)["M"] | extra, condition=ABSENT)
        return isinstance(answer, Written) or answer.old.get("nonce") == nonce

    def take_run(self, key: RunKey, *, owner: str, now_ms: int, until_ms: int) -> TakeResult:
        """A run that does not exist counts as ended: it was never admitted, or long ago."""
        for _ in range(_TRIES):
            run = self.read_run(key)
            if run is None or run.state not in (RunState.OPEN, RunState.PLANNED):
                return Ended()
            refused = self._table.transact(
                ("Update", _lock(key, owner=owner, now_ms=now_ms, until_ms=until_ms)), ("Update", _own(run, owner))
            )
            if refused is None:
                return Taken(planned=run.state is RunState.PLANNED)
            if isinstance(refused[0], Unmet):
                return Busy(run_id=str(refused[0].old["lock_run_id"]["S"]))
            # Only the run changed between the read and the transaction: look again.
        raise LedgerUnavailable("conflict")

    def plan_run(self, key: RunKey, *, owner: str, plan: TickMemory) -> bool:
        run, control = _planned(key, owner, plan)
        record = accounted(key.job_class, missed=plan.missed)
        refused = self._table.transact(("Update", control), ("Update", run), ("Update", record))
        if refused is None:
            return True
        now, memory = self.read_run(key), self.read_control(key.job_class)
        # A plan is ours if the run is ours and it says what we would have written: the answer was lost.
        return (
            now is not None
            and (now.state, now.owner, now.budget) == (RunState.PLANNED, owner, plan.budget)
            and (memory.lock_owner, memory.lock_run_id) == (owner, key.run_id)
            and (memory.carry, memory.planned_at_ms) == (plan.carry, plan.planned_at_ms)
        )

    def skip_run(self, key: RunKey, *, reason: str) -> bool:
        """Skipped already counts as done: two callers that skip the same run want the same."""
        values = present({"state": RunState.SKIPPED, "reason": reason})
        was = {"state": encode(RunState.OPEN), "nobody": _NOBODY}
        answer = self._table.update(update_of(keys.run(key), values=values, condition=NEVER_OWNED, was=was))
        return isinstance(answer, Written) or answer.old.get("state") == encode(RunState.SKIPPED)

    def close_run(self, key: RunKey, *, owner: str, close: TickClose) -> bool:
        if close.grant is not None:
            grant = granted(key.job_class, close.grant)
            release = _release(key, owner, close, condition=f"{LOCK_MINE} AND {ADMITS}")
            run_ends = _close(key, owner, close)
            if self._table.transact(("Update", release), ("Update", run_ends), ("Update", grant)) is None:
                return True
            # Paused or halted, if the next attempt holds; if not, the lock is another's, or this one was made already.
            close = close.without_grant
        refused = self._table.transact(("Update", _release(key, owner, close)), ("Update", _close(key, owner, close)))
        if refused is None:
            return True
        run = self.read_run(key)
        # Only its owner closes a run: closed and ours means that our own earlier attempt did it.
        return run is not None and (run.state, run.owner) == (_closed_as(close), owner)

    def drop_lock(self, key: RunKey, *, owner: str) -> None:
        self._table.update(_control_of_owner(key, owner, _UNLOCKED))

    def read_run(self, key: RunKey) -> Run | None:
        item = self._table.get(keys.run(key))
        return None if item is None else load(Run, item)

    def open_runs(self, job_class: str, *, minutes_ms: Sequence[int]) -> list[Run]:
        wanted = [keys.run(RunKey(job_class=job_class, minute_ms=minute_ms)) for minute_ms in minutes_ms]
        runs = [load(Run, item) for item in batch_get(self._table, wanted, consistent=True)]
        unclosed = [run for run in runs if run.state in (RunState.OPEN, RunState.PLANNED)]
        return sorted(unclosed, key=lambda run: run.key.minute_ms)

    def read_control(self, job_class: str) -> Control:
        return load(Control, self._table.get(keys.control(job_class)) or {}, job_class=job_class)

    def set_pause(self, job_class: str, flag: Flag | None) -> None:
        self._stop(job_class, "pause", flag)

    def pause_unless_paused(self, job_class: str, flag: Flag) -> bool:
        found = self._stop(job_class, "pause", flag, condition=NOT_PAUSED)
        return found is None or found == encode(flag)

    def set_halt(self, job_class: str, flag: Flag | None) -> None:
        self._stop(job_class, "halt", flag)

    def resume(self, job_class: str, flag: Flag) -> None:
        self._set(job_class, {"pause": None, "halt": None, "resumed": flag})

    def switch_webhook(self, job_class: str, flag: Flag, *, closed: bool) -> None:
        self._set(job_class, {"webhook_closed": closed, "webhook_switched": flag})

    def set_rate(self, job_class: str, override: RateOverride) -> None:
        self._set(job_class, {"rate": override})

    def set_slots(self, job_class: str, override: SlotsOverride, *, before: SlotsOverride | None) -> bool:
        request = update_of(
            keys.control(job_class),
            values=present({"slots": override}),
            add={"version": 1},
            condition=SLOTS_NEVER_SET if before is None else SLOTS_AS_READ,
            was={} if before is None else {"slots": encode(before)},
        )
        answer = self._table.update(request)
        return isinstance(answer, Written) or answer.old.get("slots") == encode(override)

    def _stop(self, job_class: str, name: str, flag: Flag | None, *, condition: str = "") -> Attribute | None:
        """Raise or lower a flag; what stands there instead, if the condition does not hold.

        The allowance ends with the flag's own transaction. It is ended by itself before: submitters then find nothing
        left, and do not contend with the transaction. A death in between has only let rows wait for their tick.
        """
        said = update_of(keys.control(job_class), values=present({name: flag}), add={"version": 1}, condition=condition)
        if flag is None:
            self._table.update(said)
            return None
        end(self._table, job_class)
        refused = self._table.transact(("Update", said), ("Update", ended(job_class)))
        return refused[0].old[name] if refused is not None and isinstance(refused[0], Unmet) else None

    def _set(self, job_class: str, values: dict[str, object]) -> None:
        self._table.update(update_of(keys.control(job_class), values=present(values), add={"version": 1}))


_UNLOCKED: Final = {"lock_owner": "", "lock_run_id": "", "lock_until_ms": 0}


def _lock(key: RunKey, *, owner: str, now_ms: int, until_ms: int) -> dict[str, Any]:
    return update_of(
        keys.control(key.job_class),
        values=present({"lock_owner": owner, "lock_run_id": key.run_id, "lock_until_ms": until_ms}),
        add={"version": 1},
        condition=LOCK_FREE,
        was={"nobody": _NOBODY, "now": encode(now_ms)},
    )


def _own(run: Run, owner: str) -> dict[str, Any]:
    was = {"state": encode(run.state), "owner": encode(run.owner)}
    return update_of(keys.run(run.key), values=present({"owner": owner}), condition=RUN_AS_READ, was=was)


def _planned(key: RunKey, owner: str, plan: TickMemory) -> tuple[dict[str, Any], dict[str, Any]]:
    run = update_of(
        keys.run(key),
        values=present({"state": RunState.PLANNED, "budget": plan.budget}),
        condition=OPEN_AND_MINE,
        was={"state": encode(RunState.OPEN), "owner": encode(owner)},
    )
    memory = {"carry": plan.carry, "planned_at_ms": plan.planned_at_ms, "recent": plan.recent}
    return run, _control_of_owner(key, owner, memory)


def _release(key: RunKey, owner: str, close: TickClose, *, condition: str = LOCK_MINE) -> dict[str, Any]:
    memory = {"recent": close.recent, "history": close.history, "measures": close.measures, "stage": close.stage}
    return _control_of_owner(key, owner, {**memory, **_UNLOCKED}, condition=condition)


def _control_of_owner(
    key: RunKey, owner: str, values: dict[str, object], *, condition: str = LOCK_MINE
) -> dict[str, Any]:
    return update_of(
        keys.control(key.job_class),
        values=present(values),
        add={"version": 1},
        condition=condition,
        was={"lock_owner": encode(owner), "lock_run_id": encode(key.run_id)},
    )


def _closed_as(close: TickClose) -> RunState:
    return RunState.SKIPPED if close.skipped else RunState.CLOSED


def _close(key: RunKey, owner: str, close: TickClose) -> dict[str, Any]:
    return update_of(
        keys.run(key),
        values=present({"state": _closed_as(close), "reason": close.skipped}),
        condition=UNCLOSED_AND_MINE,
        was={"owner": encode(owner), "open": encode(RunState.OPEN), "planned": encode(RunState.PLANNED)},
    )


STATS_KEPT_S: Final = 14 * 24 * 3600

_PREFIX: Final = "c_"
"""A kind may name a counter anything, also `pk`."""


class Stats:
    """The part of the `Ledger` that counts."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def add_stats(self, job_class: str, *, window_ms: int, shard: int, counters: Mapping[str, int]) -> None:
        if not 0 <= shard < SHARDS:
            raise ValueError("a shard that read_stats would not read")
        added = {name: amount for name, amount in counters.items() if amount}
        if not added:
            return
        names = {f"#{index}": f"{_PREFIX}{name}" for index, name in enumerate(added)}
        amounts = {f":{index}": {"N": str(amount)} for index, amount in enumerate(added.values())}
        clauses = ", ".join(f"#{index} :{index}" for index in range(len(added)))
        request = {
            "Key": keys.stats(job_class, window_ms, shard),
            "UpdateExpression": f"SET expires_s = :expires ADD {clauses}",
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": amounts | {":expires": {"N": str(window_ms // 1000 + STATS_KEPT_S)}},
        }
        self._table.update(request, once=True)

    def read_stats(self, job_class: str, *, windows_ms: Sequence[int]) -> list[StatsWindow]:
        """Eventually consistent: half the price, and nothing is ever conditional on a counter."""
        sums: dict[int, Counter[str]] = {window_ms: Counter() for window_ms in windows_ms}
        places = {
            keys.stats(job_class, window_ms, shard)["pk"]["S"]: (window_ms, shard)
            for window_ms in sums
            for shard in range(SHARDS)
        }
        wanted = [keys.stats(job_class, *place) for place in places.values()]
        for item in batch_get(self._table, wanted, consistent=False):
            window_ms, _ = places[item["pk"]["S"]]
            for name, attribute in item.items():
                if name.startswith(_PREFIX):
                    sums[window_ms][name.removeprefix(_PREFIX)] += int(attribute["N"])
        return [StatsWindow(start_ms=window_ms, counters=dict(sums[window_ms])) for window_ms in windows_ms]


class DynamoLedger(Rows, Moves, Matches, Runs, Allowances, Rates, Stats):
    """One table, one object: `shared.ports.Ledger`."""
