"""The lines of ordered matches in memory: who stands where, and the one change that moves line and rows together."""

from __future__ import annotations

from dataclasses import replace

from shared.core.model import Match, MatchStep


class MemoryMatches:
    def __init__(self) -> None:
        self.lines: dict[tuple[str, str], Match] = {}
        self.places: dict[tuple[str, str, int], str] = {}

    def read(self, job_class: str, match_id: str) -> Match:
        return self.lines.get((job_class, match_id)) or Match(job_class=job_class, match_id=match_id)

    def job_id_at(self, match: Match, seq: int) -> str | None:
        return self.places.get((match.job_class, match.match_id, seq))

    def is_as_read(self, step: MatchStep) -> bool:
        return self.read(step.before.job_class, step.before.match_id) == step.before

    def is_ours(self, step: MatchStep) -> bool:
        """An earlier attempt of the same step changed the line; a step that leaves the line alone shows in its rows."""
        return self.read(step.after.job_class, step.after.match_id) == step.after

    def apply(self, step: MatchStep) -> None:
        line = step.after
        self.lines[(line.job_class, line.match_id)] = replace(line)
        if step.enters is not None:
            self.places[(line.job_class, line.match_id, step.enters.seq)] = step.enters.job_id
