"""An operator's rounds: from a moment on, every dead job of the class gets one of the remedies that there are (I5).

Which remedy follows from the seed and the job. A job that dies again after its retry is given up, so that rounds end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import Final

from msgspec import Struct

from ops.simulator.sluice_world import SimSluice
from shared.domain.job import Flag, Job, NewJob, State
from shared.domain.settings import ClassSettings
from shared.operate import jobs as commands
from shared.submit.validation import new_row

_ROUNDS_MS: Final = 300_000
"""From one round to the next, in which the matches that were set free drain or die again."""


class Remedy(StrEnum):
    """`retry` tries the job as it is; `mend` puts right what ailed it and then retries it."""

    SKIP = "skip"
    RETRY = "retry"
    MEND = "mend"
    REPLACE = "replace"


class Left(Struct, frozen=True, kw_only=True):
    """The rows that have not ended: dead ones, those that a dead one of their match holds, and the free ones."""

    dead: int
    held: int
    free: int


class OperatorRounds:
    """`begin` starts the rounds, which go on until `over`.

    `mended` takes the jobs that were put right; `expect` hears of each replacement before it is there.
    """

    def __init__(
        self,
        sluice: SimSluice,
        job_class: ClassSettings,
        *,
        remedies: Sequence[Remedy],
        mended: set[str],
        over: Callable[[], bool],
        expect: Callable[[Job], None],
    ) -> None:
        self.given: dict[str, list[Remedy]] = {}
        """Job -> its remedies, in the order of the rounds."""
        self.met: Left | None = None
        """What the first round met; None until then."""
        self._sluice = sluice
        self._job_class = job_class
        self._remedies = remedies
        self._mended = mended
        self._over = over
        self._expect = expect

    def begin(self) -> None:
        self.met = self._left()
        self._round()

    def _left(self) -> Left:
        jobs = self._sluice.rows.values()
        dead = {job.match_id for job in jobs if job.state is State.DEAD}
        behind = [job.match_id in dead for job in jobs if job.state is State.BEHIND]
        going = sum(job.state in (State.WAITING, State.QUEUED) for job in jobs)
        return Left(
            dead=self._sluice.ledger.states[State.DEAD], held=sum(behind), free=going + len(behind) - sum(behind)
        )

    def _round(self) -> None:
        world = self._sluice.world
        if not self._over():
            world.at(world.now_ms + _ROUNDS_MS, self._round)
        for job in [job for job in self._sluice.rows.values() if job.state is State.DEAD]:
            remedy = self._remedy_for(job)
            nonce = world.new_id(f"operator/{remedy}")
            world.spawn(nonce, partial(self._give, remedy, job, nonce))

    def _remedy_for(self, job: Job) -> Remedy:
        given = self.given.setdefault(job.job_id, [])
        digest = hashlib.sha256(f"{self._sluice.world.seed}/{job.job_id}".encode()).digest()
        remedy = Remedy.SKIP if given else self._remedies[digest[0] % len(self._remedies)]
        given.append(remedy)
        return remedy

    def _give(self, remedy: Remedy, job: Job, nonce: str) -> None:
        ports, job_class = self._sluice.ports, self._job_class
        flag = Flag(by="operator", why="it fails whenever it runs", at_ms=self._sluice.world.now_ms)
        if remedy is Remedy.SKIP:
            commands.skip(ports, job_class, job.job_id, signature=flag, nonce=nonce)
        elif remedy is Remedy.REPLACE:
            other = new_row(_better(job), self._sluice.settings, now_ms=flag.at_ms)
            self._expect(other.job)
            commands.replace(ports, job_class, job.job_id, other, signature=flag, nonce=nonce)
        else:
            if remedy is Remedy.MEND:
                self._mended.add(job.job_id)
            commands.retry(ports, job.job_id, signature=flag, nonce=nonce)


def _better(job: Job) -> NewJob:
    """The same work without what ails it, under an id of its own."""
    payload = {key: value for key, value in json.loads(job.payload).items() if key not in ("poison", "crash")}
    return NewJob(
        job_id=f"{job.job_id}-b",
        job_class=job.job_class,
        match_id=job.match_id,
        payload=json.dumps(payload),
        due_ms=job.due_ms,
    )
