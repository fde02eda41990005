"""The pacer: one tick, step by step (docs/protocol.md; `shared/pacer/tick.py`).

take -> withdraw -> gather -> plan -> claim* -> send -> (touch -> resend)* -> close
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.world import (
    Lock,
    Pacer,
    Run,
    Setup,
    Step,
    World,
    admission,
    can,
    enter_queue,
    lanes,
    lock_is_held,
    put,
    send,
    spend,
)


def spawn(world: World, run: int) -> World:
    token = 1 + max([world.lock.owner, *(pacer.token for pacer in world.pacers)])
    return world._replace(pacers=(*world.pacers, Pacer(run, token, "take")))


def ticks(setup: Setup, world: World) -> Iterator[Step]:
    """The schedule: each run's tick once and in order, and again as often as the world allows."""
    for run in range(1, setup.runs + 1):
        lives = any(pacer.run == run for pacer in world.pacers)
        if world.runs[run].state == "absent" and not lives and (run == 1 or world.runs[run - 1].state != "absent"):
            yield Step(f"tick {run}", spawn(world, run))
        elif can(world, "duplicate tick") and world.runs[run].state != "absent":
            yield Step(f"tick {run} again", spend(spawn(world, run), "duplicate tick"))


def pacer(setup: Setup, world: World, at: int) -> Iterator[Step]:
    me = world.pacers[at]
    yield from STEPS[me.step](setup, world, me)
    if can(world, "crash"):
        yield Step(f"p{me.token} CRASHES before {me.step}", spend(_end(world, me), "crash"))
    # Rule 4: the lock outlasts the time in which a pacer may claim. At any other step it can be taken from a slow one.
    safe = me.step == "claim" and setup.keeps("pacer stops before its lock ends")
    if can(world, "slow pacer") and world.lock.owner == me.token and not safe:
        yield Step(f"p{me.token} is slow: its LOCK ENDS", spend(world._replace(lock=Lock()), "slow pacer"))


def _take(setup: Setup, world: World, me: Pacer) -> Iterator[Step]:
    """Admit the run; take the lock and "this run is open" in one transaction (rule 5)."""
    run = world.runs[me.run]
    if run.state in ("closed", "skipped"):
        yield Step(f"p{me.token} finds run {me.run} ended", _end(world, me))
    elif lock_is_held(world) and setup.keeps("class lock"):
        yield _busy(setup, world, me, run)
    elif not setup.keeps("lock and run in one transaction"):
        seen = _set_run(world, me, run._replace(state="open"))
        yield Step(f"p{me.token} sees run {me.run} open", _go(seen, me._replace(step="lock")))
    else:
        yield _locked(world, me, run._replace(state="open" if run.state == "absent" else run.state))


def _busy(setup: Setup, world: World, me: Pacer, run: Run) -> Step:
    """Another tick lives. Its own run's owner is left alone; a run of its own that nobody has owned is skipped."""
    mine = world.lock.run == me.run
    if mine and setup.keeps("own run is left alone"):
        return Step(f"p{me.token} meets run {me.run}'s owner and leaves", _end(world, me))
    if run.owner and not mine:
        return Step(f"p{me.token} meets a live tick and leaves run {me.run} as it is", _end(world, me))
    broken = "I6 a run that was skipped has admitted rows" if run.admitted else None
    skipped = _set_run(world, me, run._replace(state="skipped"))
    return Step(f"p{me.token} skips run {me.run}", _end(skipped, me), broken)


def _lock_late(setup: Setup, world: World, me: Pacer) -> Iterator[Step]:
    """Only without rule 5's one transaction: the run was seen open a moment ago, the lock is taken now."""
    if lock_is_held(world):
        yield Step(f"p{me.token} meets a live tick", _end(world, me))
    else:
        yield _locked(world, me, world.runs[me.run]._replace(state="open"))


def _locked(world: World, me: Pacer, run: Run) -> Step:
    world = _set_run(world, me, run._replace(owner=me.token))._replace(lock=Lock(me.run, me.token))
    return Step(f"p{me.token} takes run {me.run}", _go(world, me._replace(step="withdraw")))


def _withdraw(setup: Setup, world: World, me: Pacer) -> Iterator[Step]:
    """What is left of the live allowance is taken back before anything is counted."""
    left = 0 if setup.keeps("allowance is withdrawn before counting") else world.allowance
    yield Step(f"p{me.token} withdraws the allowance", _go(world._replace(allowance=left), me._replace(step="gather")))


