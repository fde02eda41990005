"""The dead-letter reader, a submitter, operators, the pause command, and time itself (docs/protocol.md).

Each function yields every step that its actor can take in a world.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.world import (
    HOLDER_DIED,
    VISIBLE,
    Control,
    Message,
    Operator,
    Row,
    Setup,
    Step,
    World,
    admission,
    can,
    enter_queue,
    held_by,
    lock_is_held,
    next_behind,
    put,
    send,
    spend,
)


def dead_letter_reader(setup: Setup, world: World) -> Iterator[Step]:
    """A message that died in transport moves its row, if it was the newest copy of the present epoch."""
    if not world.dead_letters:
        return
    letter: Message = world.dead_letters[0]
    rest, row = world._replace(dead_letters=world.dead_letters[1:]), world.rows[letter.job]
    newest = row.copy == letter.copy or not setup.keeps("the reader believes the newest copy only")
    if row.state == "queued" and row.epoch == letter.epoch and newest:
        moved = put(setup, rest, letter.job, row._replace(state="waiting", nonce=0))
        yield Step(f"dead letter of j{letter.job}: waits again", moved)
    else:
        yield Step(f"dead letter of j{letter.job}: stale", rest)


def submitter(setup: Setup, world: World) -> Iterator[Step]:
    """Creates one job: claimed at once where allowance is left, behind a match that is not empty, or waiting."""
    job, step = setup.submits, world.submitter
    if job is None or step[0] == "ended":
        return
    if step[0] == "idle":
        if world.budgets:
            read = world._replace(submitter=("write", world.head, world.tail, world.allowance > 0))
            yield Step(f"submitter reads head {world.head}, tail {world.tail}", read)
    elif step[0] == "write":
        yield from _create(setup, world, job)
    else:
        row = step[1]
        assert isinstance(row, Row)
        yield Step(f"submitter sends j{job}", send(setup, world, job, row)._replace(submitter=("ended",)))
        if can(world, "crash"):
            yield Step("submitter CRASHES before send", spend(world._replace(submitter=("ended",)), "crash"))


def _create(setup: Setup, world: World, job: int) -> Iterator[Step]:
    _, head, tail, allowed = world.submitter
    if setup.ordered and (head, tail) != (world.head, world.tail) and setup.keeps("the match is a condition"):
        again = world._replace(submitter=("write", world.head, world.tail, world.allowance > 0))
        yield Step("submitter finds the match changed, reads again", again)
        return
    if setup.keeps("allowance is spent with the row"):
        allowed = world.allowance > 0
    if setup.ordered:
        world = world._replace(head=job if head is None else world.head, tail=world.tail + 1)
    if setup.ordered and head is not None:
        behind = put(setup, world, job, Row("behind"))._replace(submitter=("ended",))
        yield Step(f"submitter puts j{job} behind j{head}", behind)
    elif allowed:
        row = enter_queue(setup, Row("waiting"), lane=0, nonce=0)
        after = put(setup, world._replace(allowance=max(0, world.allowance - 1)), job, row)
        step = after._replace(submitter=("send", row))
        yield Step(f"submitter creates j{job} claimed, from the allowance", step, admission(setup, world, after))
    else:
        waits = put(setup, world, job, Row("waiting"))._replace(submitter=("ended",))
        yield Step(f"submitter creates j{job} waiting", waits)


def operators(setup: Setup, world: World) -> Iterator[Step]:
    """Read a dead row, then act on it: conditional on (dead, epoch) as read, a skip on the match as well."""
    dead = [job for job, row in enumerate(world.rows) if row.state == "dead"]
    for job in dead:
        row = world.rows[job]
        if not world.budgets:
            yield Step(f"operator retries j{job}", put(setup, world, job, row._replace(state="waiting")))
        for verb in setup.verbs if can(world, "operator") else ():
            told = (*world.operators, Operator(verb, job, row.epoch, world.head, world.tail))
            yield Step(f"operator reads j{job} to {verb}", spend(world._replace(operators=told), "operator"))
    for at, me in enumerate(world.operators):
        after = world._replace(operators=world.operators[:at] + world.operators[at + 1 :])
        yield _operate(setup, after, me)


def _operate(setup: Setup, world: World, me: Operator) -> Step:
    row = world.rows[me.job]
    holds = (row.state, row.epoch) == ("dead", me.epoch)
    if not setup.keeps("operators are conditional on (dead, epoch)"):
        holds = row.state in ("dead", "skipped") if me.verb == "retry" else True
    if me.verb == "skip":
        holds = holds and (me.head, me.tail) == (world.head, world.tail)
    if not holds:
        return Step(f"operator is too late to {me.verb} j{me.job}", world)
    if me.verb == "retry":
        return Step(f"operator retries j{me.job}", put(setup, world, me.job, row._replace(state="waiting")))
    following = next_behind(world, me.job)
    after = put(setup, world._replace(head=following), me.job, row._replace(state="skipped"))
    if following is None:
        return Step(f"operator skips j{me.job}", after)
    waits = after.rows[following]._replace(state="waiting")
    if setup.keeps("a skip makes the next head wait"):
        return Step(f"operator skips j{me.job}, j{following} waits", put(setup, after, following, waits))
    claimed = put(setup, after, following, enter_queue(setup, waits, lane=0, nonce=0))
    return Step(f"operator skips j{me.job}, claims j{following}", claimed, admission(setup, world, claimed))


def pause_command(setup: Setup, world: World) -> Iterator[Step]:
    """Set the flag, which ends the allowance (it may be ended by itself before); say "committed" once no earlier tick
    owns the lock and no handover can still go by old flags."""
    pause, owner = world.control
    if pause == "no":
        if world.allowance:
            yield Step("pause: the allowance ends first", world._replace(allowance=0))
        left = 0 if setup.keeps("a pause zeroes the allowance") else world.allowance
        flagged = world._replace(control=Control("flag", world.lock.owner), allowance=left)
        yield Step("pause: flag set", flagged)
    elif pause == "flag":
        earlier = owner == world.lock.owner and lock_is_held(world) and setup.keeps("a pause waits for the tick")
        unaware = any(each is not None and each.step == "end" and not each.paused for each in world.workers)
        if not earlier and not (unaware and setup.keeps("a pause waits for handovers")):
            yield Step("pause COMMITTED", world._replace(control=Control("committed")))
    elif pause == "committed":
        yield Step("resume", world._replace(control=Control("over")))


def time(setup: Setup, world: World) -> Iterator[Step]:
    """What comes by waiting: a dead worker's message is visible again, the index catches up."""
    if any(message.holder == HOLDER_DIED for message in world.queue):
        yield Step("a visibility ends", held_by(world, HOLDER_DIED, becomes=VISIBLE))
    for job, (row, shown) in enumerate(zip(world.rows, world.shown, strict=True)):
        if row != shown:
            now_shown = (*world.shown[:job], row, *world.shown[job + 1 :])
            yield Step(f"the index shows j{job} {row.state}", world._replace(shown=now_shown))
