"""What a worker wants to know of its class while it works: is it halted, and how long do chunks take. Read seldom."""

from __future__ import annotations

from threading import Lock
from typing import Final

from shared.core.settings import ClassSettings
from shared.ports import Ports

FRESH_MS: Final = 5_000


class ClassWatch:
    """One per invocation; groups that run in parallel share it. The lock is never held across a port call."""

    def __init__(self, ports: Ports, settings: ClassSettings) -> None:
        self._ports = ports
        self._settings = settings
        self._lock = Lock()
        self._read_ms = -FRESH_MS
        self._halted = False
        self._p95_chunk_s = settings.declared_chunk_s

    def halted(self) -> bool:
        """Workers give their jobs back at the next chunk."""
        self._refresh()
        return self._halted

    def p95_chunk_s(self) -> float:
        """As the last tick measured it; the declared time until then."""
        self._refresh()
        return self._p95_chunk_s

    def _refresh(self) -> None:
        now_ms = self._ports.clock.now_ms()
        with self._lock:
            due = now_ms - self._read_ms >= FRESH_MS
            if due:
                self._read_ms = now_ms
        if due:
            control = self._ports.ledger.read_control(self._settings.name)
            self._halted = control.halt is not None
            if control.p95_chunk_ms is not None:
                self._p95_chunk_s = control.p95_chunk_ms / 1000
