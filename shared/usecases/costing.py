"""What a class has cost since its tick before: from the counters that its workers flush anyhow, and the tick itself."""

from __future__ import annotations

from typing import Final

from shared.core.cost import Spending
from shared.core.runs import TickLine
from shared.core.settings import ClassSettings
from shared.core.signals import minutes_since
from shared.core.usage import spent
from shared.errors import LedgerUnavailable
from shared.ports import Ports
from shared.usecases.gathering import Gathered, windows_at

MOST_MINUTES: Final = 60
"""Ticks further apart than this say nothing of their cost: it would take more reads than it is worth."""


def cost_of_tick(ports: Ports, settings: ClassSettings, seen: Gathered, line: TickLine) -> Spending | None:
    """None where not all of its minutes can be read. A cost is never worth a tick."""
    history = seen.control.history
    minutes_ms = minutes_since(line.at_ms, history[-1].at_ms if history else None)
    if len(minutes_ms) > MOST_MINUTES:
        return None
    try:
        found = windows_at(ports, settings, seen, minutes_ms)
    except LedgerUnavailable:
        return None
    windows = [found[start_ms] for start_ms in minutes_ms]
    return spent(windows, settings, ticks=1, rows=line.pending + line.dead, prices=seen.prices)
