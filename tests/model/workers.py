"""The worker and the queue that feeds it (protocol: the worker; `shared/worker/message.py`, `shared/steps/turns.py`).

receive -> read -> start -> commit -> (start | send | end -> send) -> ack
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.world import (
    ENDED,
    HOLDER_DIED,
    VISIBLE,
    Row,
    Setup,
    Step,
    Worker,
    World,
    admission,
    can,
    enter_queue,
    held_by,
    lanes,
    next_behind,
    put,
    send,
    spend,
)


def worker(setup: Setup, world: World, at: int) -> Iterator[Step]:
    me = world.workers[at]
    if me is None:
        yield from _receive(setup, world, at)
        return
    yield from STEPS[me.step](setup, world, at, me)
    if can(world, "crash"):
        dead = _set(held_by(world, at, becomes=HOLDER_DIED), at, None)
        yield Step(f"w{at} CRASHES before {me.step}", spend(dead, "crash"))
    # Rule 4: a worker's lease ends before the queue thinks so. Where it does not, its message is handed out again.
    holds = any(message.holder == at for message in world.queue)
    if holds and (
        can(world, "late worker") or (world.budgets and not setup.keeps("worker stops before its lease ends"))
    ):
        late = held_by(world, at, becomes=VISIBLE)
        late = spend(late, "late worker") if can(world, "late worker") else late
        yield Step(f"w{at} is LATE: its message is visible again at {me.step}", late)


def _receive(setup: Setup, world: World, at: int) -> Iterator[Step]:
    """The first message of a group that has none in flight; one received too often goes to the dead letters."""
    if at != world.workers.index(None):
        return  # idle workers are alike: let the first one take it
    seen: set[tuple[int, int]] = set()
    for place, message in enumerate(world.queue):
        group = message[:2]
        first, busy = group not in seen, any(each[:2] == group and each.holder != VISIBLE for each in world.queue)
        seen.add(group)
        if not first or busy:
            continue
        before, after = world.queue[:place], world.queue[place + 1 :]
        name = f"j{message.job} e{message.epoch} copy {message.copy}"
        if message.receives >= setup.max_receives:
            letters = (*world.dead_letters, message)
            yield Step(f"{name} becomes a dead letter", world._replace(queue=before + after, dead_letters=letters))
            continue
        taken = message._replace(receives=message.receives + 1, holder=at)
        received = world._replace(queue=(*before, taken, *after))
        me = Worker("read", message.job, message.epoch, Row("absent"))
        yield Step(f"w{at} receives {name} lane {message.lane}", _set(received, at, me))


def _read(setup: Setup, world: World, at: int, me: Worker) -> Iterator[Step]:
    """Rule 1: a message whose epoch is not that of a queued row is stale; acknowledge it, do nothing else."""
    row = world.rows[me.job]
    current = row.state == "queued" and (row.epoch == me.epoch or not setup.keeps("stale messages do nothing"))
    if current:
        yield Step(
            f"w{at} reads j{me.job} e{row.epoch} c{row.cursor}", _set(world, at, me._replace(step="start", seen=row))
        )
    else:
        yield Step(f"w{at} finds j{me.job} e{me.epoch} stale", _set(world, at, me._replace(step="ack")))


def _start(setup: Setup, world: World, at: int, me: Worker) -> Iterator[Step]:
    """I4 and I5 are judged where a chunk starts. A worker past its lease (the late fault) is excused from both."""
    row, broken = world.rows[me.job], None
    if row.cursor > me.seen.cursor or row.state in ENDED:
        broken = "I4 a committed chunk is started again"
    if setup.ordered:
        if any(before.state not in ENDED for before in world.rows[: me.job]):
            broken = "I5 a job is started before its predecessor has ended"
        if any(after.state == "done" or after.cursor for after in world.rows[me.job + 1 :]):
            broken = "I5 a job is started after its successor"
    broken = None if setup.leases_fail else broken
    yield Step(f"w{at} starts chunk {me.seen.cursor} of j{me.job}", _set(world, at, me._replace(step="commit")), broken)


def _commit(setup: Setup, world: World, at: int, me: Worker) -> Iterator[Step]:
    """Rule 2: every write is conditional on (queued, epoch, cursor) as read; a loser stops."""
    seen, row = me.seen, world.rows[me.job]
    further = seen._replace(cursor=seen.cursor + 1, copy=row.copy, nonce=at + 1)
    if not _fence_holds(setup, row, seen):
        yield _lost(setup, world, at, me, further)
        return
    if seen.cursor + 1 < setup.chunks:
        yield from _write(setup, world, at, me, "commits chunk", further, "start")
        if can(world, "time up"):
            on = enter_queue(setup, further, lane=seen.lane, nonce=at + 1)
            yield from _write(setup, spend(world, "time up"), at, me, "commits, time is up after chunk", on, "send")
    elif setup.ordered:
        told = me._replace(step="end", head=world.head, tail=world.tail, paused=world.control.paused)
        yield Step(f"w{at} reads the match and the flags", _set(world, at, told))
    else:
        yield from _write(setup, world, at, me, "finishes after chunk", further._replace(state="done"), "ack")
    if can(world, "refusal"):
        back = seen._replace(state="waiting", copy=row.copy, nonce=at + 1)
        yield from _write(setup, spend(world, "refusal"), at, me, "is refused at chunk", back, "ack")
    if can(world, "death"):
        dead = seen._replace(state="dead", copy=row.copy, nonce=at + 1)
        yield from _write(setup, spend(world, "death"), at, me, "dies at chunk", dead, "ack")


def _fence_holds(setup: Setup, row: Row, seen: Row) -> bool:
    same = (row.state, row.epoch, row.cursor) == ("queued", seen.epoch, seen.cursor)
    return same or not setup.keeps("writes are conditional")


def _write(setup: Setup, world: World, at: int, me: Worker, what: str, made: Row, then: str) -> Iterator[Step]:
    before = world.rows[me.job]
    broken = (
        "I2 a chunk is committed twice" if made.cursor > me.seen.cursor and before.cursor > me.seen.cursor else None
    )
    after = put(setup, world, me.job, made)
    label = f"w{at} j{me.job} {what} {me.seen.cursor}: {made.state} e{made.epoch} c{made.cursor}"
    yield Step(label, _set(after, at, me._replace(step=then, seen=made)), broken)
    if can(world, "lost answer"):
        again = me._replace(step="again", seen=made, then=then)
        yield Step(f"{label}, the ANSWER IS LOST", spend(_set(after, at, again), "lost answer"), broken)


def _again(setup: Setup, world: World, at: int, me: Worker) -> Iterator[Step]:
    """The SDK sends the write again: the condition fails, and the row shows our nonce and just what we made of it."""
    ours = world.rows[me.job] == me.seen and setup.keeps("own writes are recognised")
    label = f"w{at} tries again, the first attempt was its own" if ours else f"w{at} tries again and loses"
    yield Step(label, _set(world, at, me._replace(step=me.then if ours else "ack", then="")))


def _lost(setup: Setup, world: World, at: int, me: Worker, made: Row) -> Step:
    row = world.rows[me.job]
    if not setup.keeps("a twin's win is not ours") and row._replace(nonce=0) == made._replace(nonce=0):
        broken = "I2 a worker goes on from a commit that is not its own"
        return Step(
            f"w{at} takes a twin's commit for its own", _set(world, at, me._replace(step="start", seen=row)), broken
        )
    return Step(f"w{at} loses the commit of j{me.job} c{me.seen.cursor}", _set(world, at, me._replace(step="ack")))


def _end(setup: Setup, world: World, at: int, me: Worker) -> Iterator[Step]:
    """The end of an ordered job: one transaction finishes it, makes the next the head and claims it in its place."""
    if not _fence_holds(setup, world.rows[me.job], me.seen):
        yield Step(f"w{at} loses the end of j{me.job}", _set(world, at, me._replace(step="ack")))
        return
    if (me.head, me.tail) != (world.head, world.tail) and setup.keeps("the match is a condition"):
        yield Step(f"w{at} finds the match changed", _set(world, at, me._replace(step="commit")))
        return
    done = me.seen._replace(state="done", cursor=setup.chunks, copy=0, nonce=0)
    after = put(setup, world, me.job, done)
    # What follows is what was read: without the condition on the match, a job that was submitted since is not seen.
    known = me.tail if not setup.keeps("the match is a condition") else len(world.rows)
    following = next_behind(after, me.job)
    following = following if following is None or following < known else None
    if not setup.keeps("promotion is part of the end"):
        told = me._replace(step="promote", next_job=following)
        yield Step(f"w{at} ends j{me.job}", _set(after, at, told))
        return
    yield from _promote(setup, after, at, me._replace(next_job=following))


def _promote(setup: Setup, world: World, at: int, me: Worker) -> Iterator[Step]:
    following = me.next_job
    world = world._replace(head=following)
    if following is None:
        yield Step(f"w{at} ends j{me.job}: the match is empty", _set(world, at, me._replace(step="ack")))
    elif me.paused:
        waits = put(setup, world, following, world.rows[following]._replace(state="waiting"))
        yield Step(f"w{at} ends j{me.job}: j{following} waits", _set(waits, at, me._replace(step="ack")))
    else:
        for lane in lanes(setup, world):
            row = enter_queue(setup, world.rows[following], lane=lane, nonce=0)
            after = put(setup, world, following, row)
            told = me._replace(step="send", seen=row, next_job=following)
            label = f"w{at} ends j{me.job}, hands over to j{following} lane {lane}"
            yield Step(label, _set(after, at, told), admission(setup, world, after))


def _send(setup: Setup, world: World, at: int, me: Worker) -> Iterator[Step]:
    job = me.job if me.next_job is None else me.next_job
    yield Step(
        f"w{at} sends j{job} e{me.seen.epoch}", _set(send(setup, world, job, me.seen), at, me._replace(step="ack"))
    )


def _ack(setup: Setup, world: World, at: int, me: Worker) -> Iterator[Step]:
    left = tuple(message for message in world.queue if message.holder != at)
    yield Step(f"w{at} acknowledges", _set(world._replace(queue=left), at, None))


def _set(world: World, at: int, me: Worker | None) -> World:
    return world._replace(workers=(*world.workers[:at], me, *world.workers[at + 1 :]))


STEPS = {
    "read": _read,
    "start": _start,
    "commit": _commit,
    "again": _again,
    "end": _end,
    "promote": _promote,
    "send": _send,
    "ack": _ack,
}
