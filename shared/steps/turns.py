"""Ordered matches: join a line, and pass the turn on when its head ends (I5; protocol: the ledger)."""

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
"""A handover lands within this time of reading the flags: a pause counts as committed after it."""

FLAGS_FRESH_MS: Final = 2_000
"""How old the flags may be when the step is sent; the ledger's own patience (7 s at most) fits into the rest."""

_TRIES: Final = 20


class Joined(Struct, frozen=True, kw_only=True):
    """What became of the job, and the row as it was created (as it was asked for, if it was not)."""

    created: Created
    job: Job


Claim: TypeAlias = tuple[Job, Allowance | None]
"""A job as it may enter an empty line, and the allowance that it takes a row of if it enters claimed."""


def join_line(ports: Ports, job: Job, claimed: Callable[[Job], Claim] | None = None) -> Joined:
    """Create the job at the end of its match's line; the same id again changes nothing. Atomic with the line.

    `claimed` is asked where it would be its turn at once, and may claim it from the live allowance: one attempt.
    """
    for _ in range(_TRIES):
        existing = ports.ledger.read_job(job.job_id)
        if existing is not None:
            return Joined(created=Created.EXISTING if same_work(existing, job) else Created.DIFFERENT, job=job)
        match = ports.ledger.read_match(job.job_class, job.match_id)
        entering, allowance = claimed(job) if claimed is not None and match.empty else (job, None)
        step = ordering.enter(match, entering)
        if isinstance(ports.ledger.step_match(step, spends=allowance), Stepped):
            assert step.enters is not None
            return Joined(created=Created.CREATED, job=step.enters)
        if allowance is not None:
            claimed = None  # the line changed, nothing was left, or others were at it: the row waits for its tick
    raise LedgerUnavailable("the match is too busy")


def end_and_pass_on(
    ports: Ports, settings: ClassSettings, end: Move, head: Job, *, nonce: str
) -> Job | Stepped | Lost | OutputTaken:
    """Make the move that ends the head and give the turn to the next in line, in one transaction.

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
