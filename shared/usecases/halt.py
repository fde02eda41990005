"""Whether the class is halted, read seldom: workers give their jobs back at the next chunk."""

from __future__ import annotations

from threading import Lock
from typing import Final

from shared.ports import Ports

FRESH_MS: Final = 5_000


class HaltWatch:
    """One per invocation; groups that run in parallel share it."""

    def __init__(self, ports: Ports, job_class: str) -> None:
        self._ports = ports
        self._job_class = job_class
        self._lock = Lock()
        self._read_ms = -FRESH_MS
        self._halted = False

    def halted(self) -> bool:
        now_ms = self._ports.clock.now_ms()
        with self._lock:
            due = now_ms - self._read_ms >= FRESH_MS
            if due:
                self._read_ms = now_ms
        if due:
            self._halted = self._ports.ledger.read_control(self._job_class).halt is not None
        return self._halted
