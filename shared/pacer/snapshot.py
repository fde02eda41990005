"""The first step of a tick: read everything that its decision needs, and say it as the plan's snapshot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from shared.domain import stats
from shared.domain.control import (
    Admission,
    Allowance,
    Control,
    Measures,
    Stage,
    override_sources,
    rate_bound,
    slots_in_force,
)
from shared.domain.job import Counts
from shared.domain.settings import ClassSettings, UpstreamSettings
from shared.domain.stats import StatsWindow
from shared.domain.work_index import Nominee
from shared.pacer.abort import Abort
from shared.pacer.allowance import Arrived, expected_rows
from shared.pacer.cost import PRICES, Prices, prices_with
from shared.pacer.decide import Snapshot
from shared.pacer.learning import see_upstream
from shared.pacer.measures import measure
from shared.pacer.rate import UpstreamSight
from shared.pacer.recovery import stage_of, staged
from shared.ports import Ports
from shared.steps.counting import count_rows, read_inflight

INDEX_LAG_MS: Final = 5_000
"""How far behind the base table the index is taken to be, at most, when in-flight rows are counted."""

STATS_WINDOWS: Final = 10
"""Closed minutes that calls, service and chunk times are measured over."""


class Gathered(Struct, frozen=True, kw_only=True):
    """Everything that the decision needs, as read after the lock was taken."""

    control: Control
    allowance: Allowance
    """The last one, with the record of what became of it; withdrawn, if this tick plans."""
    upstream: UpstreamSight | None
    measures: Measures
    counts: Counts
    inflight: list[Nominee]
    windows: list[StatsWindow]
    """The last closed minutes, newest first."""
    now_ms: int
    stage: Stage | None = None
    abort: Abort | None = None
    prices: Prices = PRICES
    spend_usd: float | None = None
    """What the abort rule judged, if the class was judged."""

    @property
    def oldest_age_s(self) -> int:
        oldest_ms = self.counts.oldest_eligible_ms
        return 0 if oldest_ms is None else max(0, (self.now_ms - oldest_ms) // 1000)

    @property
    def pending(self) -> int:
        return self.counts.eligible.total + self.counts.later + self.counts.behind + len(self.inflight)

    @property
    def recent(self) -> tuple[Admission, ...]:
        """What was admitted lately, by ticks and from the allowance just before it was withdrawn."""
        spent = self.allowance.used_since(self.now_ms - INDEX_LAG_MS)
        return (*self.control.recent, Admission(at_ms=self.now_ms, rows=spent)) if spent else self.control.recent

    @property
    def unseen_rows(self) -> int:
        """What the index may not show yet: fresh admissions, and rows on their way between two of its entries."""
        horizon = self.now_ms - INDEX_LAG_MS
        recent = sum(admission.rows for admission in self.recent if admission.at_ms > horizon)
        moved = stats.total(self.windows[:1], *stats.MOVES)
        return recent + math.ceil(moved * INDEX_LAG_MS / stats.WINDOW_MS)


def gather(ports: Ports, settings: ClassSettings, upstream: UpstreamSettings | None, *, plans: bool) -> Gathered:
    """Withdraw the allowance before anything is counted, or rows would be admitted that no count can have seen (I1).

    Who plans nothing (`plans` is False: a repair, a resumed run) leaves it to submitters: there is no grant after it.

    Read control first of all that is read: a pause that is committed after it waits until this tick has let go of the
    lock.
    """
    allowance = ports.ledger.withdraw(settings.name) if plans else ports.ledger.read_allowance(settings.name)
    control = ports.ledger.read_control(settings.name)
    now_ms = ports.clock.now_ms()
    counts = count_rows(ports, settings, now_ms)
    inflight = read_inflight(ports, settings)
    windows = ports.ledger.read_stats(settings.name, windows_ms=_closed_windows(now_ms))
    seen = Gathered(
        control=control,
        allowance=allowance,
        upstream=_upstream(ports, settings, upstream, control, now_ms),
        measures=measure(windows, settings, last=control.measures),
        counts=counts,
        inflight=inflight,
        windows=windows,
        now_ms=now_ms,
        prices=prices_with(upstream),
    )
    stage = stage_of(
        settings,
        control,
        windows,
        seen.upstream,
        pending=seen.pending,
        oldest_age_s=seen.oldest_age_s,
        now_ms=now_ms,
    )
    return replace(seen, stage=stage)


def _upstream(
    ports: Ports, settings: ClassSettings, upstream: UpstreamSettings | None, control: Control, now_ms: int
) -> UpstreamSight | None:
    if upstream is None:
        return None
    had_work = bool(control.history) and control.history[-1].workable > 0
    return see_upstream(ports, settings, upstream, had_work=had_work, now_ms=now_ms)


def snapshot_of(settings: ClassSettings, seen: Gathered, *, resumed: bool) -> Snapshot:
    upstream, measures = seen.upstream, seen.measures
    snapshot = Snapshot(
        interval_s=settings.tick_interval_s,
        lateness_s=settings.lateness_s,
        live_share=settings.live_share,
        max_inflight=settings.max_inflight,
        concurrency=slots_in_force(seen.control.slots, configured=settings.slots),
        upstream_rate_per_s=None if upstream is None else upstream.rate_per_s,
        upstream_share=settings.upstream_share if upstream is None else upstream.share,
        calls_per_job=measures.calls_per_job.value,
        service_s=measures.service_s.value,
        override_rate_per_s=rate_bound(seen.control.rate, now_ms=seen.now_ms),
        planned_at_ms=seen.control.planned_at_ms,
        carry=seen.control.carry,
        waiting=seen.counts.eligible,
        in_flight=len(seen.inflight),
        unseen=seen.unseen_rows,
        returned=seen.allowance.unspent,
        expected_live=expected_rows(_arrived(seen), interval_s=settings.tick_interval_s),
        paused=not seen.control.admits,
        resumed=resumed,
        sources={
            "calls_per_job": measures.calls_per_job.source,
            "service_s": measures.service_s.source,
            **({} if upstream is None else {"upstream_rate_per_s": upstream.source}),
            **override_sources(seen.control.rate, seen.control.slots, now_ms=seen.now_ms),
        },
    )
    return staged(snapshot, seen.stage)


def _arrived(seen: Gathered) -> list[Arrived]:
    """What came between the plans that control remembers, and since the last of them, oldest first."""
    plans = [(line.at_ms, line.arrived) for line in seen.control.history if line.arrived is not None]
    plans.append((seen.now_ms, seen.allowance.arrived))
    firsts = [Arrived(rows=plans[0][1], elapsed_ms=0)]
    return firsts + [
        Arrived(rows=rows, elapsed_ms=at_ms - before_ms) for (before_ms, _), (at_ms, rows) in pairwise(plans)
    ]


def _closed_windows(now_ms: int) -> list[int]:
    running_ms = stats.window_of(now_ms)
    return [running_ms - number * stats.WINDOW_MS for number in range(1, STATS_WINDOWS + 1)]


def windows_at(
    ports: Ports, settings: ClassSettings, seen: Gathered, minutes_ms: Iterable[int]
) -> Mapping[int, StatsWindow]:
    """The counters of these minutes, and of all that were gathered: only what is missing is read."""
    have = {window.start_ms: window for window in seen.windows}
    missing = sorted(set(minutes_ms) - have.keys())
    more = ports.ledger.read_stats(settings.name, windows_ms=missing) if missing else []
    return have | {window.start_ms: window for window in more}
