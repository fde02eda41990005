"""Job classes that are deployed and not configured any more: which of them still have rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shared.core.settings import ClassSettings
from shared.core.values import frozen
from shared.ports import Ports
from shared.usecases.counting import count_inflight, count_rows

_MOST_PRIORITIES: Final = 9
"""What the removed class had is no longer written anywhere, so all lists that a class may have are counted."""


@frozen
class RemovedClass:
    """`open_rows` wait, are held or are in flight; `dead_rows` wait for an operator."""

    name: str
    open_rows: int
    dead_rows: int

    @property
    def is_empty(self) -> bool:
        return self.open_rows == 0 and self.dead_rows == 0


def removed_classes(ports: Ports, *, deployed: Iterable[str], configured: Iterable[str]) -> list[RemovedClass]:
    """The classes that the next deployment would take away, by name, with the rows that nobody would work any more."""
    return [_counted(ports, name) for name in sorted(set(deployed) - set(configured))]


def _counted(ports: Ports, name: str) -> RemovedClass:
    whole = ClassSettings(name=name, kind="", priorities=_MOST_PRIORITIES, ordered=True)
    counts = count_rows(ports, whole, ports.clock.now_ms())
    open_rows = counts.waiting + counts.behind + count_inflight(ports, whole)
    return RemovedClass(name=name, open_rows=open_rows, dead_rows=counts.dead)
