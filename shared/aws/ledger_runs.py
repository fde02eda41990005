"""Runs, the class lock and control (rule 5): who may tick, and what a tick leaves behind."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

from shared.aws import keys
from shared.aws.items import encode, load, present
from shared.aws.keys import Attribute
from shared.aws.ledger_allowance import accounted, end, ended, granted
from shared.aws.ledger_rows import ABSENT
from shared.aws.paging import batch_get
from shared.aws.table import Table, Unmet, Written, update_of
from shared.core.flags import Flag
from shared.core.overrides import RateOverride, SlotsOverride
from shared.core.runs import Busy, Control, Ended, Run, RunKey, RunState, Taken, TakeResult, TickClose, TickMemory
from shared.errors import LedgerUnavailable

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
