"""Everything that moves a job's state is in this file.

Each function decides one move as data; a `Ledger` carries it out in one conditional write. The table says from where to
where a move goes; the fence of each move is the state it leaves, at the epoch and cursor that were read (rule 2).

Rule 1 stands here as `epoch`: every entry to `queued` raises it by one, so that a message of an earlier entry is stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from shared.domain import work_index
from shared.domain.job import Flag, Job, Lane, Output, StartMark, State
from shared.domain.work_index import IndexKey, KeepPlace, LeaveIndex, Nominee, Place


class RowFence(Struct, frozen=True, kw_only=True):
    """The row must still be in `state` at (epoch, cursor). Rule 2's condition for everyone who has read the row.

    `cursor` and `copy` are compared only where they are given: the dead-letter reader never moves the cursor.
    """

    state: State
    epoch: int
    cursor: str | None = None
    copy: int | None = None


class IndexFence(Struct, frozen=True, kw_only=True):
    """The row must still stand at this place in the index: the condition of whoever has only seen the index."""

    key: IndexKey


Fence: TypeAlias = RowFence | IndexFence


class Move(Struct, frozen=True, kw_only=True):
    """One conditional change of one row, decided by `lifecycle`, carried out by a `Ledger` in a single atomic write.

    `changes` maps Job fields to new values; absent ones stay as they are in the row, so that a concurrent re-send's
    copy survives a mid-job commit. `nonce` None (a re-send) leaves the row's; `output` is created along with it.
    """

    name: str
    job_id: str
    fence: Fence
    changes: Mapping[str, Any]
    place: Place
    nonce: str | None
    output: Output | None = None


class Won(Struct, frozen=True, kw_only=True):
    """The move was made, by this call or by an earlier attempt of it whose answer was lost."""

    job: Job


class Lost(Struct, frozen=True, kw_only=True):
    """The fence did not hold: someone else moved the row first. Stop; never assume."""


class OutputTaken(Struct, frozen=True, kw_only=True):
    """The fence held but this cursor's output exists already: the job went in a circle, which is its own failure."""


MoveResult: TypeAlias = Won | Lost | OutputTaken

TABLE: Final[Mapping[str, tuple[State, State]]] = {
    "claim": (State.WAITING, State.QUEUED),
    "resend": (State.QUEUED, State.QUEUED),
    "mark": (State.QUEUED, State.QUEUED),
    "unmark": (State.QUEUED, State.QUEUED),
    "commit": (State.QUEUED, State.QUEUED),
    "continue": (State.QUEUED, State.QUEUED),
    "hand_back": (State.QUEUED, State.QUEUED),
    "finish": (State.QUEUED, State.DONE),
    "release": (State.QUEUED, State.WAITING),
    "fail": (State.QUEUED, State.WAITING),
    "die": (State.QUEUED, State.DEAD),
    "transport": (State.QUEUED, State.WAITING),
    "hand_over": (State.BEHIND, State.QUEUED),
    "promote": (State.BEHIND, State.WAITING),
    "retry": (State.DEAD, State.WAITING),
    "skip": (State.DEAD, State.SKIPPED),
    "replace": (State.DEAD, State.REPLACED),
}
"""Move -> (from, to). `claim` and `resend` have seen the index only; their fence is the place in it."""

ENDED: Final = frozenset(State) - {left for left, _ in TABLE.values()}
"""States that no move leaves: what comes no more, holds no match, and whose payload nobody reads any longer."""


def place_of(job: Job) -> IndexKey | LeaveIndex:
    """Where a row in this state belongs in the index. A dead row keeps the time of its death in `eligible_ms`."""
    if job.state is State.WAITING:
        return work_index.waiting(
            job.job_id,
            job.job_class,
            priority=job.priority,
            retried=job.retried,
            eligible_ms=job.eligible_ms,
            epoch=job.epoch,
        )
    if job.state is State.QUEUED:
        return work_index.inflight(job.job_id, job.job_class, sent_at_ms=job.sent_at_ms, epoch=job.epoch, copy=job.copy)
    if job.state is State.BEHIND:
        return work_index.behind(job.job_id, job.job_class, due_ms=job.due_ms, epoch=job.epoch)
    if job.state is State.DEAD:
        return work_index.dead(job.job_class, died_ms=job.eligible_ms, epoch=job.epoch)
    return LeaveIndex()


# -- the pacer's moves: from the index alone


