"""Ordered matches: enter a match's order, and pass the turn on when its head ends (I5; protocol: the ledger)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import Struct

from shared.domain import lifecycle, ordering
from shared.domain.control import Allowance
from shared.domain.job import Created, Job, State, same_work
from shared.domain.lifecycle import Lost, Move, OutputTaken
from shared.domain.ordering import Match, MatchChanged, Stepped, Turn
from shared.domain.settings import ClassSettings
from shared.errors import LedgerUnavailable
from shared.ports import Ports

HANDOVER_LEASE_MS: Final = 10_000
"""A worker that hands over reads pause and halt first, and its step has landed, or never will, this long afterwards.
So a pause that is this old is known to every handover: `pause` waits for that before it reports that nothing more is
admitted (I10)."""

FLAGS_FRESH_MS: Final = 2_000
"""The age of pause and halt up to which a worker still sends its step; older, it reads them again. One request to the
ledger takes 7 s at most, so that the two fit into the lease."""

_TRIES: Final = 20
"""How often a step is decided anew because others changed the match: each loss means that another one made progress."""


class Entered(Struct, frozen=True, kw_only=True):
    """What became of the job, and the row as it was created (as it was asked for, if it was not)."""

    created: Created
    job: Job


Claim: TypeAlias = tuple[Job, Allowance | None]
"""A job as it may enter an empty match, and the allowance that it takes a row of if it enters claimed."""


def enter_match(ports: Ports, job: Job, claimed: Callable[[Job], Claim] | None = None) -> Entered:
    """Create the job at the end of its match, row and order in one transaction. The same id again changes nothing.

    `claimed` is asked where the job's turn would come at once, and may claim it from the live allowance: one attempt.
    """
    for _ in range(_TRIES):
        existing = ports.ledger.read_job(job.job_id)
        if existing is not None:
            return Entered(created=Created.EXISTING if same_work(existing, job) else Created.DIFFERENT, job=job)
        match = ports.ledger.read_match(job.job_class, job.match_id)
        entering, allowance = claimed(job) if claimed is not None and match.empty else (job, None)
        step = ordering.enter(match, entering)
        if isinstance(ports.ledger.step_match(step, spends=allowance), Stepped):
            assert step.enters is not None
            return Entered(created=Created.CREATED, job=step.enters)
        if allowance is not None:
            claimed = None  # the match changed, nothing was left, or others were at it: the row waits for its tick
    raise LedgerUnavailable("the match is too busy")


def end_and_pass_on(
    ports: Ports, settings: ClassSettings, end: Move, head: Job, *, nonce: str
) -> Job | Stepped | Lost | OutputTaken:
    """Make the move that ends the head and give the turn to the next place, in one transaction.

    Returns the successor if it was handed over: it is claimed, and the caller sends its message. `Stepped`: nobody was
    handed over. `Lost` and `OutputTaken` are the head's own, as of any move.
    """
    for _ in range(_TRIES):
        control = ports.ledger.read_control(settings.name)
        read_ms = ports.clock.now_ms()
        match = ports.ledger.read_match(head.job_class, head.match_id)
        if match.head_seq != head.seq:
            return Lost()
        successor = _successor(ports, match)
        now_ms = ports.clock.now_ms()
        if now_ms - read_ms >= FLAGS_FRESH_MS:
            continue
        turn = Turn(admits=control.admits, now_ms=now_ms, live_window_s=settings.live_window_s)
        step = ordering.pass_on(match, end, head, successor, turn, nonce=nonce)
        result = ports.ledger.step_match(step)
        if isinstance(result, MatchChanged):
            continue
        if isinstance(result, Stepped) and successor is not None:
            moved = lifecycle.after(successor, step.moves[-1])
            return moved if moved.state is State.QUEUED else result
        return result
    raise LedgerUnavailable("the match is too busy")


def _successor(ports: Ports, match: Match) -> Job | None:
    if match.head_seq >= match.tail_seq:
        return None
    job_id = ports.ledger.job_id_at(match, match.head_seq + 1)
    return None if job_id is None else ports.ledger.read_job(job_id)
