"""Spend the live allowance: a live job is created as claimed, in one transaction with the decrement, and sent at once.

Who finds none left, or meets another submitter at it, creates the row as waiting, as ever. Who dies before the message
is sent leaves a row in flight, which the sweep heals (rule 3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from shared.core.allowance import admitted_at_once, may_spend
from shared.core.model import Job
from shared.core.settings import Settings
from shared.errors import LedgerUnavailable
from shared.ports import Ports
from shared.usecases.lines import Claim
from shared.usecases.sending import send_jobs

AT_ONCE: Final = 25
"""Rows that a submission may have and still spend: what a match leaves behind. More are a backlog: they wait, so that
no file takes the next match's rows, and none of its rows costs what a transaction does."""


def spend(ports: Ports, settings: Settings, jobs: Sequence[Job]) -> set[int]:
    """Admit as many of the live rows of unordered classes as there is allowance for. Returns their positions."""
    by_class: dict[str, list[int]] = {}
    for place, job in enumerate(jobs):
        if not settings.classes[job.job_class].ordered and _is_live(ports, settings, job):
            by_class.setdefault(job.job_class, []).append(place)
    taken: set[int] = set()
    for name, places in by_class.items():
        allowance = ports.ledger.read_allowance(name)
        now_ms = ports.clock.now_ms()
        first = places[: allowance.rows]
        rows = [admitted_at_once(jobs[place], allowance, now_ms=now_ms) for place in first]
        if rows and ports.ledger.spend(allowance, rows):
            send_jobs(ports, rows)
            taken.update(first)
    return taken


def claimed(ports: Ports, settings: Settings, job: Job) -> Claim:
    """The job as it may enter an empty line: claimed where there is allowance, else as it is."""
    if not _is_live(ports, settings, job):
        return job, None
    allowance = ports.ledger.read_allowance(job.job_class)
    if not allowance.rows:
        return job, None
    return admitted_at_once(job, allowance, now_ms=ports.clock.now_ms()), allowance


def count_missed(ports: Ports, settings: Settings, waiting: Iterable[Job]) -> None:
    """Say of the rows that were created as waiting which would have spent: the next tick keeps rows for as many."""
    missed = Counter(job.job_class for job in waiting if _is_live(ports, settings, job))
    for name, rows in missed.items():
        try:
            ports.ledger.miss(name, rows=rows)
        except LedgerUnavailable:
            ports.log.event("stats_dropped", job_class=name)


def _is_live(ports: Ports, settings: Settings, job: Job) -> bool:
    window_s = settings.classes[job.job_class].live_window_s
    return may_spend(job, now_ms=ports.clock.now_ms(), live_window_s=window_s)