def claim(
    nominee: Nominee, *, job_class: str, lane: Lane, run_id: str, nonce: str, now_ms: int, hand_until_ms: int
) -> Move:
    """A waiting row enters `queued` in `lane`, as a fresh chain of hops."""
    epoch = nominee.epoch + 1
    return Move(
        name="claim",
        job_id=nominee.job_id,
        fence=IndexFence(key=nominee.key),
        changes={
            "state": State.QUEUED,
            "epoch": epoch,
            "copy": 0,
            "lane": lane,
            "sent_at_ms": now_ms,
            "run_id": run_id,
            "hand_until_ms": hand_until_ms,
            "hop": 0,
        },
        place=work_index.inflight(nominee.job_id, job_class, sent_at_ms=now_ms, epoch=epoch, copy=0),
        nonce=nonce,
    )


def resend(nominee: Nominee, *, job_class: str, now_ms: int) -> Move:
    """Rule 3: touch an in-flight row before its message is sent again, under the same epoch and as the next copy.

    The nonce stays: the worker that holds this epoch must still recognise its own writes.
    """
    copy = work_index.copy_of(nominee.key) + 1
    return Move(
        name="resend",
        job_id=nominee.job_id,
        fence=IndexFence(key=nominee.key),
        changes={"copy": copy, "sent_at_ms": now_ms},
        place=work_index.inflight(nominee.job_id, job_class, sent_at_ms=now_ms, epoch=nominee.epoch, copy=copy),
        nonce=None,
    )


# -- the worker's moves: from the row as read


def crash_proven(job: Job, *, copy: int, receives: int) -> bool:
    """Whether the mark on the row was left by an earlier delivery at the very chunk that is to run again."""
    left = job.mark
    return (
        left is not None
        and (left.epoch, left.cursor) == (job.epoch, job.cursor)
        and (left.copy, left.receives) < (copy, receives)
    )


def mark(job: Job, *, copy: int, receives: int, nonce: str, crashed: bool) -> Move:
    """Leave a start mark before a redelivered chunk. `crashed`: the mark on the row has just proven one crash more."""
    left = StartMark(epoch=job.epoch, cursor=job.cursor, copy=copy, receives=receives)
    changes = {"mark": left, "crashes": job.crashes + int(crashed)}
    return _move("mark", job, changes, nonce=nonce)


def unmark(job: Job, *, nonce: str) -> Move:
    """Take the mark back: the invocation ends in an orderly way, so its redelivery proves no crash."""
    return _move("unmark", job, {"mark": None}, nonce=nonce)


def commit(job: Job, *, next_cursor: str, output: Output | None, nonce: str) -> Move:
    """A chunk is done and the next one follows at once."""
    return _move("commit", job, _progress(job, next_cursor), nonce=nonce, output=output)


def continue_later(job: Job, *, next_cursor: str, output: Output | None, now_ms: int, nonce: str) -> Move:
    """Time is up after a chunk: the commit takes the next epoch, and a continuation is sent (one hop)."""
    changes = _progress(job, next_cursor) | _next_epoch(job, now_ms) | {"hop": job.hop + 1}
    return _move("continue", job, changes, nonce=nonce, output=output)


def hand_back(job: Job, *, now_ms: int, nonce: str) -> Move:
    """Time is up before the first chunk: the next epoch without progress, and no hop is charged."""
    return _move("hand_back", job, _next_epoch(job, now_ms), nonce=nonce)


def finish(job: Job, *, output: Output | None, nonce: str) -> Move:
    """The last chunk is done. What went wrong on the way is of no interest any more."""
    return _move("finish", job, {"last_error": ""}, nonce=nonce, output=output)


def release(
    job: Job, *, reason: str, eligible_ms: int, nonce: str, next_cursor: str | None = None, output: Output | None = None
) -> Move:
    """Back to waiting, for a reason that burns no attempt (I9): refusal, no permit, halt, hop cap."""
    changes = _progress(job, next_cursor) if next_cursor is not None else {}
    changes |= {"eligible_ms": eligible_ms, "retried": True, "last_error": reason}
    return _move("release", job, changes, nonce=nonce, output=output)


def fail(job: Job, *, reason: str, eligible_ms: int, nonce: str) -> Move:
    """The job's own code failed and may try again: the one move that burns an attempt (with `die`)."""
    changes = {"attempts": job.attempts + 1, "eligible_ms": eligible_ms, "retried": True, "last_error": reason}
    return _move("fail", job, changes, nonce=nonce)


