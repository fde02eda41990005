"""The drill from beginning to end: its parts in order, each with what it found, and the class as it was before."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ops.drill.site import SOURCE, DrillFailed, Site, check
from ops.long_run import Meter, meter_for
from ops.simulator.ledger_drive import LedgerDrive
from ops.simulator.ledger_file import read_class
from ops.simulator.scenario import load_scenario
from ops.submission.source import opened
from ops.transfer.copying import LedgerCopy
from ops.transfer.export import Asked, Export, PartFile
from ops.transfer.importing import Import
from ops.wording import counted, sentence_of
from shared.domain.control import RunKey, SlotsOverride, TickLine, slots_in_force
from shared.domain.job import MINUTE_MS, Job, Lane, State
from shared.domain.settings import MIN_LANE_SLOTS
from shared.errors import SluiceError
from shared.operate import concurrency as slots
from shared.operate import switches
from shared.steps.counting import count_inflight, count_rows

# -- what runs: the same minute again, and the same message again

LONG_S: Final = 20.0
"""A chunk that lasts long enough to be met in its middle."""

_SETTLE_S: Final = 5.0
"""What a second tick of the minute would need to come on record."""

_MINUTES: Final = 3
"""Minutes that are tried for a tick that no other one is in the way of."""

_OTHER_LANE: Final = {Lane.LIVE: Lane.RECOVERY, Lane.RECOVERY: Lane.LIVE}


def one_run(site: Site) -> str:
    """The same minute from the schedule, from its repeat, and from an invocation by hand: one run, one tick (I6)."""
    ids = site.submit(3, '{"seconds": 0}')
    key, first = _a_minute(site)
    outcomes = [first, site.tick(key), site.pacer.tick(key, source=SOURCE)]
    site.until(lambda: bool(site.ticks(key)), "the tick is on record")
    site.ports.clock.sleep(_SETTLE_S)
    ticks, worked = site.ticks(key), len(outcomes) - outcomes.count("duplicate")
    check(worked <= 1, f"{key.run_id} was executed {worked} times: {', '.join(outcomes)}")
    check(len(ticks) == 1, f"{key.run_id} left {len(ticks)} ticks on record, one was expected")
    site.until_done(ids, "the drill's jobs are done")
    return f"{key.run_id}: {', '.join(outcomes)}; 1 tick on record"


def _a_minute(site: Site) -> tuple[RunKey, str]:
    """One whose tick is not in another's way: the schedule's tick of the minute before may still hold the lock."""
    outcome = ""
    for _ in range(_MINUTES):
        key = site.this_minute()
        outcome = site.tick(key)
        if outcome in ("closed", "duplicate"):
            return key, outcome
        site.ports.clock.sleep((key.minute_ms + MINUTE_MS - site.now_ms()) / 1000)
    raise DrillFailed(f"no tick came through in {_MINUTES} minutes: the last one was {outcome}")


def one_effect(site: Site) -> str:
    """A message of an earlier epoch beside a running job, and the job's own message after its end: both are stale, and
    nothing runs twice (I2, I4). The drill's own kind also lets a worker die between a commit and its acknowledgement.
    """
    since_ms, before = site.now_ms(), site.stale(site.now_ms())
    (killed,) = site.submit(1, '{"chunks": 2, "die_at": 1}') if site.has_own_kind else ("",)
    (long,) = site.submit(1, json.dumps({"seconds": LONG_S}))
    site.until(lambda: site.row(long).state is not State.WAITING, "a drill job is admitted")
    running = site.row(long)
    _send_stale(site, running)
    site.until_done([long], "the long drill job is done")
    stale = site.stale(since_ms) - before
    beside = "while it ran" if running.state is State.QUEUED else "after its end: this kind is too quick to be met"
    _until_stale(site, since_ms, before + 1, f"a message of an earlier epoch was not found stale ({stale} were)")
    done = site.row(long)
    outputs = site.ports.ledger.outputs(long)
    site.send(done, epoch=done.epoch, copy=done.copy + 1, lane=done.lane or Lane.LIVE)
    _until_stale(site, since_ms, before + 2, "the message of a finished job was not found stale")
    check(site.row(long) == done, "a finished row was changed by its own message")
    check(site.ports.ledger.outputs(long) == outputs, "a finished job's outputs were changed by its own message")
    return f"an earlier message stale {beside}, its own message stale after its end; {_death(site, killed)}"


def _send_stale(site: Site, running: Job) -> None:
    """Through the other lane and another group: it must meet the row while its own message is being worked."""
    lane = _OTHER_LANE[running.lane or Lane.LIVE]
    site.send(running, epoch=running.epoch - 1, copy=running.copy, lane=lane, group=f"drill-{site.nonce}")


def _until_stale(site: Site, since_ms: int, wanted: int, what: str) -> None:
    site.until(lambda: site.stale(since_ms) >= wanted, what, within_s=30)


def _death(site: Site, killed: str) -> str:
    if not killed:
        return "no worker was killed: only the drill's own kind can be told to die"
    site.until_done([killed], "the killed drill job is done")
    row = site.row(killed)
    outputs = [output.cursor for output in site.ports.ledger.outputs(killed)]
    check(row.mark is not None, "no worker was killed: the job was never delivered again")
    check(outputs == ["", "1"], f"the killed job has {len(outputs)} outputs of 2 chunks")
    check(row.attempts == 0, "the kill burned an attempt")
    return "a worker killed between commit and acknowledgement: resumed at its cursor, 2 outputs of 2 chunks"


# -- stopping: pause, fewer workers, resume; and what waits meanwhile

QUEUED: Final = 4
DELAYED: Final = 2
DELAY_S: Final = 45
"""Jobs that wait during the pause: so many at once, and so many that are due a while later."""

_AGE_SLACK_S: Final = 5
"""What two clocks may differ by."""


def pause(site: Site) -> str:
    """Nothing more is admitted, what is in flight settles, what is queued and delayed is all still there (I10)."""
    (flying,) = site.submit(1, '{"seconds": 8}')
    site.until(lambda: site.row(flying).state is not State.WAITING, "a drill job is admitted")
    switches.pause(site.ports, site.name, by=site.by, why=site.why)
    due_ms = site.now_ms()
    ids = site.submit(QUEUED, '{"seconds": 0}', due_ms=due_ms)
    ids += site.submit(DELAYED, '{"seconds": 0}', due_ms=due_ms + DELAY_S * 1000)
    site.until_done([flying], "what was in flight has settled")
    tick = _next_tick(site, "a tick has come during the pause")
    states = site.states(ids)
    check(states == [State.WAITING] * len(ids), f"{states.count(State.WAITING)} of {len(ids)} jobs still wait")
    check(tick.paused, "the tick during the pause did not know of it")
    check(tick.admitted == tick.granted == 0, f"the tick during the pause admitted {tick.admitted} rows")
    oldest_s = (tick.at_ms - due_ms) // 1000
    check(tick.oldest_age_s <= oldest_s + _AGE_SLACK_S, f"the oldest age is said to be {tick.oldest_age_s} s")
    return f"{QUEUED} queued and {DELAYED} delayed jobs all there after a tick; in flight: settled; 0 admitted"


def _next_tick(site: Site, what: str) -> TickLine:
    since_ms = site.now_ms()

    def ticks() -> list[TickLine]:
        return [tick for tick in site.ports.ledger.read_control(site.name).history if tick.at_ms > since_ms]

    site.until(lambda: bool(ticks()), what)
    return ticks()[-1]


def concurrency(site: Site) -> str:
    """Fewer workers, read back from the mappings, and then exactly as many as before."""
    before = slots.show(site.ports, site.mappings, site.job_class)
    least = len(Lane) * MIN_LANE_SLOTS
    fewer = max(least, before.in_force // 2)
    if fewer >= before.in_force:
        return f"not tried: {before.in_force} slots are the least that two lanes can have"
    override = slots.change(site.ports, before, fewer, by=site.by, why=site.why)
    slots.apply(site.ports, site.mappings, before, override)
    lowered = slots.show(site.ports, site.mappings, site.job_class)
    check(lowered.agrees and lowered.in_force == fewer, f"{lowered.in_force} slots in force, {fewer} were asked for")
    back = restored(site, before.override)
    check(back.agrees and back.in_force == before.in_force, f"back at {back.in_force} slots, not {before.in_force}")
    return f"{before.in_force} -> {fewer} -> {back.in_force} slots, each read back from both lanes' mappings"


def restored(site: Site, was: SlotsOverride | None) -> slots.Concurrency:
    """As many as before, signed by whoever set them, with the same way back."""
    in_force = slots_in_force(was, configured=site.job_class.slots)
    now = slots.show(site.ports, site.mappings, site.job_class)
    override = now.override
    if now.in_force != in_force or not now.agrees:
        override = slots.change(site.ports, now, in_force, by=site.by, why=site.why)
        override = slots.apply(site.ports, site.mappings, now, override)
    if override is not None:
        kept = was if was is not None and was.verified_ms is not None else replace(override, before=in_force)
        site.ports.ledger.set_slots(site.name, kept, before=override)
    return slots.show(site.ports, site.mappings, site.job_class)


def resume(site: Site) -> str:
    """Everything drains, the delayed ones not before their time, and the oldest age is what it was."""
    switches.resume(site.ports, site.name, by=site.by, why=site.why)
    site.until_done(site.job_ids, "the drill's jobs are all done")
    tick = _next_tick(site, "a tick has come after the drain")
    own = tick.waiting.total == 0
    check(not own or tick.oldest_age_s == 0, f"nothing waits, and the oldest age is {tick.oldest_age_s} s")
    return f"{len(site.job_ids)} of {len(site.job_ids)} drill jobs done; oldest age {tick.oldest_age_s} s"


# -- restore: what waits now is exported, and drained in an empty ledger to the same ends

SCENARIO: Final = "planning-2400"
"""A pool without troubles: the question is what was exported, not what can go wrong in a drain."""


def restore(site: Site, copy: LedgerCopy, other: Site | None, other_copy: LedgerCopy | None) -> str:
    """The export is deleted afterwards; it held what the class holds."""
    with tempfile.TemporaryDirectory(prefix="sluice-drill-") as directory:
        file, meter = Path(directory) / "ledger.jsonl", meter_for(sys.stderr)
        asked = Asked(classes=(site.name,), live=False, payloads=True)
        counts = Export(site.ports, site.settings, copy, asked, meter).run(PartFile(file))
        if other is None or other_copy is None:
            where = _simulated(site, file)
        else:
            where = _deployed(site, other, other_copy, file, meter)
    return f"{counted(counts.job, 'job')} and {counted(counts.output, 'output')} exported, {where}"


def _simulated(site: Site, file: Path) -> str:
    run = LedgerDrive(load_scenario(SCENARIO), read_class(str(file), site.settings, site.name), seed=1)
    run.run()
    result = run.finish()
    check(result.passed, f"in the simulator: {'; '.join(result.said)}")
    ends = run.ends()
    done = [job_id for job_id in site.job_ids if ends.get(job_id) == State.DONE]
    check(len(done) == len(site.job_ids), f"{len(done)} of {len(site.job_ids)} drill jobs are done in the simulator")
    return f"drained in the simulator: {len(done)} of {len(done)} drill jobs done, every invariant checked"


def _deployed(site: Site, other: Site, copy: LedgerCopy, file: Path, meter: Meter) -> str:
    there = [job_id for job_id in site.job_ids if other.ports.ledger.read_job(job_id) is not None]
    check(not there, "the drill's jobs are there already: --into has to name another deployment than --outputs")
    with opened(str(file), rewindable=True) as source:
        run = Import(other.ports, other.settings, copy, meter)
        result = run.run(source, by=site.by, why=site.why, merge=False, dry_run=False)
    check(not result.refused, "the other ledger is not empty, or does not fit: python -m ops import says how")
    before = {job_id: site.row(job_id) for job_id in site.job_ids}
    check(all(other.row(job_id) == row for job_id, row in before.items()), "a row is not what it was")
    switches.resume(other.ports, other.name, by=site.by, why=site.why)
    other.job_ids = list(site.job_ids)
    other.until_done(other.job_ids, "the drill's jobs are done there")
    return f"imported into {copy.name} and drained there: {len(before)} of {len(before)} drill jobs done"


# -- from beginning to end

Work: TypeAlias = Callable[[Site], str]


class Part(StrEnum):
    """What can be drilled by itself."""

    RUN = "run"
    EFFECT = "effect"
    STOP = "stop"


class Step(Struct, frozen=True):
    """One line of the report. `found` is the evidence, or what was wrong."""

    name: str
    ok: bool
    found: str
    seconds: float


_STEPS: Final = {
    "one run a minute": (Part.RUN, one_run),
    "one effect": (Part.EFFECT, one_effect),
    "pause": (Part.STOP, pause),
    "concurrency there and back": (Part.STOP, concurrency),
    "resume and drain": (Part.STOP, resume),
}
"""A step's name in the report -> the part that it belongs to, and what it does."""

