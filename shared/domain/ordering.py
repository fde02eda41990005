"""Ordered matches: at which place each job stands, and what the next head does when its turn comes (I5).

The places of a match have no gaps: a skipped job passes its turn on, a replacement takes the dead one's place.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from shared.domain import lifecycle
from shared.domain.job import Flag, Job, Lane, State
from shared.domain.lifecycle import Lost, Move, OutputTaken


class Match(Struct, frozen=True, kw_only=True):
    """The order of a match: its jobs have the places 1, 2, ... in the order of their submission."""

    job_class: str
    match_id: str
    head_seq: int = 1
    """The place whose turn it is. While its job is dead, it holds the match."""
    tail_seq: int = 0
    """The last place that was taken; 0 before the first submission."""

    @property
    def empty(self) -> bool:
        """Whether every job has had its turn: who enters now is the head at once."""
        return self.head_seq > self.tail_seq


class MatchStep(Struct, frozen=True, kw_only=True):
    """One atomic change of a match's order and of the rows that it moves: `before` as read and all fences, or nothing.

    `enters` is a new row, which takes the place that its `seq` says.
    """

    before: Match
    after: Match
    moves: tuple[Move, ...] = ()
    enters: Job | None = None


class Stepped(Struct, frozen=True, kw_only=True):
    """The step was made, by this call or by an earlier attempt of it."""


class MatchChanged(Struct, frozen=True, kw_only=True):
    """The order, a later row of the step or the entering id was not as read: read again and decide again."""


StepResult: TypeAlias = Stepped | MatchChanged | Lost | OutputTaken


def enter(match: Match, job: Job) -> MatchStep:
    """The job takes the place after the tail: as it is if its turn comes at once (waiting, or claimed where it spends
    live allowance), behind otherwise."""
    seq = match.tail_seq + 1
    entering = replace(job, seq=seq, state=job.state if seq == match.head_seq else State.BEHIND)
    return MatchStep(before=match, after=replace(match, tail_seq=seq), enters=entering)


class Turn(Struct, frozen=True, kw_only=True):
    """What decides whether the next head may follow at once: read freshly, and valid for a few seconds only."""

    admits: bool
    """Whether the class is neither paused nor halted."""
    now_ms: int
    live_window_s: int

    def lane_of(self, job: Job) -> Lane:
        """The successor's lane, computed anew from its own due time."""
        fresh = not job.retried and self.now_ms - job.due_ms < self.live_window_s * 1000
        return Lane.LIVE if fresh else Lane.RECOVERY


def pass_on(match: Match, end: Move, ended: Job, successor: Job | None, turn: Turn, *, nonce: str) -> MatchStep:
    """`end` finishes or skips the head; the next one, if there is one, becomes head in the same transaction.

    It is handed over (claimed at once) only after a finish, and not while paused or halted, not before it is due, not
    past `hand_until`: chains must neither starve other matches nor outlive a lowered limit. Otherwise it waits.
    """
    moves = [end]
    if successor is not None:
        handed = end.name == "finish" and turn.admits and successor.due_ms <= turn.now_ms < ended.hand_until_ms
        moves.append(
            lifecycle.hand_over(successor, ended=ended, lane=turn.lane_of(successor), now_ms=turn.now_ms, nonce=nonce)
            if handed
            else lifecycle.promote(successor, nonce=nonce)
        )
    return MatchStep(before=match, after=replace(match, head_seq=match.head_seq + 1), moves=tuple(moves))


def replace_head(match: Match, dead: Job, other: Job, *, signature: Flag, nonce: str) -> MatchStep:
    """Another job takes the dead head's place and waits for its tick."""
    entering = replace(other, seq=dead.seq, state=State.WAITING)
    end = lifecycle.replace_by_another(dead, signature=signature, nonce=nonce)
    return MatchStep(before=match, after=match, moves=(end,), enters=entering)