def die(job: Job, *, reason: str, now_ms: int, nonce: str, attempts: int | None = None) -> Move:
    """A bound is reached: the job waits for an operator, out of everyone's way."""
    changes = {
        "attempts": job.attempts if attempts is None else attempts,
        "eligible_ms": now_ms,
        "last_error": reason,
    }
    return _move("die", job, changes, nonce=nonce)


# -- the dead-letter reader's move


def transport_death(job: Job, *, copy: int, eligible_ms: int, now_ms: int, max_deaths: int, nonce: str) -> Move:
    """The newest copy of the row's message died in transport: wait again, or die at the bound. Not an attempt.

    Conditional on `copy` too: an older copy's death says nothing, the newer one lives.
    """
    deaths = job.transport_deaths + 1
    name = "die" if deaths >= max_deaths else "transport"
    changes: dict[str, Any] = {"transport_deaths": deaths, "last_error": "transport"}
    changes |= {"eligible_ms": now_ms} if name == "die" else {"eligible_ms": eligible_ms, "retried": True}
    return _move(name, job, changes, nonce=nonce, copy=copy)


# -- moves of an ordered match's next head, made with the step that ends the one before it


def hand_over(job: Job, *, ended: Job, lane: Lane, now_ms: int, nonce: str) -> Move:
    """The next head is claimed in the finished one's place: in flight stays the same, so I1 holds without a budget."""
    changes = _next_epoch(job, now_ms) | {
        "lane": lane,
        "run_id": ended.run_id,
        "hand_until_ms": ended.hand_until_ms,
        "hop": 0,
    }
    return _move("hand_over", job, changes, nonce=nonce)


def promote(job: Job, *, nonce: str) -> Move:
    """The next head waits for a tick, like any other row that became eligible when it was due."""
    return _move("promote", job, {"eligible_ms": job.due_ms}, nonce=nonce)


# -- an operator's moves: fenced on (dead, epoch), and signed


def retry(job: Job, *, signature: Flag, nonce: str) -> Move:
    """The row waits again, all its bounds fresh. A tick claims it under a new epoch: the old message stays stale."""
    changes = {"eligible_ms": signature.at_ms, "retried": True, "changed": signature}
    return _move("retry", job, changes | {"attempts": 0, "crashes": 0, "transport_deaths": 0}, nonce=nonce)


def skip(job: Job, *, signature: Flag, nonce: str) -> Move:
    """The job is given up."""
    return _move("skip", job, {"changed": signature}, nonce=nonce)


def replace_by_another(job: Job, *, signature: Flag, nonce: str) -> Move:
    """The job is given up, and another one stands in for it."""
    return _move("replace", job, {"changed": signature}, nonce=nonce)


# -- how moves are made


def after(job: Job, move: Move) -> Job:
    """The row as the move leaves it."""
    nonce = job.nonce if move.nonce is None else move.nonce
    return replace(job, **(dict(move.changes) | {"nonce": nonce}))


def _move(
    name: str,
    job: Job,
    changes: Mapping[str, Any],
    *,
    nonce: str,
    output: Output | None = None,
    copy: int | None = None,
) -> Move:
    before, after = TABLE[name]
    fields: dict[str, Any] = dict(changes)
    if before is not after:
        fields["state"] = after
    return Move(
        name=name,
        job_id=job.job_id,
        fence=RowFence(state=before, epoch=job.epoch, cursor=job.cursor, copy=copy),
        changes=fields,
        place=_place_after(job, fields),
        nonce=nonce,
        output=output,
    )


def _place_after(job: Job, changes: Mapping[str, Any]) -> Place:
    """Only an entry or an exit moves the row in the index; a mid-job commit must not touch a re-send's place."""
    if "state" not in changes and "epoch" not in changes:
        return KeepPlace()
    return place_of(replace(job, **changes))


def _progress(job: Job, next_cursor: str) -> dict[str, Any]:
    """The cursor moves; crashes and transport deaths counted one chunk's trouble, and it is over."""
    changes: dict[str, Any] = {"cursor": next_cursor}
    if job.crashes or job.transport_deaths:
        changes |= {"crashes": 0, "transport_deaths": 0}
    return changes


def _next_epoch(job: Job, now_ms: int) -> dict[str, Any]:
    return {"epoch": job.epoch + 1, "copy": 0, "sent_at_ms": now_ms}
