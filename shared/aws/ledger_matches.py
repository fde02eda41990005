"""The lines of ordered matches: one item for head and tail, one per place (I5)."""

from __future__ import annotations

from typing import Any, Final

from shared.aws import keys
from shared.aws.items import encode, item_of_job, present
from shared.aws.ledger_allowance import taking
from shared.aws.ledger_moves import is_own, put_of_output, request_of
from shared.aws.ledger_rows import ABSENT
from shared.aws.table import Answer, Conflict, Table, Unmet, update_of
from shared.core.allowance import Allowance
from shared.core.model import Job, Lost, Match, MatchChanged, MatchStep, OutputTaken, Stepped, StepResult

LINE_AS_READ: Final = "#head_seq = :was_head_seq AND #tail_seq = :was_tail_seq"
"""read (head, tail) ── (a submission, an end, a skip) ── step ✗, read again"""

LINE_NEVER_WRITTEN: Final = "attribute_not_exists(pk)"
"""read: nobody in it ── (the first submission) ── step ✗, read again"""


class Matches:
    """The part of the `Ledger` that keeps a match's jobs in line."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def read_match(self, job_class: str, match_id: str) -> Match:
        item = self._table.get(keys.match(job_class, match_id))
        if item is None:
            return Match(job_class=job_class, match_id=match_id)
        head, tail = int(item["head_seq"]["N"]), int(item["tail_seq"]["N"])
        return Match(job_class=job_class, match_id=match_id, head_seq=head, tail_seq=tail)

    def job_id_at(self, match: Match, seq: int) -> str | None:
        item = self._table.get(keys.place_in_match(match.job_class, match.match_id, seq))
        return None if item is None else str(item["job_id"]["S"])

    def step_match(self, step: MatchStep, *, spends: Allowance | None = None) -> StepResult:
        actions = [("Update", request_of(move)) for move in step.moves]
        outputs = [("Put", put_of_output(move)) for move in step.moves if move.output is not None]
        entering = [] if step.enters is None else _entering(step.after, step.enters)
        taken = _taking(spends, step)
        try:
            refused = self._table.transact(*actions, *outputs, ("Update", _line(step)), *entering, *taken)
        except Conflict:
            if not taken:
                raise
            return MatchChanged()  # most likely other submitters at the allowance: the row can do without it
        if refused is None or self._is_made(step):
            return Stepped()
        return _judged(refused, moves=len(actions), outputs=len(outputs))

    def _is_made(self, step: MatchStep) -> bool:
        """Whether an earlier attempt of ours made this very step and its answer was lost: all is as it would be now."""
        rows = [(move, self._table.get(keys.job(move.job_id)) or {}) for move in step.moves]
        entered = step.enters
        return (
            all(is_own(move, row) for move, row in rows)
            and (entered is None or self._table.get(keys.job(entered.job_id)) == item_of_job(entered))
            and self.read_match(step.after.job_class, step.after.match_id) == step.after
        )


def _judged(answers: list[Answer], *, moves: int, outputs: int) -> StepResult:
    """By whose condition failed: the first row stops the caller, the line and any later row make it read again."""
    unmet = [isinstance(answer, Unmet) for answer in answers]
    if moves and unmet[0]:
        return Lost()
    others = unmet[1:moves] + unmet[moves + outputs :]
    return MatchChanged() if any(others) else OutputTaken()


def _line(step: MatchStep) -> dict[str, Any]:
    before, after = step.before, step.after
    fresh = before.tail_seq == 0
    was = {} if fresh else {"head_seq": encode(before.head_seq), "tail_seq": encode(before.tail_seq)}
    return update_of(
        keys.match(after.job_class, after.match_id),
        values=present({"head_seq": after.head_seq, "tail_seq": after.tail_seq}),
        condition=LINE_NEVER_WRITTEN if fresh else LINE_AS_READ,
        was=was,
    )


def _taking(spends: Allowance | None, step: MatchStep) -> list[tuple[str, dict[str, Any]]]:
    if spends is None or step.enters is None:
        return []
    return [("Update", taking(spends, rows=1, at_ms=step.enters.sent_at_ms))]


def _entering(line: Match, job: Job) -> list[tuple[str, dict[str, Any]]]:
    """The row, if its id is free, and its place in the line, which a replacement takes over."""
    place = keys.place_in_match(line.job_class, line.match_id, job.seq) | {"job_id": encode(job.job_id)}
    return [("Put", {"Item": item_of_job(job), "ConditionExpression": ABSENT}), ("Put", {"Item": place})]
