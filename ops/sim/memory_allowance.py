"""The live allowances in memory, with the conditions that the DynamoDB transactions state."""

from __future__ import annotations

from dataclasses import replace

from shared.core.allowance import SLICES, Allowance, Grant


class MemoryAllowances:
    def __init__(self) -> None:
        self._found: dict[str, Allowance] = {}

    def read(self, job_class: str) -> Allowance:
        return self._found.get(job_class) or Allowance(job_class=job_class)

    def end(self, job_class: str) -> Allowance:
        self._found[job_class] = replace(self.read(job_class), rows=0)
        return self._found[job_class]

    def take(self, seen: Allowance, *, rows: int, at_ms: int) -> bool:
        found = self.read(seen.job_class)
        if found.run_id != seen.run_id or found.rows < rows:
            return False
        spent, place = list(found.spent), found.slice_at(at_ms)
        spent[place] += rows
        self._found[seen.job_class] = replace(found, rows=found.rows - rows, spent=tuple(spent))
        return True

    def miss(self, job_class: str, rows: int) -> None:
        found = self.read(job_class)
        self._found[job_class] = replace(found, missed=found.missed + rows)

    def account(self, job_class: str, *, missed: int) -> None:
        """A plan takes the record away; what was missed since it was read stays for the next one."""
        found = self.read(job_class)
        self._found[job_class] = replace(
            found, rows=0, granted=0, spent=(0,) * SLICES, missed=max(0, found.missed - missed)
        )

    def grant(self, job_class: str, grant: Grant) -> None:
        self._found[job_class] = replace(
            self.read(job_class),
            rows=grant.rows,
            granted=grant.rows,
            run_id=grant.run_id,
            granted_ms=grant.at_ms,
            hand_until_ms=grant.hand_until_ms,
            slice_ms=grant.slice_ms,
        )
