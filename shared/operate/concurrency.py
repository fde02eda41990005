"""How many workers a class may have at once: what its lanes' mappings allow, an operator's change, and the way back.

A change is written before the mappings are touched and again when both were read back. A command that dies between the
two leaves an override that `status` shows as not verified, ticks plan with the smaller number until then, and the same
command again finishes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from shared.domain.control import SlotsOverride, slots_in_force
from shared.domain.job import Lane
from shared.domain.settings import MAX_LANE_SLOTS, MIN_LANE_SLOTS, ClassSettings
from shared.errors import InvalidInput, NotVerified
from shared.operate.ports import LaneMapping, Mappings
from shared.operate.switches import signed
from shared.ports import Ports

WAIT_S: Final = 120
"""How long a mapping may take to apply a change before the command gives up waiting for it."""

_POLL_S: Final = 1.0


class Concurrency(Struct, frozen=True, kw_only=True):
    """What is configured, the operator's override of it, and what each lane's mapping allows now."""

    settings: ClassSettings
    override: SlotsOverride | None
    lanes: Mapping[Lane, LaneMapping]

    @property
    def in_force(self) -> int:
        return slots_in_force(self.override, configured=self.settings.slots)

    @property
    def agrees(self) -> bool:
        """The mappings allow what ticks plan with. Not so after a deployment that wrote them anew."""
        return _allow(self.lanes, split(self.settings, self.in_force))


def split(settings: ClassSettings, slots: int) -> dict[Lane, int]:
    """Each lane's MaximumConcurrency, by the function that the deployment splits the configured slots with."""
    overridden = replace(settings, slots=slots)
    return {lane: overridden.lane_slots(lane) for lane in Lane}


def show(ports: Ports, mappings: Mappings, settings: ClassSettings) -> Concurrency:
    override = ports.ledger.read_control(settings.name).slots
    return Concurrency(settings=settings, override=override, lanes=mappings.read(settings.name))


def change(ports: Ports, before: Concurrency, slots: int | None, *, by: str, why: str) -> SlotsOverride:
    """The override that sets this many slots, or goes back to those verified last (None). Nothing is written yet.

    InvalidInput for slots that a lane's mapping would refuse, and where there is nothing to go back to.
    """
    signature = signed(ports, by, why, expected="why the slots are set")
    was, configured = before.override, before.settings.slots
    if slots is None:
        if was is None:
            raise InvalidInput("--back", got="a class whose slots nobody has set", expected="one with a way back")
        slots = was.before
    _check(before.settings, slots)
    way_back = _way_back(was, slots, configured)
    return SlotsOverride(slots=None if slots == configured else slots, flag=signature, before=way_back)


def apply(ports: Ports, mappings: Mappings, before: Concurrency, override: SlotsOverride) -> SlotsOverride:
    """Write the override, bound both lanes, read them back, and write that it is so.

    NotVerified if they do not say so in time: the override stands, as not verified, and the same command again goes on.
    """
    settings = before.settings
    wanted = split(settings, override.wanted(settings.slots))
    _store(ports, settings, override, before=before.override)
    lanes = _until(ports, mappings, settings, lambda lanes: all(lane.settled for lane in lanes.values()))
    for lane, slots in wanted.items():
        if lanes[lane].slots != slots:
            mappings.bound(settings.name, lane, slots=slots)
    _until(ports, mappings, settings, lambda lanes: _allow(lanes, wanted))
    verified = replace(override, verified_ms=ports.clock.now_ms())
    _store(ports, settings, verified, before=override)
    ports.log.event("slots_set", job_class=settings.name, slots=override.wanted(settings.slots))
    return verified


def _store(ports: Ports, settings: ClassSettings, override: SlotsOverride, *, before: SlotsOverride | None) -> None:
    if not ports.ledger.set_slots(settings.name, override, before=before):
        got = "slots that somebody else has just set"
        raise InvalidInput("CLASS", got=got, expected="one operator at a time: look again")


def _way_back(was: SlotsOverride | None, slots: int, configured: int) -> int:
    """What was verified last; said again, or after a command that died, the way back stays what it was."""
    if was is None:
        return configured
    now = was.wanted(configured)
    return was.before if was.verified_ms is None or now == slots else now


def _check(settings: ClassSettings, slots: int) -> None:
    least = len(Lane) * MIN_LANE_SLOTS
    if slots < least:
        raise InvalidInput("slots", got=f"{slots}", expected=f"at least {least}: {MIN_LANE_SLOTS} for each lane")
    for lane, part in split(settings, slots).items():
        if part > MAX_LANE_SLOTS:
            got = f"{slots}, which are {part} for the {lane} lane"
            raise InvalidInput("slots", got=got, expected=f"at most {MAX_LANE_SLOTS} for each lane")


def _allow(lanes: Mapping[Lane, LaneMapping], wanted: Mapping[Lane, int]) -> bool:
    return all(lanes[lane].settled and lanes[lane].slots == slots for lane, slots in wanted.items())


def _until(
    ports: Ports, mappings: Mappings, settings: ClassSettings, holds: Callable[[Mapping[Lane, LaneMapping]], bool]
) -> Mapping[Lane, LaneMapping]:
    end_ms = ports.clock.now_ms() + WAIT_S * 1000
    while True:
        lanes = mappings.read(settings.name)
        if holds(lanes):
            return lanes
        if ports.clock.now_ms() >= end_ms:
            raise NotVerified(f"{settings.name} after {WAIT_S} s")
        ports.clock.sleep(_POLL_S)
