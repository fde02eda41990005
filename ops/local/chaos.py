"""Kill one worker process in the middle of a chunk, and be sure that it was one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from ops.local import processes
from ops.local.stage import Stage


class Kill(Struct, frozen=True, kw_only=True):
    """A worker process died while the upstream was working on `key` for it; nobody was there to take the answer."""

    pid: int
    key: str


@dataclass(slots=True, kw_only=True)
class Killer:
    """Waits for one of the `victims` to be beyond its first chunk, then kills the process that runs it.

    Which of the worker's processes that is cannot be seen from outside; but the upstream sees whose caller is gone. So
    a kill counts once the upstream has said so, and until then the next process is tried.
    """

    victims: Collection[str]
    kill: Kill | None = None
    _tried: dict[int, list[str]] = field(default_factory=dict)

    def step(self, stage: Stage, report: Mapping[str, Any]) -> None:
        """One look at the upstream's report, and perhaps one kill."""
        if self.kill is not None:
            return
        gone = set(report["abandoned"])
        for tried, keys in self._tried.items():
            if hit := gone.intersection(keys):
                self.kill = Kill(pid=tried, key=min(hit))
                return
        if any(set(keys).intersection(report["in_flight"]) for keys in self._tried.values()):
            return  # the last kill's verdict is still out
        if open_keys := [key for key in report["in_flight"] if self._is_victim(key)]:
            pid = next((pid for pid in stage.worker_processes() if pid not in self._tried), None)
            if pid is not None and processes.kill(pid):
                self._tried[pid] = open_keys

    def _is_victim(self, key: str) -> bool:
        job_id, _, call = key.partition(":")
        return job_id in self.victims and not call.startswith(":")  # "<job>::0" is a first chunk
