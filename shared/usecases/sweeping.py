"""The sweep, the one repair (rule 3): what died between a commit and its message is healed here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shared.core import lifecycle, stats, work_index
from shared.core.model import Job, Nominee, Won
from shared.core.settings import ClassSettings
from shared.errors import LedgerUnavailable
from shared.ports import Ports
from shared.usecases.sending import send_jobs
from shared.usecases.tally import Tally

_MAX_FACTOR: Final = 8
"""The interval doubles per re-send within an epoch, to at most this many B: a long consumer outage floods no queue."""


def due_for_resend(nominee: Nominee, *, sweep_after_s: int, now_ms: int) -> bool:
    factor: int = min(2 ** work_index.copy_of(nominee.key), _MAX_FACTOR)
    return now_ms - work_index.time_of(nominee.key) >= sweep_after_s * 1000 * factor


def sweep(ports: Ports, settings: ClassSettings, inflight: Sequence[Nominee], *, now_ms: int) -> int:
    """Touch and re-send the in-flight rows older than B, to the lane stored on each. Returns the rows re-sent.

    Two copies of one epoch share a lane and a FIFO group, which serialises them; the commit's fence lets one win.
    """
    due = [row for row in inflight if due_for_resend(row, sweep_after_s=settings.sweep_after_s, now_ms=now_ms)]

    def touch(nominee: Nominee) -> Job | None:
        move = lifecycle.resend(nominee, job_class=settings.name, now_ms=ports.clock.now_ms())
        try:
            result = ports.ledger.move(move)
        except LedgerUnavailable:
            return None  # touched or not, a later sweep finds it
        return result.job if isinstance(result, Won) else None

    jobs = [job for job in ports.parallel.map(touch, due) if job is not None]
    if jobs:
        send_jobs(ports, jobs)
        tally = Tally(ports, settings.name, shard=0)
        tally.add(stats.RESENDS, len(jobs))
        tally.flush()
        ports.log.event("swept", job_class=settings.name, rows=len(jobs))
    return len(jobs)
