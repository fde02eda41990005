"""What a worker wants to know while it works: is its class halted, how long do chunks take, how fast may it call."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock
from typing import Final

from shared.core.rate import rate_in_force
from shared.core.settings import ClassSettings, UpstreamSettings
from shared.errors import LedgerUnavailable
from shared.ports import Ports

FRESH_MS: Final = 5_000


class ClassWatch:
    """One per invocation; groups that run in parallel share it. The lock is never held across a port call."""

    def __init__(self, ports: Ports, settings: ClassSettings, upstream: UpstreamSettings | None) -> None:
        self._ports = ports
        self._settings = settings
        self._lock = Lock()
        self._read_ms = -FRESH_MS
        self._halted = False
        self._p95_chunk_s = settings.declared_chunk_s
        self._declared = self._upstream = upstream
        self.reads = 0
        """How often control was read, which is paid by its size."""

    def halted(self) -> bool:
        """Workers give their jobs back at the next chunk."""
        self._refresh()
        return self._halted

    def p95_chunk_s(self) -> float:
        """As the last tick measured it; the declared time until then."""
        self._refresh()
        return self._p95_chunk_s

    def upstream(self) -> UpstreamSettings | None:
        """The upstream with the rate in force: the one number that pacer and permits share."""
        self._refresh()
        return self._upstream

    def _refresh(self) -> None:
        now_ms = self._ports.clock.now_ms()
        with self._lock:
            due = now_ms - self._read_ms >= FRESH_MS
            if due:
                self._read_ms = now_ms
        if due:
            try:
                self.load()
            except LedgerUnavailable:
                return  # what was read last still serves: a finished chunk must not be lost for this

    def load(self) -> None:
        """Read everything. Called before the first group begins: groups that start together must not meet defaults."""
        self._read_ms = self._ports.clock.now_ms()
        self.reads += 1
        control = self._ports.ledger.read_control(self._settings.name)
        self._halted = control.halt is not None
        if control.measures is not None:
            self._p95_chunk_s = control.measures.long_chunk_s.value
        if self._declared is not None:
            learned = self._ports.ledger.read_learned(self._declared.name)
            self._upstream = replace(self._declared, learned_per_s=rate_in_force(learned, self._declared))
