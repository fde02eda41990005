"""One attempt at a chunk, for the cost: what of it was for nothing if the chunk is not committed."""

from __future__ import annotations

from shared.core import stats
from shared.core.model import Output
from shared.ports import Ports
from shared.usecases.chunk_context import WorkerContext
from shared.usecases.tally import Tally


class Attempt:
    """Begins when it is made and ends once, by `committed` or `wasted`; what comes after that says nothing more.

    `again`: the message is a redelivery, so the calls may be repeats of a process that was killed.
    """

    def __init__(self, ports: Ports, tally: Tally, context: WorkerContext, *, again: bool) -> None:
        self._ports = ports
        self._tally = tally
        self._context = context
        self._again = again
        self._begun_ms = ports.clock.now_ms()
        self._ended = False

    @property
    def took_ms(self) -> int:
        return self._ports.clock.now_ms() - self._begun_ms

    def committed(self, output: Output | None, *, last: bool) -> None:
        if self._ended:
            return
        self._ended = True
        if output is not None:
            self._tally.add(stats.LAST_OUTPUTS if last else stats.OUTPUTS)
        if self._again:
            self._tally.add(stats.WASTED_CALLS, self._context.answered_calls)

    def wasted(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._tally.add(stats.WASTED_MS, self.took_ms)
        self._tally.add(stats.WASTED_CALLS, self._context.answered_calls)