def _gather(setup: Setup, world: World, me: Pacer) -> Iterator[Step]:
    """Read control, count, decide. In flight: the index, and what it may not show yet."""
    seen = sum(row.state == "queued" for row in world.shown)
    if setup.keeps("recent admissions count"):
        both = zip(world.rows, world.shown, strict=True)
        seen = sum("queued" in (row.state, shown.state) for row, shown in both)
    budget = 0 if world.control.paused else max(0, setup.max_inflight - seen)
    eligible = ("waiting",) if setup.keeps("only heads are eligible") else ("waiting", "behind")
    nominees = [(job, row.epoch, row.copy) for job, row in enumerate(world.shown) if row.state in eligible]
    inflight = [(job, row.epoch, row.copy) for job, row in enumerate(world.shown) if row.state == "queued"]
    grant = min(setup.grant, budget) if world.budgets else 0
    told = me._replace(step="plan", budget=budget, grant=grant, nominees=tuple(nominees), inflight=tuple(inflight))
    yield Step(f"p{me.token} gathers: budget {budget}, {grant} of it for live arrivals", _go(world, told))
    if can(world, "unavailable"):
        yield Step(f"p{me.token} gets NO ANSWER and drops its lock", spend(_drop(setup, world, me), "unavailable"))


def _plan(setup: Setup, world: World, me: Pacer) -> Iterator[Step]:
    """Mark the run planned before the first claim; a run that was planned already only sweeps and closes."""
    run = world.runs[me.run]
    first = "claim" if setup.keeps("truth before message") else "send"
    if run.state == "planned" and setup.keeps("a resumed run only sweeps"):
        sweeps = me._replace(step="touch", budget=0, grant=0, nominees=())
        yield Step(f"p{me.token} resumes run {me.run}: sweeps only", _go(world, sweeps))
        return
    owns = world.lock.owner == me.token and run.owner == me.token and run.state in ("open", "planned")
    if not owns and setup.keeps("planning is conditional on the owner"):
        yield Step(f"p{me.token} is not the owner any more", _drop(setup, world, me))
        return
    state = "planned" if setup.keeps("planned before the first claim") else run.state
    world = _set_run(world, me, run._replace(state=state, budget=me.budget))
    yield Step(f"p{me.token} plans run {me.run}", _go(world, me._replace(step=first)))


def _claim(setup: Setup, world: World, me: Pacer) -> Iterator[Step]:
    """Claim one nominee: conditional on the place where the index showed it."""
    if not me.nominees or len(me.claimed) >= me.budget - me.grant:
        following = "send" if setup.keeps("truth before message") else "touch"
        yield Step(f"p{me.token} has claimed {len(me.claimed)}", _go(world, me._replace(step=following)))
        return
    (job, epoch, _), rest = me.nominees[0], me.nominees[1:]
    row = world.rows[job]
    eligible = row.state == "waiting" or (row.state == "behind" and not setup.keeps("only heads are eligible"))
    if not (eligible and row.epoch == epoch):
        yield Step(f"p{me.token} loses the claim of j{job}", _go(world, me._replace(nominees=rest)))
        return
    for lane in lanes(setup, world):
        claimed = enter_queue(setup, row, lane=lane, nonce=100 + me.token)
        run = world.runs[me.run]
        after = _set_run(put(setup, world, job, claimed), me, run._replace(admitted=run.admitted + 1))
        broken = admission(setup, world, after)
        if run.admitted + 1 > run.budget:
            broken = broken or "I1 a run admitted more than its budget"
        told = me._replace(nominees=rest, claimed=(*me.claimed, (job, claimed)))
        yield Step(f"p{me.token} claims j{job} as e{claimed.epoch} lane {lane}", _go(after, told), broken)
        if can(world, "lost answer"):
            # The SDK sends it again, the condition fails now, and the nonce says that the first attempt was ours.
            told = told if setup.keeps("own writes are recognised") else me._replace(nominees=rest)
            label = f"p{me.token} claims j{job} as e{claimed.epoch}, the ANSWER IS LOST, tries again"
            yield Step(label, _go(spend(after, "lost answer"), told), broken)


