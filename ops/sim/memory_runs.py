"""Runs, the class lock and control in memory, with the conditions that the DynamoDB transactions state (rule 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ops.sim.memory_allowance import MemoryAllowances
from shared.core.overrides import SlotsOverride
from shared.core.runs import (
    Busy,
    Control,
    Ended,
    Run,
    RunKey,
    RunState,
    Taken,
    TakeResult,
    TickClose,
    TickMemory,
)

_UNFINISHED = (RunState.OPEN, RunState.PLANNED)


class MemoryRuns:
    def __init__(self) -> None:
        self.runs: dict[RunKey, Run] = {}
        self.allowances = MemoryAllowances()
        self._controls: dict[str, Control] = {}

    def control(self, job_class: str) -> Control:
        return self._controls.get(job_class) or Control(job_class=job_class)

    @property
    def controls(self) -> list[Control]:
        return list(self._controls.values())

    def put(self, control: Control) -> None:
        """Every write of control raises its version, as the table's writes do."""
        self._controls[control.job_class] = replace(control, version=control.version + 1)

    def admit(self, key: RunKey, *, source: str) -> bool:
        if key in self.runs:
            return False
        self.runs[key] = Run(key=key, state=RunState.OPEN, source=source)
        return True

    def take(self, key: RunKey, *, owner: str, now_ms: int, until_ms: int) -> TakeResult:
        """A run without a row ended long ago: the row expired. Taking a run twice with one nonce is taking it once."""
        run, control = self.runs.get(key), self.control(key.job_class)
        if run is None or run.state not in _UNFINISHED:
            return Ended()
        ours = control.lock_owner == owner and control.lock_run_id == key.run_id
        if control.lock_owner and control.lock_until_ms > now_ms and not ours:
            return Busy(run_id=control.lock_run_id)
        self.put(replace(control, lock_owner=owner, lock_run_id=key.run_id, lock_until_ms=until_ms))
        self.runs[key] = replace(run, owner=owner)
        return Taken(planned=run.state is RunState.PLANNED)

    def plan(self, key: RunKey, *, owner: str, plan: TickMemory) -> bool:
        run, control = self.runs.get(key), self.control(key.job_class)
        if run is None or not self._owns(run, control, owner):
            return False
        if run.state is RunState.PLANNED:  # a lost answer: the plan is ours if it is this one
            return (run.budget, control.carry, control.planned_at_ms) == (plan.budget, plan.carry, plan.planned_at_ms)
        if run.state is not RunState.OPEN:
            return False
        self.runs[key] = replace(run, state=RunState.PLANNED, budget=plan.budget)
        self.put(replace(control, carry=plan.carry, planned_at_ms=plan.planned_at_ms, recent=plan.recent))
        self.allowances.account(key.job_class, missed=plan.missed)
        return True

    def skip(self, key: RunKey, *, reason: str) -> bool:
        run = self.runs.get(key)
        if run is None or run.owner:
            return False
        if run.state is RunState.OPEN:
            self.runs[key] = replace(run, state=RunState.SKIPPED, reason=reason)
        return self.runs[key].state is RunState.SKIPPED

    def close(self, key: RunKey, *, owner: str, close: TickClose) -> bool:
        run, control = self.runs.get(key), self.control(key.job_class)
        if run is None:
            return False
        state = RunState.SKIPPED if close.skipped else RunState.CLOSED
        if run.state is state:  # a lost answer: nobody else closes a run that we own
            return run.owner == owner
        if run.state not in _UNFINISHED or not self._owns(run, control, owner):
            return False
        if not control.admits:
            close = close.without_grant
        self.runs[key] = replace(run, state=state, reason=close.skipped)
        if close.grant is not None:
            self.allowances.grant(key.job_class, close.grant)
        released = replace(control, lock_owner="", lock_run_id="", lock_until_ms=0)
        memory = replace(released, recent=close.recent, history=close.history, measures=close.measures)
        self.put(replace(memory, stage=close.stage))
        return True

    def set_slots(self, job_class: str, override: SlotsOverride, *, before: SlotsOverride | None) -> bool:
        control = self.control(job_class)
        if control.slots == before:
            self.put(replace(control, slots=override))
        return self.control(job_class).slots == override

    def open(self, job_class: str, *, minutes_ms: Sequence[int]) -> list[Run]:
        keys = (RunKey(job_class=job_class, minute_ms=minute_ms) for minute_ms in sorted(minutes_ms))
        return [self.runs[key] for key in keys if key in self.runs and self.runs[key].state in _UNFINISHED]

    def drop(self, key: RunKey, *, owner: str) -> None:
        control = self.control(key.job_class)
        if control.lock_owner == owner and control.lock_run_id == key.run_id:
            self.put(replace(control, lock_owner="", lock_run_id="", lock_until_ms=0))

    def _owns(self, run: Run, control: Control, owner: str) -> bool:
        return run.owner == owner and control.lock_owner == owner and control.lock_run_id == run.key.run_id
