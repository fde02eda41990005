"""What ticks do to the ledger in memory: runs, the class lock, control, and the allowance that they leave."""

from __future__ import annotations

from collections.abc import Sequence

from ops.sim.memory_words import MemoryWords
from shared.core.allowance import Allowance
from shared.core.runs import Control, Run, RunKey, TakeResult, TickClose, TickMemory


class MemoryTicks(MemoryWords):
    def admit_run(self, key: RunKey, *, source: str, now_ms: int) -> bool:
        self.writes["admit_run"] += 1
        return self._runs.admit(key, source=source)

    def take_run(self, key: RunKey, *, owner: str, now_ms: int, until_ms: int) -> TakeResult:
        self.writes["take_run"] += 1
        return self._runs.take(key, owner=owner, now_ms=now_ms, until_ms=until_ms)

    def plan_run(self, key: RunKey, *, owner: str, plan: TickMemory) -> bool:
        self.writes["plan_run"] += 1
        return self._runs.plan(key, owner=owner, plan=plan)

    def skip_run(self, key: RunKey, *, reason: str) -> bool:
        self.writes["skip_run"] += 1
        return self._runs.skip(key, reason=reason)

    def close_run(self, key: RunKey, *, owner: str, close: TickClose) -> bool:
        self.writes["close_run"] += 1
        return self._runs.close(key, owner=owner, close=close)

    def drop_lock(self, key: RunKey, *, owner: str) -> None:
        self.writes["drop_lock"] += 1
        self._runs.drop(key, owner=owner)

    def read_run(self, key: RunKey) -> Run | None:
        self.reads["read_run"] += 1
        return self._runs.runs.get(key)

    def open_runs(self, job_class: str, *, minutes_ms: Sequence[int]) -> list[Run]:
        self.reads["open_runs"] += 1
        return self._runs.open(job_class, minutes_ms=minutes_ms)

    def read_control(self, job_class: str) -> Control:
        self.reads["read_control"] += 1
        return self._runs.control(job_class)

    def read_allowance(self, job_class: str) -> Allowance:
        self.reads["read_allowance"] += 1
        return self._runs.allowances.read(job_class)

    def withdraw(self, job_class: str) -> Allowance:
        self.writes["withdraw"] += 1
        return self._runs.allowances.end(job_class)

    def miss(self, job_class: str, *, rows: int) -> None:
        self.writes["miss"] += 1
        self._runs.allowances.miss(job_class, rows)