def _send(setup: Setup, world: World, me: Pacer) -> Iterator[Step]:
    early = not setup.keeps("truth before message")
    todo = me.claimed
    if early:
        todo = tuple((job, enter_queue(setup, world.rows[job], lane=0, nonce=0)) for job, _, _ in me.nominees)
    after = world
    for job, row in todo:
        after = send(setup, after, job, row)
    told = me._replace(step="claim" if early else "touch")
    yield Step(f"p{me.token} sends {len(todo)}", _go(after, told))
    if todo and can(world, "unsent"):
        yield Step(f"p{me.token} sends, the queue FAILS every entry", spend(_go(world, told), "unsent"))


def _touch(setup: Setup, world: World, me: Pacer) -> Iterator[Step]:
    """Rule 3: touch an old in-flight row, conditional on its place, then re-send it. Paused ticks sweep too."""
    sweeps = setup.keeps("sweep") and (setup.keeps("paused ticks sweep") or not world.control.paused)
    if not world.budgets:  # fault-free: time enough passes for all of them
        for job, epoch, copy in me.inflight if sweeps else ():
            if world.rows[job][2:4] == (epoch, copy) and world.rows[job].state == "queued":
                row = world.rows[job]._replace(copy=copy + 1)
                world = send(setup, put(setup, world, job, row), job, row)
    yield Step(f"p{me.token} finds no more to sweep", _go(world, me._replace(step="close")))
    if not sweeps or not can(world, "sweep"):
        return
    for job, epoch, copy in me.inflight:
        row = world.rows[job]
        if row.state != "queued" or (row.epoch, row.copy) != (epoch, copy):
            continue
        touched = row._replace(copy=copy + 1)
        for lane in (row.lane,) if setup.keeps("lane is stored") else range(setup.lanes):
            told = me._replace(step="resend", claimed=((job, touched._replace(lane=lane)),))
            yield Step(
                f"p{me.token} touches j{job} e{epoch}", spend(_go(put(setup, world, job, touched), told), "sweep")
            )


def _resend(setup: Setup, world: World, me: Pacer) -> Iterator[Step]:
    job, row = me.claimed[0]
    left = tuple(each for each in me.inflight if each[0] != job)
    told = me._replace(step="touch", inflight=left, claimed=())
    label = f"p{me.token} re-sends j{job} e{row.epoch} copy {row.copy} lane {row.lane}"
    yield Step(label, _go(send(setup, world, job, row), told))


def _close(setup: Setup, world: World, me: Pacer) -> Iterator[Step]:
    """Close the run, grant the new allowance and release the lock: one transaction, if we own both."""
    if me.grant and not setup.keeps("the grant is part of the close"):
        granted = world._replace(allowance=me.grant)
        broken = admission(setup, world, granted)
        yield Step(f"p{me.token} grants {me.grant}", _go(granted, me._replace(grant=0)), broken)
        return
    run = world.runs[me.run]
    owns = world.lock.owner == me.token and run.owner == me.token and run.state in ("open", "planned")
    if not owns and setup.keeps("closing is conditional on the owner"):
        yield Step(f"p{me.token} is not the owner any more", _end(world, me))
        return
    stopped = world.control.paused and setup.keeps("no grant while paused")
    grant = 0 if stopped else me.grant
    closed = _set_run(world, me, run._replace(state="closed"))._replace(lock=Lock())
    closed = closed._replace(allowance=grant) if me.grant else closed
    broken = admission(setup, world, closed) if grant else None
    yield Step(f"p{me.token} closes run {me.run}, grants {grant}", _end(closed, me), broken)


def _drop(setup: Setup, world: World, me: Pacer) -> World:
    """Let go of the lock, if it is ours, and end: the run stays open for another tick."""
    ours = world.lock.owner == me.token or not setup.keeps("dropping the lock is conditional on the owner")
    return _end(world._replace(lock=Lock()) if ours else world, me)


def _go(world: World, me: Pacer) -> World:
    pacers = tuple(me if each.token == me.token else each for each in world.pacers)
    return world._replace(pacers=pacers)


def _end(world: World, me: Pacer) -> World:
    return world._replace(pacers=tuple(each for each in world.pacers if each.token != me.token))


def _set_run(world: World, me: Pacer, run: Run) -> World:
    return world._replace(runs=(*world.runs[: me.run], run, *world.runs[me.run + 1 :]))


STEPS = {
    "take": _take,
    "lock": _lock_late,
    "withdraw": _withdraw,
    "gather": _gather,
    "plan": _plan,
    "claim": _claim,
    "send": _send,
    "touch": _touch,
    "resend": _resend,
    "close": _close,
}
