"""What a class looks like to `plan`: the numbers of min(R, W/S) - A, each with where it is from. Nothing is written."""

from __future__ import annotations

from collections import Counter
from typing import Final

from msgspec import Struct

from shared.domain import stats, work_index
from shared.domain.control import Control, Measure, Measures, slots_in_force, slots_source
from shared.domain.settings import ClassSettings, UpstreamSettings
from shared.domain.upstream import rate_in_force
from shared.domain.work_index import Nominee
from shared.operate.capacity import MatchSample
from shared.operate.ports import MetricHistory
from shared.pacer.cost import job_usage
from shared.ports import Ports
from shared.steps.counting import waiting_partitions

SAMPLE_ROWS: Final = 100
"""Rows that are looked at of each list: one page."""

DAY_MS: Final = 86_400_000

ENOUGH_HOURS: Final = 20
"""Hours of a day that must have a value before the day is judged."""


class Known(Struct, frozen=True, kw_only=True):
    """One number, and where it is from."""

    value: float
    source: str


class ClassFacts(Struct, frozen=True, kw_only=True):
    """`pending` and `arrivals_per_s` None: no tick has said yet. `limit_per_s` None: no upstream.

    `longest_chunk_s` is the 95th percentile where it is measured, `chunk_room_s` what the function's timeout leaves it.
    `job_usd` is what a job takes of the table, the queue and the workers, without what the upstream charges.
    """

    pending: Known | None
    arrivals_per_s: Known | None
    limit_per_s: Known | None
    calls_per_job: Known
    service_s: Known
    slots: Known
    share: Known
    interval_s: Known
    longest_chunk_s: Known
    chunk_room_s: float
    job_usd: float


def declared_facts(settings: ClassSettings, upstream: UpstreamSettings | None) -> ClassFacts:
    """As the configuration says it, without a ledger: what a class would do before it is deployed."""
    return _facts(settings, upstream, Control(job_class=settings.name), arrivals_per_s=None, limit=None)


def live_facts(ports: Ports, settings: ClassSettings, upstream: UpstreamSettings | None) -> ClassFacts:
    """As the last ticks saw it: one read of control, of what was learned of the upstream, and of the closed minutes."""
    control = ports.ledger.read_control(settings.name)
    limit = None
    if upstream is not None:
        learned = ports.ledger.read_learned(upstream.name)
        limit = Known(
            value=rate_in_force(learned, upstream),
            source="declared" if learned is None else f"learned: {learned.decision}",
        )
    return _facts(settings, upstream, control, arrivals_per_s=_arrivals(ports, control), limit=limit)


def _facts(
    settings: ClassSettings,
    upstream: UpstreamSettings | None,
    control: Control,
    *,
    arrivals_per_s: Known | None,
    limit: Known | None,
) -> ClassFacts:
    last = control.history[-1] if control.history else None
    measures = control.measures
    service = _measured(measures, "service_s", settings.declared_service_s)
    if limit is None and upstream is not None:
        limit = Known(value=upstream.limit_per_s, source="declared")
    return ClassFacts(
        pending=None if last is None else Known(value=last.pending, source="the last tick"),
        arrivals_per_s=arrivals_per_s,
        limit_per_s=limit,
        calls_per_job=_measured(measures, "calls_per_job", settings.declared_calls_per_job),
        service_s=service,
        slots=Known(value=slots_in_force(control.slots, configured=settings.slots), source=slots_source(control.slots)),
        share=Known(value=settings.upstream_share, source="configured"),
        interval_s=Known(value=settings.tick_interval_s, source="configured"),
        longest_chunk_s=_measured(measures, "long_chunk_s", settings.declared_chunk_s),
        chunk_room_s=settings.function_timeout_s - settings.chunk_margin_s,
        job_usd=job_usage(
            service_s=service.value,
            memory_mb=settings.memory_mb,
            chunks=measures.chunks_per_job.value if measures is not None and measures.chunks_per_job is not None else 1,
        ).usd(),
    )


def _measured(measures: Measures | None, name: str, declared: float) -> Known:
    found: Measure | None = None if measures is None else getattr(measures, name)
    return Known(value=declared, source="declared") if found is None else Known(value=found.value, source=found.source)


def _arrivals(ports: Ports, control: Control) -> Known | None:
    """What came is what the backlog grew by and what left it: two observations over the same minutes."""
    history = control.history
    if len(history) < 2:
        return None
    first, last = history[0], history[-1]
    windows_ms = list(
        range(stats.window_of(first.at_ms) + stats.WINDOW_MS, stats.window_of(last.at_ms), stats.WINDOW_MS)
    )
    if not windows_ms:
        return None
    ended = stats.total(ports.ledger.read_stats(control.job_class, windows_ms=windows_ms), *stats.ENDINGS)
    grown_per_s = (last.pending - first.pending) * 1000 / (last.at_ms - first.at_ms)
    ended_per_s = ended * 1000 / (len(windows_ms) * stats.WINDOW_MS)
    return Known(value=max(0.0, grown_per_s + ended_per_s), source=f"observed over {len(windows_ms)} minutes")


# -- whether this is the right tool


def sample_matches(ports: Ports, settings: ClassSettings) -> MatchSample:
    """How the rows that are due lie over their matches: one page of each list, the oldest, whatever the ledger holds.

    Ordered classes keep what is behind a match's head in lists of its own; they are looked at too.
    """
    partitions = [
        partition
        for priority in range(settings.priorities)
        for retried in (False, True)
        for partition in waiting_partitions(settings, retried=retried, priority=priority)
    ]
    if settings.ordered:
        shards = range(work_index.SHARDS)
        partitions += [work_index.behind_partition(settings.name, shard=shard) for shard in shards]

    due = work_index.at(ports.clock.now_ms() + 1)

    def first(partition: str) -> tuple[Nominee, ...]:
        return ports.ledger.page(partition, low=work_index.at(0), high=due, limit=SAMPLE_ROWS).nominees

    by_match = Counter(row.match_id for page in ports.parallel.map(first, partitions) for row in page)
    return MatchSample(rows=sum(by_match.values()), matches=len(by_match), largest=max(by_match.values(), default=0))


def undeferred_s(history: MetricHistory, settings: ClassSettings, *, now_ms: int) -> float | None:
    """For how long no row has had to wait for a later tick: a day, 0, or None where that is not known or says nothing.

    A day in which nothing was admitted says nothing. Raises `HistoryUnavailable`.
    """
    deferred = history.maxima(settings.name, "DeferredRows", since_ms=now_ms - DAY_MS, until_ms=now_ms)
    if any(deferred):
        return 0.0
    if len(deferred) < ENOUGH_HOURS:
        return None
    admitted = history.maxima(settings.name, "AdmittedRows", since_ms=now_ms - DAY_MS, until_ms=now_ms)
    return DAY_MS / 1000 if any(admitted) else None
