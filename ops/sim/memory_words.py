"""What operators say about a class, kept on its control: pause, halt, resume, the webhook's switch, rate and slots."""

from __future__ import annotations

from dataclasses import replace

from ops.sim.memory_observations import MemoryObservations
from ops.sim.memory_runs import MemoryRuns
from shared.core.flags import Flag
from shared.core.overrides import RateOverride, SlotsOverride


class MemoryWords(MemoryObservations):
    def __init__(self) -> None:
        super().__init__()
        self._runs = MemoryRuns()

    def set_pause(self, job_class: str, flag: Flag | None) -> None:
        self.writes["set_pause"] += 1
        self._runs.put(replace(self._runs.control(job_class), pause=flag))
        if flag is not None:
            self._runs.allowances.end(job_class)

    def pause_unless_paused(self, job_class: str, flag: Flag) -> bool:
        if self._runs.control(job_class).pause is None:
            self.set_pause(job_class, flag)
        return self._runs.control(job_class).pause == flag

    def set_halt(self, job_class: str, flag: Flag | None) -> None:
        self.writes["set_halt"] += 1
        self._runs.put(replace(self._runs.control(job_class), halt=flag))
        if flag is not None:
            self._runs.allowances.end(job_class)

    def resume(self, job_class: str, flag: Flag) -> None:
        self.writes["resume"] += 1
        self._runs.put(replace(self._runs.control(job_class), pause=None, halt=None, resumed=flag))

    def switch_webhook(self, job_class: str, flag: Flag, *, closed: bool) -> None:
        self.writes["switch_webhook"] += 1
        self._runs.put(replace(self._runs.control(job_class), webhook_closed=closed, webhook_switched=flag))

    def set_rate(self, job_class: str, override: RateOverride) -> None:
        self.writes["set_rate"] += 1
        self._runs.put(replace(self._runs.control(job_class), rate=override))

    def set_slots(self, job_class: str, override: SlotsOverride, *, before: SlotsOverride | None) -> bool:
        self.writes["set_slots"] += 1
        return self._runs.set_slots(job_class, override, before=before)
