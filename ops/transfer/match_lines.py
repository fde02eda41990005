"""The lines of ordered matches, from the rows alone: a file that said both could contradict itself.

One small entry a match is all that an import keeps in memory of a file of any length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from shared.domain.job import Job, State
from shared.domain.ordering import Match

_ENDED: Final = frozenset({State.DONE, State.SKIPPED})


@dataclass(slots=True)
class _Line:
    rows: int = 0
    tail: int = 0
    first_open: int = 0
    last_ended: int = 0
    active: int = 0
    twice: bool = False
    at_line: int = 0

    @property
    def head(self) -> int:
        return self.first_open or self.tail + 1


class MatchLines:
    """Rows in any order; a replaced one has left its number to the row that took its place."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], _Line] = {}

    def add(self, job: Job, at_line: int) -> None:
        if not job.seq or job.state is State.REPLACED:
            return
        line = self._lines.setdefault((job.job_class, job.match_id), _Line())
        line.rows, line.at_line = line.rows + 1, at_line
        line.tail = max(line.tail, job.seq)
        if job.state in _ENDED:
            line.last_ended = max(line.last_ended, job.seq)
            return
        line.first_open = min(line.first_open or job.seq, job.seq)
        if job.state is not State.BEHIND:
            line.twice = line.twice or line.active > 0
            line.active = job.seq

    def faults(self) -> Iterator[int]:
        """Line numbers of matches that are no line: a number is missing or there twice, or not just the head moves."""
        for line in self._lines.values():
            whole = line.rows == line.tail and not line.twice
            if not whole or line.last_ended >= line.head or line.active != line.first_open:
                yield line.at_line

    def all(self) -> Iterator[Match]:
        for (job_class, match_id), line in self._lines.items():
            yield Match(job_class=job_class, match_id=match_id, head_seq=line.head, tail_seq=line.tail)
