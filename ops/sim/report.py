"""What a run of the world amounts to, and which invariants it broke."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ops.sim.invocations import Outcome
from ops.sim.kinds import ChunkStart
from ops.sim.memory_ledger import MemoryLedger, Step
from ops.sim.upstream import SimUpstream
from ops.sim.world import World
from shared.core.model import State
from shared.core.runs import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Every figure is a function of the settings, the seed and the faults: two runs of one seed are equal."""

    seed: int
    jobs: int
    done: int
    dead: int
    open: int
    duplicate_effects: int
    redone_chunks: int
    over_budget_ticks: int
    max_in_flight: int
    upstream_calls: int
    refusals: int
    ticks: int
    port_calls: int
    crashes: int
    timeouts: int
    errors: int
    drain_s: float | None
    writes: dict[str, int]


def report_of(
    *, world: World, begun_ms: int, ledger: MemoryLedger, upstream: SimUpstream, starts: Sequence[ChunkStart]
) -> Report:
    outcomes = Counter(invocation.outcome for invocation in world.invocations)
    ended_ms = ledger.steps[-1].at_ms if ledger.steps and ledger.open_rows == 0 else None
    return Report(
        seed=world.seed,
        jobs=len(ledger.rows),
        done=ledger.states[State.DONE],
        dead=ledger.states[State.DEAD],
        open=ledger.open_rows,
        duplicate_effects=sum(count - 1 for count in upstream.effects.values()),
        redone_chunks=redone_chunks(ledger.steps, starts),
        over_budget_ticks=_over_budget(ledger),
        max_in_flight=_max_in_flight(ledger.steps),
        upstream_calls=len(upstream.calls),
        refusals=upstream.refusals,
        ticks=sum(bool(run.owner) and run.state in (RunState.CLOSED, RunState.SKIPPED) for run in ledger.runs),
        port_calls=world.calls,
        crashes=outcomes[Outcome.CRASHED],
        timeouts=outcomes[Outcome.TIMED_OUT],
        errors=outcomes[Outcome.RAISED],
        drain_s=None if ended_ms is None else (ended_ms - begun_ms) / 1000,
        writes=dict(sorted(ledger.writes.items())),
    )


def redone_chunks(steps: Iterable[Step], starts: Iterable[ChunkStart]) -> int:
    """I4: chunks that were begun after their commit. A twin that had read the row before it counts too, so zero is
    required only of runs without duplicate deliveries and stalls."""
    committed_ms: dict[tuple[str, str], int] = {}
    for step in steps:
        if step.after.cursor != step.before.cursor or step.after.state is State.DONE:
            committed_ms.setdefault((step.before.job_id, step.before.cursor), step.at_ms)
    return sum(start.at_ms > committed_ms.get((start.job_id, start.cursor), start.at_ms) for start in starts)


def _over_budget(ledger: MemoryLedger) -> int:
    """I1: runs that admitted more, by claims of whatever number of invocations and by allowance, than was planned."""
    claims = Counter(step.after.run_id for step in ledger.steps if step.name in ("claim", "admit"))
    budgets = {run.key.run_id: run.budget for run in ledger.runs}
    return sum(count > budgets.get(run_id, 0) for run_id, count in claims.items())


def _max_in_flight(steps: Iterable[Step]) -> int:
    now = most = 0
    for step in steps:
        now += (step.after.state is State.QUEUED) - (step.before.state is State.QUEUED)
        most = max(most, now)
    return most
