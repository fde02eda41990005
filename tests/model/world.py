"""The model's world as one immutable value, and the few things that can be done to it.

What a real system spreads over DynamoDB, SQS and running processes is one tuple here, so that two ways to the same
situation are one state and a search can visit all of them. Times are left out: what time decides (a row is old enough
for the sweep, a lock has run out) may happen at any moment, within a budget.
"""

from __future__ import annotations

from typing import NamedTuple

VISIBLE, HOLDER_DIED = -1, -2
"""Who holds a message: nobody, a worker that is no more, or (0 and up) a worker."""

ENDED = ("done", "skipped")


class Row(NamedTuple):
    """A job in the ledger. `nonce` is kept only in worlds where an answer can be lost."""

    state: str  # absent, waiting, queued, behind, done, dead, skipped
    cursor: int = 0
    epoch: int = 0
    copy: int = 0
    lane: int = 0
    nonce: int = 0


class Message(NamedTuple):
    """A message in a queue. `group` is the match: one message of a group and lane is out at a time."""

    lane: int
    group: int
    job: int
    epoch: int
    copy: int
    receives: int = 0
    holder: int = VISIBLE


class Worker(NamedTuple):
    """An invocation at one of its steps. `seen` is the row as it read or made it; `then`, the step after a retry."""

    step: str
    job: int
    epoch: int
    seen: Row
    then: str = ""
    head: int | None = None
    tail: int = 0
    paused: bool = False
    next_job: int | None = None


class Pacer(NamedTuple):
    """A tick at one of its steps. `nominees` and `inflight` are what the index showed: (job, epoch, copy)."""

    run: int
    token: int
    step: str
    budget: int = 0
    grant: int = 0
    nominees: tuple[tuple[int, int, int], ...] = ()
    inflight: tuple[tuple[int, int, int], ...] = ()
    claimed: tuple[tuple[int, Row], ...] = ()


class Run(NamedTuple):
    """`admitted` is the model's own count: nobody in the protocol reads it."""

    state: str = "absent"  # absent, open, planned, closed, skipped
    owner: int = 0
    budget: int = 0
    admitted: int = 0


class Lock(NamedTuple):
    run: int = 0
    owner: int = 0


class Control(NamedTuple):
    """`pause`: no, flag (set), committed, over. `lock_owner`: who held the class lock when the flag was set."""

    pause: str = "no"
    lock_owner: int = 0

    @property
    def paused(self) -> bool:
        return self.pause in ("flag", "committed")


class Operator(NamedTuple):
    """An operator who has read a dead row and is about to act on it."""

    verb: str
    job: int
    epoch: int
    head: int | None
    tail: int


class World(NamedTuple):
    rows: tuple[Row, ...]
    shown: tuple[Row, ...]
    """What index reads show. Equal to `rows` unless the world lets the index lag."""
    queue: tuple[Message, ...]
    dead_letters: tuple[Message, ...]
    sent: frozenset[tuple[int, ...]]
    """The queue's memory of dedup ids."""
    workers: tuple[Worker | None, ...]
    pacers: tuple[Pacer, ...]
    lock: Lock
    runs: tuple[Run, ...]
    """Run 0 is the one that the fault-free continuation uses, again and again."""
    control: Control
    allowance: int
    head: int | None
    tail: int
    submitter: tuple[object, ...]
    operators: tuple[Operator, ...]
    budgets: tuple[int, ...]
    """What is left of each of `BUDGETS`. Empty in a fault-free continuation."""


BUDGETS = (
    *("crash", "lost answer", "unsent", "unavailable", "late worker", "slow pacer"),  # faults
    *("duplicate tick", "sweep", "time up", "refusal", "death", "operator"),  # what happens on a good day as well
)
FAULTS = BUDGETS[:6]


class Setup(NamedTuple):
    """One small world to search: its size, what may happen in it and how often, and the rules taken out of it."""

    name: str
    jobs: int = 1
    workers: int = 1
    runs: int = 1
    chunks: int = 1
    max_inflight: int = 9
    max_receives: int = 9
    lanes: int = 1
    ordered: bool = False
    submits: int | None = None
    grant: int = 0
    pause: bool = False
    index_lags: bool = False
    verbs: tuple[str, ...] = ()
    budgets: tuple[tuple[str, int], ...] = ()
    without: frozenset[str] = frozenset()
    starts_dead: bool = False
    asks_who_wrote: bool = False
    """An answer can be lost, so the row's nonce matters."""
    leases_fail: bool = False
    """A worker can be late: it may then start what another one has done."""

    def keeps(self, rule: str) -> bool:
        return rule not in self.without

    def group(self, job: int) -> int:
        return 0 if self.ordered else job


