"""What an operator does about a dead job: try it again, skip it, or put another in its place (I5, I9).

A dead job of an ordered class holds its match until one of these; then its successors go on, in order. Each change is
fenced on (dead, epoch) as read, so of two operators one wins and the other is told.
"""

from __future__ import annotations

from typing import Final

from shared.core import lifecycle, ordering
from shared.core.model import Created, Job, Lost, MatchChanged, Move, State, Won
from shared.core.settings import ClassSettings
from shared.errors import InvalidInput, LedgerUnavailable
from shared.ports import Ports
from shared.usecases.lines import end_and_pass_on

_TRIES: Final = 5


def retry(ports: Ports, job_id: str, *, nonce: str) -> None:
    """Admit the row again, with fresh bounds; never the old message."""
    job = _dead(ports, job_id)
    _move(ports, lifecycle.retry(job, now_ms=ports.clock.now_ms(), nonce=nonce))


def skip(ports: Ports, settings: ClassSettings, job_id: str, *, nonce: str) -> None:
    """Give the job up; the next of its match waits for its tick."""
    job = _dead(ports, job_id)
    move = lifecycle.skip(job, nonce=nonce)
    if not settings.ordered:
        _move(ports, move)
    elif isinstance(end_and_pass_on(ports, settings, move, job, nonce=nonce), Lost):
        raise _not_dead()


def replace(ports: Ports, settings: ClassSettings, job_id: str, other: Job, *, nonce: str) -> None:
    """Put `other` in the dead job's place. `other` must be of the same class and match, under a new id.

    Without an order there is no place: the new job is created, then the old one is marked. A crash in between leaves
    the old one dead, and the same command again finishes it.
    """
    job = _dead(ports, job_id)
    if (other.job_class, other.match_id) != (job.job_class, job.match_id):
        raise InvalidInput("replacement", got="another class or match", expected="those of the dead job")
    if settings.ordered:
        _replace_head(ports, job, other, nonce=nonce)
    elif ports.ledger.create([other])[0] is Created.DIFFERENT:
        raise _id_taken()
    else:
        _move(ports, lifecycle.replace_by_another(job, nonce=nonce))


def _replace_head(ports: Ports, job: Job, other: Job, *, nonce: str) -> None:
    for _ in range(_TRIES):
        if ports.ledger.read_job(other.job_id) is not None:
            raise _id_taken()
        match = ports.ledger.read_match(job.job_class, job.match_id)
        result = ports.ledger.step_match(ordering.replace_head(match, job, other, nonce=nonce))
        if isinstance(result, Lost):
            raise _not_dead()
        if not isinstance(result, MatchChanged):
            return
    raise LedgerUnavailable("the match is too busy")


def _dead(ports: Ports, job_id: str) -> Job:
    job = ports.ledger.read_job(job_id)
    if job is None or job.state is not State.DEAD:
        raise _not_dead()
    return job


def _move(ports: Ports, move: Move) -> None:
    if not isinstance(ports.ledger.move(move), Won):
        raise _not_dead()


def _not_dead() -> InvalidInput:
    return InvalidInput("job", got="a job that is not dead", expected="the id of a dead job")


def _id_taken() -> InvalidInput:
    return InvalidInput("replacement", got="an id that exists", expected="a new id")
