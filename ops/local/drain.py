"""Look at a drain the way an operator's tools do: counts from the ledger's index, calls from the upstream."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ops.local.stage import Stage
from ops.local.view import Sight
from shared.core.eta import drain_eta
from shared.usecases.counting import count_rows, read_inflight

RATE_WINDOW_S: Final = 20.0


@dataclass(slots=True, kw_only=True)
class Drain:
    """The drain of one class since `began_ms`."""

    stage: Stage
    began_ms: int
    submitted: int = 0
    _finished: deque[tuple[float, int]] = field(default_factory=deque)

    def look(self, report: Mapping[str, Any]) -> Sight:
        ports, settings = self.stage.ports, self.stage.job_class
        now_ms = ports.clock.now_ms()
        counts = count_rows(ports, settings, now_ms)
        in_flight = len(read_inflight(ports, settings))
        control = ports.ledger.read_control(settings.name)
        pending = counts.waiting + counts.behind + in_flight
        at_s = (now_ms - self.began_ms) / 1000
        return Sight(
            at_s=at_s,
            submitted=self.submitted,
            waiting_live=counts.eligible.live,
            waiting_recovery=counts.eligible.recovery,
            later=counts.later + counts.behind,
            in_flight=in_flight,
            dead=counts.dead,
            rate_per_s=self._rate(at_s, self.submitted - pending - counts.dead),
            calls=report["calls"],
            refused=report["refused"],
            paused=not control.admits,
            eta=drain_eta(control.history, now_ms=now_ms, pending=pending, paused=not control.admits),
        )

    def _rate(self, at_s: float, finished: int) -> float:
        self._finished.append((at_s, finished))
        while at_s - self._finished[0][0] > RATE_WINDOW_S:
            self._finished.popleft()
        since_s, before = self._finished[0]
        return max(0, finished - before) / (at_s - since_s) if at_s > since_s else 0.0
