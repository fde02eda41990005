"""The drill from beginning to end: its parts in order, each with what it found, and the class as it was before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from ops.drill import running, stopping
from ops.drill.ground import DrillFailed, Ground, check
from ops.wording import sentence_of
from shared.domain.control import SlotsOverride, slots_in_force
from shared.errors import SluiceError
from shared.operate import switches
from shared.steps.counting import count_inflight, count_rows

Work: TypeAlias = Callable[[Ground], str]


class Part(StrEnum):
    """What can be drilled by itself."""

    RUN = "run"
    EFFECT = "effect"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the report. `found` is the evidence, or what was wrong."""

    name: str
    ok: bool
    found: str
    seconds: float


_NAMES: Final = {
    "one run a minute": (Part.RUN, running.one_run),
    "one effect": (Part.EFFECT, running.one_effect),
    "pause": (Part.STOP, stopping.pause),
    "concurrency there and back": (Part.STOP, stopping.concurrency),
    "resume and drain": (Part.STOP, stopping.resume),
}
_RESTORE_AFTER: Final = "concurrency there and back"


def backlog(ground: Ground) -> int:
    """Rows of the class that are not the drill's."""
    counts = count_rows(ground.ports, ground.job_class, ground.now_ms())
    return counts.waiting + counts.behind + count_inflight(ground.ports, ground.job_class)


def conduct(ground: Ground, parts: frozenset[Part], restore: Work | None) -> Iterator[Step]:
    """Each step as it is done; the first failure ends the drill. The class is left as it was found in any case."""
    slots = ground.ports.ledger.read_control(ground.name).slots
    try:
        for name, work in _steps(parts, restore):
            step = _tried(ground, name, work)
            yield step
            if not step.ok:
                return
    finally:
        _leave_as_found(ground, slots)


def _steps(parts: frozenset[Part], restore: Work | None) -> Iterator[tuple[str, Work]]:
    for name, (part, work) in _NAMES.items():
        if part in parts:
            yield name, work
        if part in parts and name == _RESTORE_AFTER and restore is not None:
            yield "restore", restore


def _tried(ground: Ground, name: str, work: Work) -> Step:
    begun_ms = ground.now_ms()
    try:
        found, ok = work(ground), True
    except DrillFailed as error:
        found, ok = error.detail, False
    except SluiceError as error:
        found, ok = sentence_of(error), False
    return Step(name, ok, found, (ground.now_ms() - begun_ms) / 1000)


def _leave_as_found(ground: Ground, slots: SlotsOverride | None) -> None:
    """What the drill has set and not taken back: after a failure, or ctrl-C."""
    control = ground.ports.ledger.read_control(ground.name)
    if control.pause is not None and (control.pause.by, control.pause.why) == (ground.by, ground.why):
        switches.resume(ground.ports, ground.name, by=ground.by, why=ground.why)
    if control.slots is not None and control.slots.flag.why == ground.why:
        back = stopping.restored(ground, slots)
        in_force = slots_in_force(slots, configured=ground.job_class.slots)
        check(back.in_force == in_force, f"{back.in_force} slots are left in force: python -m ops concurrency")
