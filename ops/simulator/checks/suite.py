"""All checkers on one world: what happens there is told to those who want to know it, as it happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from ops.simulator.checks.checker import HOOKS, Checker, Findings, Hooks
from ops.simulator.checks.rows import Allowance, Attempts, NoRedoneWork, NothingLost, OneEffect, Order
from ops.simulator.checks.ticks import Budget, HonestEta, Lanes, OneRun, Pause, Secrecy
from ops.simulator.kinds import ChunkStart
from ops.simulator.sluice_world import SimSluice
from ops.simulator.world import Invocation
from shared.domain.messages import Message
from shared.pacer.tick import TickReport

CHECKERS: Final[tuple[type[Checker], ...]] = (
    Budget,
    OneEffect,
    NothingLost,
    NoRedoneWork,
    Order,
    OneRun,
    Allowance,
    Lanes,
    Attempts,
    Pause,
    HonestEta,
    Secrecy,
)

Asked = TypeVar("Asked", bound=Checker)


class Suite:
    """Attach it before anything is submitted. `findings` grows as the world runs."""

    def __init__(self, sluice: SimSluice, *, more: Sequence[type[Checker]] = (), clock_slack_ms: int = 0) -> None:
        self.findings = Findings()
        self.checkers = [checker(sluice, self.findings) for checker in (*CHECKERS, *more)]
        self._sluice = sluice
        self._told: dict[str, list[Callable[..., None]]] = {
            hook: [
                getattr(checker, hook)
                for checker in self.checkers
                if getattr(type(checker), hook) is not getattr(Hooks, hook)
            ]
            for hook in HOOKS
        }
        self.of(Allowance).slack_ms = clock_slack_ms
        self._attach()
        self.faults_over()

    def of(self, kind: type[Asked]) -> Asked:
        return next(checker for checker in self.checkers if isinstance(checker, kind))

    @property
    def broken(self) -> bool:
        return bool(self.findings.first)

    # -- what the one who runs the world says

    def faults_begin(self) -> None:
        for checker in self.checkers:
            checker.clean_from_ms = None

    def faults_over(self) -> None:
        for checker in self.checkers:
            checker.clean_from_ms = self._sluice.world.now_ms

    def paused(self, job_class: str) -> None:
        self._tell("paused", job_class)

    def resumed(self, job_class: str) -> None:
        self._tell("resumed", job_class)

    def ended(self) -> None:
        self._tell("event")
        self._tell("ended")

    # -- inside

    def _attach(self) -> None:
        sluice = self._sluice
        tell = {hook: partial(self._tell, hook) for hook in HOOKS}
        sluice.ledger.on_new, sluice.ledger.on_step = tell["created"], tell["stepped"]
        sluice.upstream.on_call = tell["called"]
        sluice.world.watch, sluice.world.after_event = self._watch, tell["event"]
        for kind in sluice.kinds.values():
            kind.on_start, kind.on_error = self._began, tell["raised"]
        for queue in sluice.queue.queues:
            queue.onlooker = _Onlooker(tell["stored"], tell["gone"])
        for mapping in sluice.mappings:
            mapping.on_invoke = tell["delivered"]
        for schedule in sluice.schedules.values():
            schedule.on_value = self._ticked

    def _tell(self, hook: str, *args: Any) -> None:
        for told in self._told[hook]:
            told(*args)

    def _began(self, start: ChunkStart) -> None:
        current = self._sluice.world.current
        self._tell("began", "" if current is None else current.name, start)

    def _ticked(self, value: object) -> None:
        if isinstance(value, TickReport):
            self._tell("ticked", value)

    def _watch(self, invocation: Invocation, point: str, effect: Any, answer: Any) -> None:
        if point == "ledger.read_job" and answer is not None:
            self._tell("has_read", invocation.name, answer)
        elif point == "ledger.plan_run" and answer:
            self._tell("planned", effect.args[0], effect.keywords["owner"], effect.keywords["plan"])
        elif point == "ledger.close_run" and answer:
            self._tell("closed", effect.args[0], effect.keywords["close"].history[-1])


class _Onlooker:
    """Both ends of a message's life, as `fifo.Onlooker` wants them."""

    def __init__(self, stored: Callable[[Message], None], gone: Callable[[Message], None]) -> None:
        self.stored = stored
        self.gone = gone
