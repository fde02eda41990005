"""Claim what the plan admits and send it, and re-send what was lost: nominate, choose, claim row by row, send, sweep.

FIFO runs a match's jobs in series. Taken strictly oldest first, a match with 100 waiting jobs fills the budget and
leaves the other slots idle: so rows are chosen oldest first, but spread over the matches (protocol: the tick, step 5).

The sweep is the one repair (rule 3): what died between a commit and its message is healed here and nowhere else.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Final

from shared.domain import lifecycle, stats, work_index
from shared.domain.job import Job, Lane
from shared.domain.lifecycle import Won
from shared.domain.numbers import exact
from shared.domain.work_index import Nominee
from shared.errors import LedgerUnavailable
from shared.pacer.decide import SHORTEST_SERVICE_S, TickPlan
from shared.pacer.gather import Tick
from shared.pacer.snapshot import Gathered
from shared.ports import Ports
from shared.steps.counting import eligible_span, waiting_partitions
from shared.steps.sending import send_jobs

# -- which rows

_NONE: Final[Mapping[str, int]] = {}


def hard_cap(seconds_to_next_tick: float, service_s: float) -> int:
    """Jobs of one match that can start, one after the other, before the next tick; at least 1.

    The last of them may still run then: rounding down would leave its slot idle. ValueError for a number that is
    negative or not finite.
    """
    seconds = exact(seconds_to_next_tick, name="seconds_to_next_tick")
    service = max(exact(service_s, name="service_s"), exact(SHORTEST_SERVICE_S, name="service_s"))
    return max(1, ceil(seconds / service))


def fair_cap(budget: int, slots: int) -> int:
    """Rows per match that spread a budget evenly over the slots: ceil(budget / slots), at least 1."""
    return max(1, -(-budget // max(1, slots)))


def per_match(nominees: Iterable[Nominee]) -> dict[str, int]:
    """Rows by match."""
    return dict(Counter(nominee.match_id for nominee in nominees))


def enough(counts: Mapping[str, int], *, budget: int, cap: int, in_flight_by_match: Mapping[str, int] = _NONE) -> bool:
    """True if the rows read so far (by match) fill the budget under the cap, so that reading may stop."""
    return sum(min(rows, _room(match, cap, in_flight_by_match)) for match, rows in counts.items()) >= budget


def choose(
    nominees: Iterable[Nominee], *, budget: int, cap: int, in_flight_by_match: Mapping[str, int] = _NONE
) -> list[Nominee]:
    """At most `budget` of the nominees, which come oldest first, and no match above `cap` with what it has in flight.

    Every match's next row comes before any match's second; among equals the older. What a match has in flight counts
    as rows that it had before, so an idle match goes before a busy one (which waits only until its rows are done).
    Rows of one match keep their order. For several priorities call it per priority, highest first, with the budget
    left and what was chosen added to `in_flight_by_match`.
    """
    ahead: Counter[str] = Counter()
    ranked: list[tuple[int, int, Nominee]] = []
    for age, nominee in enumerate(nominees):
        rank = in_flight_by_match.get(nominee.match_id, 0) + ahead[nominee.match_id]
        if rank < cap:
            ranked.append((rank, age, nominee))
            ahead[nominee.match_id] += 1
    return [nominee for _, _, nominee in heapq.nsmallest(max(0, budget), ranked, key=lambda entry: entry[:2])]


def merge(*sorted_nominees: Iterable[Nominee]) -> Iterator[Nominee]:
    """One stream, oldest first, of several that are sorted by position. It reads each only as far as needed."""
    return heapq.merge(*sorted_nominees, key=lambda nominee: nominee.key.position)


def _room(match_id: str, cap: int, in_flight_by_match: Mapping[str, int]) -> int:
    return max(0, cap - in_flight_by_match.get(match_id, 0))


# -- claiming

_SLAB: Final = 250
"""Rows claimed before their messages are sent: a pacer that dies leaves at most these to the sweep."""

_PAGE: Final = 250
"""Nominees per page of an index partition."""

_MAX_PAGES: Final = 12
"""Pages per partition and lane: how far reading goes on past matches that are at their cap."""

_LOST: Final = "lost"
"""Somebody else has moved the row, or there was no time left to claim it."""

_UNKNOWN: Final = "unknown"
"""Nobody knows whether this claim was made: it counts as admitted (I1), and the sweep sends it if it was."""


def claim_and_send(tick: Tick, gathered: Gathered, plan: TickPlan) -> tuple[int, int]:
    """Claim up to the plan's rows per lane. Returns (admitted, confirmed by the queue). Stops claiming in time."""
    admitted = confirmed = 0
    taken = Counter(nominee.match_id for nominee in gathered.inflight)
    for lane, budget in ((Lane.LIVE, plan.live), (Lane.RECOVERY, plan.recovery)):
        left = budget
        claimer = _Claimer(tick, plan, lane, taken)
        for priority in reversed(range(tick.settings.priorities)):
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
        self.read = list(merge(self.read, *(page.nominees for page in pages)))


