"""The parts of a drill about stopping: pause, fewer workers, resume; and what waits meanwhile."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from ops.drill.ground import Ground, check
from shared.domain.control import SlotsOverride, slots_in_force
from shared.domain.job import Lane, State
from shared.domain.settings import MIN_LANE_SLOTS
from shared.operate import concurrency as slots
from shared.operate import switches

QUEUED: Final = 4
DELAYED: Final = 2
DELAY_S: Final = 45

_AGE_SLACK_S: Final = 5


def pause(ground: Ground) -> str:
    """Nothing more is admitted, what is in flight settles, what is queued and delayed is all still there (I10)."""
    (flying,) = ground.submit(1, '{"seconds": 8}')
    ground.until(lambda: ground.row(flying).state is not State.WAITING, "a drill job is admitted")
    switches.pause(ground.ports, ground.name, by=ground.by, why=ground.why)
    due_ms = ground.now_ms()
    ids = ground.submit(QUEUED, '{"seconds": 0}', due_ms=due_ms)
    ids += ground.submit(DELAYED, '{"seconds": 0}', due_ms=due_ms + DELAY_S * 1000)
    ground.until(lambda: ground.row(flying).state is State.DONE, "what was in flight has settled")
    since_ms = ground.now_ms()
    ground.until(lambda: _paused_tick_ms(ground) > since_ms, "a tick has come during the pause")
    states = ground.states(ids)
    check(states == [State.WAITING] * len(ids), f"{states.count(State.WAITING)} of {len(ids)} jobs still wait")
    line = ground.ports.ledger.read_control(ground.name).history[-1]
    check(line.paused, "the tick during the pause did not know of it")
    check(line.admitted == line.granted == 0, f"the tick during the pause admitted {line.admitted} rows")
    oldest_s = (line.at_ms - due_ms) // 1000
    check(line.oldest_age_s <= oldest_s + _AGE_SLACK_S, f"the oldest age is said to be {line.oldest_age_s} s")
    return f"{QUEUED} queued and {DELAYED} delayed jobs all there after a tick; in flight: settled; 0 admitted"


def _paused_tick_ms(ground: Ground) -> int:
    history = ground.ports.ledger.read_control(ground.name).history
    return history[-1].at_ms if history else 0


def concurrency(ground: Ground) -> str:
    """Fewer workers, read back from the mappings, and then exactly as many as before."""
    before = slots.show(ground.ports, ground.mappings, ground.job_class)
    least = len(Lane) * MIN_LANE_SLOTS
    fewer = max(least, before.in_force // 2)
    if fewer >= before.in_force:
        return f"not tried: {before.in_force} slots are the least that two lanes can have"
    word = slots.change(ground.ports, before, fewer, by=ground.by, why=ground.why)
    slots.apply(ground.ports, ground.mappings, before, word)
    lowered = slots.show(ground.ports, ground.mappings, ground.job_class)
    check(lowered.agrees and lowered.in_force == fewer, f"{lowered.in_force} slots in force, {fewer} were asked for")
    back = restored(ground, before.override)
    check(back.agrees and back.in_force == before.in_force, f"back at {back.in_force} slots, not {before.in_force}")
    return f"{before.in_force} -> {fewer} -> {back.in_force} slots, each read back from both lanes' mappings"


def restored(ground: Ground, was: SlotsOverride | None) -> slots.Concurrency:
    """As many as before, signed by whoever set them, with the same way back."""
    in_force = slots_in_force(was, configured=ground.job_class.slots)
    seen = slots.show(ground.ports, ground.mappings, ground.job_class)
    word = seen.override
    if seen.in_force != in_force or not seen.agrees:
        word = slots.change(ground.ports, seen, in_force, by=ground.by, why=ground.why)
        word = slots.apply(ground.ports, ground.mappings, seen, word)
    if word is not None:
        kept = was if was is not None and was.verified_ms is not None else replace(word, before=in_force)
        ground.ports.ledger.set_slots(ground.name, kept, before=word)
    return slots.show(ground.ports, ground.mappings, ground.job_class)


def resume(ground: Ground) -> str:
    """Everything drains, the delayed ones not before their time, and the oldest age is what it was."""
    switches.resume(ground.ports, ground.name, by=ground.by, why=ground.why)
    ground.until(lambda: set(ground.states(ground.job_ids)) == {State.DONE}, "the drill's jobs are all done")
    since_ms = ground.now_ms()
    ground.until(lambda: _paused_tick_ms(ground) > since_ms, "a tick has come after the drain")
    line = ground.ports.ledger.read_control(ground.name).history[-1]
    own = line.waiting.total == 0
    check(not own or line.oldest_age_s == 0, f"nothing waits, and the oldest age is {line.oldest_age_s} s")
    return f"{len(ground.job_ids)} of {len(ground.job_ids)} drill jobs done; oldest age {line.oldest_age_s} s"