class Step(NamedTuple):
    """One action: what happened, the world after it, and the invariant it broke, if any."""

    label: str
    world: World
    broken: str | None = None


def initial(setup: Setup) -> World:
    rows = [Row("behind" if setup.ordered and job else "waiting") for job in range(setup.jobs)]
    if setup.starts_dead:
        rows[0] = Row("dead", epoch=1)
    if setup.submits is not None:
        rows[setup.submits] = Row("absent")
    there = [job for job, row in enumerate(rows) if row.state != "absent"]
    allowed = dict(setup.budgets)
    return World(
        rows=tuple(rows),
        shown=tuple(rows),
        queue=(),
        dead_letters=(),
        sent=frozenset(),
        workers=(None,) * setup.workers,
        pacers=(),
        lock=Lock(),
        runs=(Run(),) * (setup.runs + 1),
        control=Control(),
        allowance=0,
        head=there[0] if there else None,
        tail=len(there),
        submitter=("idle",),
        operators=(),
        budgets=tuple(allowed.get(name, 0) for name in BUDGETS),
    )


def can(world: World, name: str) -> bool:
    return bool(world.budgets) and world.budgets[BUDGETS.index(name)] > 0


def spend(world: World, name: str) -> World:
    at = BUDGETS.index(name)
    return world._replace(budgets=(*world.budgets[:at], world.budgets[at] - 1, *world.budgets[at + 1 :]))


def put(setup: Setup, world: World, job: int, row: Row) -> World:
    """Write a row. The index follows at once, or in a step of its own where it lags."""
    if row.nonce and not setup.asks_who_wrote:
        row = row._replace(nonce=0)
    rows = (*world.rows[:job], row, *world.rows[job + 1 :])
    return world._replace(rows=rows, shown=world.shown if setup.index_lags else rows)


def enter_queue(setup: Setup, row: Row, *, lane: int, nonce: int) -> Row:
    """Rule 1: every entry to `queued` raises the epoch, and its copies count from 0 again."""
    epoch = row.epoch + 1 if setup.keeps("epoch rises") else max(1, row.epoch)
    return row._replace(state="queued", epoch=epoch, copy=0, lane=lane, nonce=nonce)


def send(setup: Setup, world: World, job: int, row: Row) -> World:
    """Send the message of a row as it was written. The queue drops what bears an id that it knows."""
    identity = (row.lane, job, row.cursor, row.epoch, row.copy if setup.keeps("copy in the id") else 0)
    if identity in world.sent:
        return world
    message = Message(row.lane, setup.group(job), job, row.epoch, row.copy)
    queue = sorted((*world.queue, message), key=lambda each: each[:2])  # stable: order matters within a group only
    useful = {each for each in (*world.sent, identity) if each[3] >= world.rows[each[1]].epoch}
    return world._replace(queue=tuple(queue), sent=frozenset(useful))


def held_by(world: World, holder: int, *, becomes: int) -> World:
    """Every message in one holder's hands changes hands."""
    queue = tuple(each._replace(holder=becomes) if each.holder == holder else each for each in world.queue)
    return world._replace(queue=queue)


def in_flight(world: World) -> int:
    return sum(row.state == "queued" for row in world.rows)


def lock_is_held(world: World) -> bool:
    """By a tick that lives. A dead tick's lock runs out by itself."""
    return any(pacer.token == world.lock.owner for pacer in world.pacers)


def admission(setup: Setup, before: World, after: World) -> str | None:
    """I1 and I10, at every admission of a row and every grant of allowance."""
    if before.control.pause == "committed":
        return "I10 something was admitted after the pause was committed"
    if in_flight(after) + after.allowance > setup.max_inflight:
        return "I1 more in flight, or allowed to be, than max_inflight"
    return None


def lanes(setup: Setup, world: World) -> range:
    """The lanes that a claim may fall into; in a fault-free continuation one is as good as the other."""
    return range(setup.lanes if world.budgets else 1)


def next_behind(world: World, job: int) -> int | None:
    later = (each for each in range(job + 1, len(world.rows)) if world.rows[each].state == "behind")
    return next(later, None)
