"""An operator's rounds: from a moment on, every dead job of the class gets one of the words that there are (I5).

Which word follows from the seed and the job. A job that dies again after its retry is given up, so that rounds end.
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
from shared.operate import jobs as repair
from shared.submit.validation import admit

_ROUNDS_MS: Final = 300_000


class Word(StrEnum):
    """`retry` tries the job as it is; `mend` puts right what ailed it and then retries it."""

    SKIP = "skip"
    RETRY = "retry"
    MEND = "mend"
    REPLACE = "replace"


class Held(Struct, frozen=True, kw_only=True):
    """The rows that have not ended: dead ones, those that a dead one of their match holds, and the free ones."""

    dead: int
    held: int
    free: int


class Repairs:
    """`begin` starts the rounds, which go on until `over`.

    `mended` takes the jobs that were put right; `expect` hears of each replacement before it is there.
    """

    def __init__(
        self,
        sluice: SimSluice,
        job_class: ClassSettings,
        *,
        words: Sequence[Word],
        mended: set[str],
        over: Callable[[], bool],
        expect: Callable[[Job], None],
    ) -> None:
        self.given: dict[str, list[Word]] = {}
        self.found: Held | None = None
        """What the first round met."""
        self._sluice = sluice
        self._job_class = job_class
        self._words = words
        self._mended = mended
        self._over = over
        self._expect = expect

    def begin(self) -> None:
        self.found = self._held()
        self._round()

    def _held(self) -> Held:
        jobs = [row.job for row in self._sluice.ledger.rows.values()]
        dead = {job.match_id for job in jobs if job.state is State.DEAD}
        behind = [job.match_id in dead for job in jobs if job.state is State.BEHIND]
        going = sum(job.state in (State.WAITING, State.QUEUED) for job in jobs)
        return Held(
            dead=self._sluice.ledger.states[State.DEAD], held=sum(behind), free=going + len(behind) - sum(behind)
        )

    def _round(self) -> None:
        world = self._sluice.world
        if not self._over():
            world.at(world.now_ms + _ROUNDS_MS, self._round)
        for job in [row.job for row in self._sluice.ledger.rows.values() if row.job.state is State.DEAD]:
            word = self._word_on(job)
            nonce = world.new_id(f"operator/{word}")
            world.spawn(nonce, partial(self._say, word, job, nonce))

    def _word_on(self, job: Job) -> Word:
        given = self.given.setdefault(job.job_id, [])
        digest = hashlib.sha256(f"{self._sluice.world.seed}/{job.job_id}".encode()).digest()
        word = Word.SKIP if given else self._words[digest[0] % len(self._words)]
        given.append(word)
        return word

    def _say(self, word: Word, job: Job, nonce: str) -> None:
        ports, job_class = self._sluice.ports, self._job_class
        flag = Flag(by="operator", why="it fails whenever it runs", at_ms=self._sluice.world.now_ms)
        if word is Word.SKIP:
            repair.skip(ports, job_class, job.job_id, word=flag, nonce=nonce)
        elif word is Word.REPLACE:
            other = admit(_better(job), self._sluice.settings, now_ms=flag.at_ms)
            self._expect(other.job)
            repair.replace(ports, job_class, job.job_id, other, word=flag, nonce=nonce)
        else:
            if word is Word.MEND:
                self._mended.add(job.job_id)
            repair.retry(ports, job.job_id, word=flag, nonce=nonce)


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
