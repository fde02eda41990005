"""The parts of a drill about what runs: the same minute again, and the same message again."""

from __future__ import annotations

import json
from typing import Final

from ops.drill.ground import SOURCE, DrillFailed, Ground, check
from shared.domain.control import RunKey
from shared.domain.job import MINUTE_MS, Job, Lane, State

LONG_S: Final = 20.0
"""A chunk that lasts long enough to be met in its middle."""

_SETTLE_S: Final = 5.0
_MINUTES: Final = 3
_OTHER: Final = {Lane.LIVE: Lane.RECOVERY, Lane.RECOVERY: Lane.LIVE}


def one_run(ground: Ground) -> str:
    """The same minute from the schedule, from its repeat, and from an invocation by hand: one run, one tick (I6)."""
    ids = ground.submit(3, '{"seconds": 0}')
    key, first = _a_minute(ground)
    outcomes = [first, ground.tick(key)[1], ground.pacer.tick(key, source=SOURCE)]
    ground.until(lambda: bool(ground.lines(key)), "the tick is on record")
    ground.ports.clock.sleep(_SETTLE_S)
    lines, worked = ground.lines(key), len(outcomes) - outcomes.count("duplicate")
    check(worked <= 1, f"{key.run_id} was executed {worked} times: {', '.join(outcomes)}")
    check(len(lines) == 1, f"{key.run_id} left {len(lines)} ticks on record, one was expected")
    ground.until(lambda: set(ground.states(ids)) == {State.DONE}, "the drill's jobs are done")
    return f"{key.run_id}: {', '.join(outcomes)}; 1 tick on record"


def _a_minute(ground: Ground) -> tuple[RunKey, str]:
    """One whose tick is not in another's way: the schedule's tick of the minute before may still hold the lock."""
    outcome = ""
    for _ in range(_MINUTES):
        key, outcome = ground.tick()
        if outcome in ("closed", "duplicate"):
            return key, outcome
        ground.ports.clock.sleep((key.minute_ms + MINUTE_MS - ground.now_ms()) / 1000)
    raise DrillFailed(f"no tick came through in {_MINUTES} minutes: the last one was {outcome}")


def one_effect(ground: Ground) -> str:
    """A message of an earlier epoch beside a running job, and the job's own message after its end: both are stale, and
    nothing runs twice (I2, I4). The drill's own kind also lets a worker die between a commit and its acknowledgement.
    """
    since_ms, before = ground.now_ms(), ground.stale(ground.now_ms())
    (killed,) = ground.submit(1, '{"chunks": 2, "die_at": 1}') if ground.has_own_kind else ("",)
    (long,) = ground.submit(1, json.dumps({"seconds": LONG_S}))
    ground.until(lambda: ground.row(long).state is not State.WAITING, "a drill job is admitted")
    running = ground.row(long)
    _send_stale(ground, running)
    ground.until(lambda: ground.row(long).state is State.DONE, "the long drill job is done")
    found = ground.stale(since_ms) - before
    beside = "while it ran" if running.state is State.QUEUED else "after its end: this kind is too quick to be met"
    _until_stale(ground, since_ms, before + 1, f"a message of an earlier epoch was not found stale ({found} were)")
    done = ground.row(long)
    outputs = ground.ports.ledger.outputs(long)
    ground.send(done, epoch=done.epoch, copy=done.copy + 1, lane=done.lane or Lane.LIVE)
    _until_stale(ground, since_ms, before + 2, "the message of a finished job was not found stale")
    check(ground.row(long) == done, "a finished row was changed by its own message")
    check(ground.ports.ledger.outputs(long) == outputs, "a finished job's outputs were changed by its own message")
    return f"an earlier message stale {beside}, its own message stale after its end; {_death(ground, killed)}"


def _send_stale(ground: Ground, running: Job) -> None:
    """Through the other lane and another group: it must meet the row while its own message is being worked."""
    lane = _OTHER[running.lane or Lane.LIVE]
    ground.send(running, epoch=running.epoch - 1, copy=running.copy, lane=lane, group=f"drill-{ground.nonce}")


def _until_stale(ground: Ground, since_ms: int, wanted: int, what: str) -> None:
    ground.until(lambda: ground.stale(since_ms) >= wanted, what, within_s=30)


def _death(ground: Ground, killed: str) -> str:
    if not killed:
        return "no worker was killed: only the drill's own kind can be told to die"
    ground.until(lambda: ground.row(killed).state is State.DONE, "the killed drill job is done")
    row = ground.row(killed)
    outputs = [output.cursor for output in ground.ports.ledger.outputs(killed)]
    check(row.mark is not None, "no worker was killed: the job was never delivered again")
    check(outputs == ["", "1"], f"the killed job has {len(outputs)} outputs of 2 chunks")
    check(row.attempts == 0, "the kill burned an attempt")
    return "a worker killed between commit and acknowledgement: resumed at its cursor, 2 outputs of 2 chunks"