_RESTORE_AFTER: Final = "concurrency there and back"
"""While the class is paused, so that what is exported is exact."""


def backlog(site: Site) -> int:
    """Rows of the class that are not the drill's."""
    counts = count_rows(site.ports, site.job_class, site.now_ms())
    return counts.waiting + counts.behind + count_inflight(site.ports, site.job_class)


def conduct(site: Site, parts: frozenset[Part], restore: Work | None) -> Iterator[Step]:
    """Each step as it is done; the first failure ends the drill. The class is left as it was found in any case."""
    slots = site.ports.ledger.read_control(site.name).slots
    try:
        for name, work in _steps(parts, restore):
            step = _tried(site, name, work)
            yield step
            if not step.ok:
                return
    finally:
        _leave_as_found(site, slots)


def _steps(parts: frozenset[Part], restore: Work | None) -> Iterator[tuple[str, Work]]:
    for name, (part, work) in _STEPS.items():
        if part in parts:
            yield name, work
        if part in parts and name == _RESTORE_AFTER and restore is not None:
            yield "restore", restore


def _tried(site: Site, name: str, work: Work) -> Step:
    begun_ms = site.now_ms()
    try:
        evidence, ok = work(site), True
    except DrillFailed as error:
        evidence, ok = error.detail, False
    except SluiceError as error:
        evidence, ok = sentence_of(error), False
    return Step(name, ok, evidence, (site.now_ms() - begun_ms) / 1000)


def _leave_as_found(site: Site, slots: SlotsOverride | None) -> None:
    """What the drill has set and not taken back: after a failure, or ctrl-C."""
    control = site.ports.ledger.read_control(site.name)
    if control.pause is not None and (control.pause.by, control.pause.why) == (site.by, site.why):
        switches.resume(site.ports, site.name, by=site.by, why=site.why)
    if control.slots is not None and control.slots.flag.why == site.why:
        back = restored(site, slots)
        in_force = slots_in_force(slots, configured=site.job_class.slots)
        check(back.in_force == in_force, f"{back.in_force} slots are left in force: python -m ops concurrency")
