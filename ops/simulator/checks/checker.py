"""What a checker is told, and how it says that an invariant broke."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from ops.simulator.kinds import ChunkStart
from ops.simulator.sluice_world import SimSluice
from ops.simulator.upstream import UpstreamCall
from ops.simulator.world import START_MS
from shared.domain.control import RunKey, TickLine, TickMemory
from shared.domain.job import Job
from shared.domain.messages import Delivery, Message
from shared.memory.ledger import Step
from shared.pacer.tick import TickReport

_MOST_KEPT: Final = 20
"""Violations beyond so many are counted and not put into words."""


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant of docs/protocol.md, by its number, and what broke it at which second of the run."""

    invariant: str
    at_s: float
    what: str

    def __str__(self) -> str:
        return f"{self.invariant} broke at {self.at_s:g} s: {self.what}"


@dataclass(slots=True)
class Findings:
    """`counts` of all violations by invariant; the first few in words."""

    first: list[Violation] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, violation: Violation) -> None:
        self.counts[violation.invariant] = self.counts.get(violation.invariant, 0) + 1
        if len(self.first) < _MOST_KEPT:
            self.first.append(violation)


class Hooks:
    """What a checker may want to hear of. They are called in the order in which things happen in the world."""

    def created(self, job: Job) -> None:
        """A row that was not there before."""

    def stepped(self, step: Step) -> None:
        """A move that was made."""

    def delivered(self, invocation: str, deliveries: Sequence[Delivery]) -> None:
        """A worker is invoked with these messages."""

    def has_read(self, invocation: str, job: Job) -> None:
        """An invocation has read a row, consistently."""

    def began(self, invocation: str, start: ChunkStart) -> None:
        """A chunk begins."""

    def raised(self, job: Job, error: Exception) -> None:
        """A job's code raised this."""

    def called(self, call: UpstreamCall) -> None:
        """A call arrived at an upstream."""

    def planned(self, key: RunKey, owner: str, plan: TickMemory) -> None:
        """A run was marked planned, by this call or an earlier attempt of it."""

    def closed(self, key: RunKey, line: TickLine) -> None:
        """A run was closed with this line in control's history."""

    def ticked(self, report: TickReport) -> None:
        """A pacer returned."""

    def stored(self, message: Message) -> None:
        """A message is in a queue, the dead-letter queue included."""

    def gone(self, message: Message) -> None:
        """A message is in that queue no more."""

    def paused(self, job_class: str) -> None:
        """A pause is committed: the command has returned."""

    def resumed(self, job_class: str) -> None:
        """The resume is about to be written."""

    def event(self) -> None:
        """After every event of the world."""

    def ended(self) -> None:
        """The run has come to its end, drained or not."""


class Checker(Hooks):
    """One invariant."""

    invariant: ClassVar[str]

    def __init__(self, sluice: SimSluice, findings: Findings) -> None:
        self.sluice = sluice
        self.findings = findings
        self.clean_from_ms: int | None = None
        """When the last fault can have happened; None while faults go on."""
        self.prepare()

    @property
    def now_ms(self) -> int:
        return self.sluice.world.now_ms

    def breaks(self, what: str) -> None:
        self.findings.add(Violation(self.invariant, (self.now_ms - START_MS) / 1000, what))

    def prepare(self) -> None:
        """Prepare what it remembers."""


HOOKS: Final = tuple(name for name in vars(Hooks) if not name.startswith("_"))
