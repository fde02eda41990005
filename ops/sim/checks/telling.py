"""Checkers of what Sluice says: an honest ETA (I11), no secrets (I12)."""

from __future__ import annotations

import math
from typing import Final

from ops.sim.checks.base import Checker
from shared.core.runs import RunKey, TickLine

SECRETS: Final = ("canary", "job-", "match-")
"""What the simulation's payloads, job ids and match ids contain, and no line, metric or error may."""


class HonestEta(Checker):
    """Every metric is finite, an ETA is not negative, and "will not drain" is a state without a number."""

    invariant = "I11"

    def prepare(self) -> None:
        self._told = 0

    def event(self) -> None:
        sets = self.sluice.metrics.sets
        while self._told < len(sets):
            values = sets[self._told].values
            self._told += 1
            eta = values.get("DrainEtaMinutes")
            if not all(math.isfinite(value) for value in values.values()):
                self.breaks("a metric is not finite")
            if eta is not None and eta < 0:
                self.breaks(f"the ETA is {eta:g} minutes")
            if eta is not None and values.get("DrainStalled"):
                self.breaks(f"an ETA of {eta:g} minutes beside the statement that it will not drain")

    def closed(self, key: RunKey, line: TickLine) -> None:
        if line.eta_s is not None and not (math.isfinite(line.eta_s) and line.eta_s >= 0):
            self.breaks(f"{key.run_id} says an ETA of {line.eta_s} s")


class Secrecy(Checker):
    """No payload and no identifier in a log line, a metric or an error."""

    invariant = "I12"

    def prepare(self) -> None:
        self._told = 0

    def event(self) -> None:
        lines = self.sluice.log.lines
        while self._told < len(lines):
            line = lines[self._told]
            self._told += 1
            for name, value in line.fields.items():
                if isinstance(value, str) and _tells(value):
                    self.breaks(f"the log line {line.name} tells a secret in its field {name}")

    def ended(self) -> None:
        for error in self.sluice.errors:
            if _tells(str(error)):
                self.breaks(f"an error of the type {type(error).__name__} tells a secret")
        for row in self.sluice.ledger.rows.values():
            if _tells(row.job.last_error):
                self.breaks("a row's last error tells a secret")


def _tells(text: str) -> bool:
    return any(secret in text for secret in SECRETS)
