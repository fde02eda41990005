"""What an operator sees of a class: what the last tick said of it, or a count of its rows now. Nothing is written.

Also of classes that are deployed and not configured any more: which of them still have rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from shared.domain.control import Control, RateOverride, SlotsOverride, Stage, TickLine
from shared.domain.job import Flag, LaneCounts
from shared.domain.settings import ClassSettings
from shared.pacer.cost import Spending, summed, unpacked
from shared.pacer.forecast import DrainState, Eta, drain_eta
from shared.ports import Ports
from shared.steps.counting import count_inflight, count_rows

NOT_TICKED: Final = "not_ticked"
"""The state of a class of which neither a tick nor a count has said anything."""

HALTED: Final = "halted"
"""The state of a class whose workers give their jobs back, whatever its rows are."""

MISSED_TICKS: Final = 2
"""Intervals without a tick, beyond the declared lateness, after which the schedule is taken to have stopped."""

_MOST_PRIORITIES: Final = 9
"""What a removed class had is no longer written anywhere, so all lists that a class may have are counted."""


class Rows(Struct, frozen=True, kw_only=True):
    """Rows by where they are, at `at_ms`. `waiting` may be claimed now, `later` is not due yet."""

    at_ms: int
    exact: bool
    waiting: LaneCounts
    later: int
    in_flight: int
    behind: int
    dead: int
    oldest_age_s: int

    @property
    def pending(self) -> int:
        return self.waiting.total + self.later + self.behind + self.in_flight


class ClassStatus(Struct, frozen=True, kw_only=True):
    """`state` is a DrainState, `halted`, or `not_ticked`. `rows` is None where no tick and no count has said anything.

    `eta_s` counts from now, and is there only if the class drains or is empty (I11). `rate` and `slots` are the
    operator's overrides in force, `stage` is where a staged recovery stands. `cost` is that of the ticks that control
    remembers, None if none of them said any.
    """

    job_class: str
    state: str
    pause: Flag | None
    halt: Flag | None
    rows: Rows | None
    last_tick: TickLine | None
    tick_age_s: int | None
    ticks_missing: bool
    net_rate_per_s: float | None
    eta_s: float | None
    rate: RateOverride | None
    slots: SlotsOverride | None
    configured_slots: int
    stage: Stage | None
    cost: Spending | None


class Watched(Struct, frozen=True, kw_only=True):
    """One look at a class and the ticks that control remembers, oldest first."""

    at_ms: int
    status: ClassStatus
    ticks: tuple[TickLine, ...]


def watched(ports: Ports, settings: ClassSettings) -> Watched:
    """One read of control."""
    control, now_ms = ports.ledger.read_control(settings.name), ports.clock.now_ms()
    return Watched(at_ms=now_ms, status=_status(ports, settings, control, now_ms), ticks=control.history)


def class_status(ports: Ports, settings: ClassSettings, *, exact: bool) -> ClassStatus:
    """One read of control, whatever the ledger holds; `exact` counts the rows as well, all pages of the index."""
    control = ports.ledger.read_control(settings.name)
    return _status(ports, settings, control, ports.clock.now_ms(), exact=exact)


def _status(
    ports: Ports, settings: ClassSettings, control: Control, now_ms: int, *, exact: bool = False
) -> ClassStatus:
    last = control.history[-1] if control.history else None
    rows = _counted(ports, settings, now_ms) if exact else (None if last is None else _of_tick(last))
    eta = None if rows is None else _eta(control, rows)
    tick_age_s = None if last is None else max(0, now_ms - last.at_ms) // 1000
    longest_silence_s = MISSED_TICKS * settings.tick_interval_s + settings.lateness_s
    costs = [cost for line in control.history if (cost := unpacked(line.cost)) is not None]
    return ClassStatus(
        job_class=settings.name,
        state=_state(control, eta),
        pause=control.pause,
        halt=control.halt,
        rows=rows,
        last_tick=last,
        tick_age_s=tick_age_s,
        ticks_missing=tick_age_s is not None and tick_age_s > longest_silence_s,
        net_rate_per_s=None if eta is None else eta.rate_per_s,
        eta_s=None if eta is None else _from_now(eta, rows, now_ms),
        rate=control.rate if control.rate is not None and control.rate.holds(now_ms) else None,
        configured_slots=settings.slots,
        slots=None if control.slots is None or control.slots.settled else control.slots,
        stage=control.stage if control.admits else None,
        cost=summed(costs) if costs else None,
    )


def _of_tick(line: TickLine) -> Rows:
    return Rows(
        at_ms=line.at_ms,
        exact=False,
        waiting=line.waiting,
        later=line.later,
        in_flight=line.in_flight,
        behind=line.behind,
        dead=line.dead,
        oldest_age_s=line.oldest_age_s,
    )


def _counted(ports: Ports, settings: ClassSettings, now_ms: int) -> Rows:
    counts = count_rows(ports, settings, now_ms)
    oldest_ms = counts.oldest_eligible_ms
    return Rows(
        at_ms=now_ms,
        exact=True,
        waiting=counts.eligible,
        later=counts.later,
        in_flight=count_inflight(ports, settings),
        behind=counts.behind,
        dead=counts.dead,
        oldest_age_s=0 if oldest_ms is None else max(0, now_ms - oldest_ms) // 1000,
    )


def _eta(control: Control, rows: Rows) -> Eta:
    """As the tick says it: observed over the history up to `rows`, which are the newest point themselves."""
    history = control.history if rows.exact else control.history[:-1]
    return drain_eta(history, now_ms=rows.at_ms, pending=rows.pending, paused=not control.admits, later=rows.later)


def _state(control: Control, eta: Eta | None) -> str:
    if control.halt is not None:
        return HALTED
    if control.pause is not None:
        return DrainState.PAUSED.value
    return NOT_TICKED if eta is None else eta.state.value


def _from_now(eta: Eta, rows: Rows | None, now_ms: int) -> float | None:
    if eta.seconds is None or rows is None:
        return None
    return max(0.0, eta.seconds - max(0, now_ms - rows.at_ms) / 1000)


class RemovedClass(Struct, frozen=True, kw_only=True):
    """`open_rows` wait, are held or are in flight; `dead_rows` wait for an operator."""

    name: str
    open_rows: int
    dead_rows: int

    @property
    def is_empty(self) -> bool:
        return self.open_rows == 0 and self.dead_rows == 0


def removed_classes(ports: Ports, *, deployed: Iterable[str], configured: Iterable[str]) -> list[RemovedClass]:
    """The classes that the next deployment would take away, by name, with the rows that nobody would work any more."""
    removed = []
    for name in sorted(set(deployed) - set(configured)):
        all_lists = ClassSettings(name=name, kind="", priorities=_MOST_PRIORITIES, ordered=True)
        counts = count_rows(ports, all_lists, ports.clock.now_ms())
        open_rows = counts.waiting + counts.behind + count_inflight(ports, all_lists)
        removed.append(RemovedClass(name=name, open_rows=open_rows, dead_rows=counts.dead))
    return removed
