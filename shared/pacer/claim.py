"""Which of the waiting rows a tick claims: oldest first, but spread over the matches (protocol: the tick, step 5).

FIFO runs a match's jobs in series. Taken strictly oldest first, a match with 100 waiting jobs fills the budget and
leaves the other slots idle.

Claim what the plan admits and send it: nominate from the index, choose, claim each row conditionally, send.

The sweep, the one repair (rule 3): what died between a commit and its message is healed here and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from shared.domain import lifecycle, stats, work_index
from shared.domain.control import RunKey
from shared.domain.job import Job, Lane
from shared.domain.lifecycle import Won
from shared.domain.settings import ClassSettings
from shared.domain.work_index import Nominee
from shared.errors import LedgerUnavailable
from shared.pacer import choose
from shared.pacer.decide import TickPlan
from shared.ports import Ports
from shared.steps.counting import eligible_span, waiting_partitions
from shared.steps.sending import send_jobs
from shared.steps.tally import Tally

_SLAB: Final = 250
"""Rows claimed before their messages are sent: a pacer that dies leaves at most these to the sweep."""

_PAGE: Final = 250

_MAX_PAGES: Final = 12
"""Pages per partition and lane: how far reading goes on past matches that are at their cap."""

_LOST: Final = "lost"

_UNKNOWN: Final = "unknown"
"""Nobody knows whether this claim was made: it counts as admitted (I1), and the sweep sends it if it was."""


def claim_and_send(
    ports: Ports,
    settings: ClassSettings,
    plan: TickPlan,
    *,
    key: RunKey,
    nonce: str,
    stop_ms: int,
    inflight: Counter[str],
    service_s: float,
) -> tuple[int, int]:
    """Claim up to the plan's rows per lane. Returns (admitted, confirmed by the queue). Stops claiming at `stop_ms`."""
    admitted = confirmed = 0
    for lane, budget in ((Lane.LIVE, plan.live), (Lane.RECOVERY, plan.recovery)):
        left = budget
        claimer = _Claimer(
            ports=ports,
            settings=settings,
            key=key,
            nonce=nonce,
            lane=lane,
            stop_ms=stop_ms,
            taken=inflight,
            service_s=service_s,
            slots=plan.snapshot.concurrency,
        )
        for priority in reversed(range(settings.priorities)):
            rows, messages = claimer.run(priority, left)
            admitted, confirmed, left = admitted + rows, confirmed + messages, left - rows
    return admitted, confirmed


class _Reader:
    """Nominees of one lane and priority, oldest first, read page by page as they are needed."""

    def __init__(self, ports: Ports, spans: Sequence[tuple[str, str, str]], *, want: int) -> None:
        self.ports = ports
        self.spans = spans
        self.want = want
        self.pages = 0
        self.resume: dict[str, str | None] = {}
        self.read: list[Nominee] = []

    @property
    def exhausted(self) -> bool:
        return self.pages >= _MAX_PAGES or (self.pages > 0 and not self.resume)

    def more(self) -> None:
        """Read the next page of every partition that has one, in parallel."""
        open_spans = [span for span in self.spans if self.pages == 0 or span[0] in self.resume]
        limit = min(_PAGE, max(10, self.want)) if self.pages == 0 else _PAGE
        pages = self.ports.parallel.map(
            lambda span: self.ports.ledger.page(
                span[0], low=span[1], high=span[2], limit=limit, resume=self.resume.get(span[0])
            ),
            open_spans,
        )
        self.pages += 1
        self.resume = {
            span[0]: page.resume for span, page in zip(open_spans, pages, strict=True) if page.resume is not None
        }
        self.read = list(choose.merge(self.read, *(page.nominees for page in pages)))


class _Claimer(Struct, frozen=True, kw_only=True):
    ports: Ports
    settings: ClassSettings
    key: RunKey
    nonce: str
    lane: Lane
    stop_ms: int
    service_s: float
    slots: int
    taken: Counter[str]
    """Rows in flight per match, this tick's claims included: FIFO serialises a match, so more would only wait."""

    def run(self, priority: int, budget: int) -> tuple[int, int]:
        admitted = confirmed = 0
        reader = _Reader(self.ports, self._spans(priority), want=budget)
        while admitted < budget and self.ports.clock.now_ms() < self.stop_ms:
            slab = self._choose(reader, min(_SLAB, budget - admitted), budget)
            if not slab:
                break
            claims = self.ports.parallel.map(self._claim, slab)
            jobs = [claim for claim in claims if isinstance(claim, Job)]
            self.taken.update(job.match_id for job in jobs)
            admitted += len(jobs) + claims.count(_UNKNOWN)
            confirmed += send_jobs(self.ports, jobs)
        return admitted, confirmed

    def _spans(self, priority: int) -> list[tuple[str, str, str]]:
        now_ms = self.ports.clock.now_ms()
        spans = []
        for retried in (False, True):
            low, high = eligible_span(self.settings, retried=retried, live=self.lane is Lane.LIVE, now_ms=now_ms)
            if low < high:
                partitions = waiting_partitions(self.settings, retried=retried, priority=priority)
                spans += [(partition, low, high) for partition in partitions]
        return spans

    def _choose(self, reader: _Reader, want: int, budget: int) -> list[Nominee]:
        """The next rows to claim. Reading goes on while the pages in hand would leave slots idle behind few matches."""
        series = choose.hard_cap(self.settings.tick_interval_s, self.service_s)
        fair = min(series, choose.fair_cap(budget, self.slots))
        while not reader.exhausted and not choose.enough(
            choose.per_match(reader.read), budget=want, cap=fair, in_flight_by_match=self.taken
        ):
            reader.more()
        chosen = choose.choose(reader.read, budget=want, cap=series, in_flight_by_match=self.taken)
        gone = {nominee.job_id for nominee in chosen}
        reader.read = [nominee for nominee in reader.read if nominee.job_id not in gone]
        return chosen

    def _claim(self, nominee: Nominee) -> Job | str:
        now_ms = self.ports.clock.now_ms()
        if now_ms >= self.stop_ms:
            return _LOST
        move = lifecycle.claim(
            nominee,
            job_class=self.settings.name,
            lane=self.lane,
            run_id=self.key.run_id,
            nonce=self.nonce,
            now_ms=now_ms,
            hand_until_ms=self.key.minute_ms + self.settings.tick_interval_s * 1000,
        )
        # Rule 1: the claim is committed on the row before its message is sent.
        try:
            result = self.ports.ledger.move(move)
        except LedgerUnavailable:
            return _UNKNOWN
        return result.job if isinstance(result, Won) else _LOST


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