class _Claimer:
    """Claims rows of one lane. `taken` counts the rows in flight per match, this tick's claims included: FIFO
    serialises a match, so more of them would only wait."""

    def __init__(self, tick: Tick, plan: TickPlan, lane: Lane, taken: Counter[str]) -> None:
        self.tick = tick
        self.ports = tick.ports
        self.settings = tick.settings
        self.lane = lane
        self.taken = taken
        self.service_s = plan.snapshot.service_s
        self.slots = plan.snapshot.concurrency

    def run(self, priority: int, budget: int) -> tuple[int, int]:
        admitted = confirmed = 0
        reader = _Reader(self.ports, self._spans(priority), want=budget)
        while admitted < budget and self.ports.clock.now_ms() < self.tick.stop_ms:
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
        series = hard_cap(self.settings.tick_interval_s, self.service_s)
        fair = min(series, fair_cap(budget, self.slots))
        while not reader.exhausted and not enough(
            per_match(reader.read), budget=want, cap=fair, in_flight_by_match=self.taken
        ):
            reader.more()
        chosen = choose(reader.read, budget=want, cap=series, in_flight_by_match=self.taken)
        gone = {nominee.job_id for nominee in chosen}
        reader.read = [nominee for nominee in reader.read if nominee.job_id not in gone]
        return chosen

    def _claim(self, nominee: Nominee) -> Job | str:
        now_ms = self.ports.clock.now_ms()
        if now_ms >= self.tick.stop_ms:
            return _LOST
        move = lifecycle.claim(
            nominee,
            job_class=self.settings.name,
            lane=self.lane,
            run_id=self.tick.key.run_id,
            nonce=self.tick.owner,
            now_ms=now_ms,
            hand_until_ms=self.tick.key.minute_ms + self.settings.tick_interval_s * 1000,
        )
        # Rule 1: the claim is committed on the row before its message is sent.
        try:
            result = self.ports.ledger.move(move)
        except LedgerUnavailable:
            return _UNKNOWN
        return result.job if isinstance(result, Won) else _LOST


# -- the sweep

_MAX_FACTOR: Final = 8
"""The interval doubles per re-send within an epoch, to at most this many B: a long consumer outage floods no queue."""


def due_for_resend(nominee: Nominee, *, sweep_after_s: int, now_ms: int) -> bool:
    factor: int = min(2 ** work_index.copy_of(nominee.key), _MAX_FACTOR)
    return now_ms - work_index.time_of(nominee.key) >= sweep_after_s * 1000 * factor


def sweep(tick: Tick, gathered: Gathered) -> int:
    """Touch and re-send the in-flight rows older than B, to the lane stored on each. Returns the rows re-sent.

    Two copies of one epoch share a lane and a FIFO group, which serialises them; the commit's fence lets one win.
    """
    ports, settings = tick.ports, tick.settings
    due = [
        row
        for row in gathered.inflight
        if due_for_resend(row, sweep_after_s=settings.sweep_after_s, now_ms=gathered.now_ms)
    ]

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
        _count_resends(tick, len(jobs))
        ports.log.event("swept", job_class=settings.name, rows=len(jobs))
    return len(jobs)


def _count_resends(tick: Tick, rows: int) -> None:
    """Statistics that cannot be written are dropped: they are never a condition."""
    ports, name = tick.ports, tick.settings.name
    counters = {stats.RESENDS: rows, stats.FLUSHES: 1}
    minute_ms = stats.window_of(ports.clock.now_ms())
    try:
        ports.ledger.add_stats(name, window_ms=minute_ms, shard=0, counters=counters)
    except LedgerUnavailable:
        ports.log.event("stats_dropped", job_class=name)
