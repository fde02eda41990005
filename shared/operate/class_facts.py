"""What `plan` asks of a class: the numbers of min(R, W/S) - A, each with where it is from, and whether pacing is the
right tool for it. Nothing is written."""

from __future__ import annotations

from collections import Counter
from typing import Final

from msgspec import Struct

from shared.domain import stats, work_index
from shared.domain.control import Control, Measure, slots_in_force, slots_source
from shared.domain.settings import ClassSettings, UpstreamSettings
from shared.domain.upstream import rate_in_force
from shared.operate.capacity import MatchSample
from shared.operate.ports import MetricHistory
from shared.pacer.cost import job_usage
from shared.pacer.decide import Factor
from shared.pacer.measures import measure
from shared.ports import Ports
from shared.steps.counting import waiting_partitions

SAMPLE_ROWS: Final = 100
"""Rows that are looked at of each list: one page."""

DAY_MS: Final = 86_400_000

ENOUGH_HOURS: Final = 20
"""Hours of a day that must have a value before the day is judged."""


class ClassFacts(Struct, frozen=True, kw_only=True):
    """`numbers` by the names of `plan`'s options; `limit` only where the class has an upstream.

    `longest_chunk` is the 95th percentile where it is measured, in seconds, `chunk_room_s` what the function's timeout
    leaves it. `job_usd` is what a job takes of the table, the queue and the workers, without what the upstream charges.
    """

    numbers: dict[str, Factor]
    longest_chunk: Measure
    chunk_room_s: float
    job_usd: float


def declared_facts(settings: ClassSettings, upstream: UpstreamSettings | None) -> ClassFacts:
    """As the configuration says it, without a ledger: what a class would do before it is deployed."""
    nothing = Factor(name="pending", value=0.0, source="nothing waits before it is deployed")
    limit = None if upstream is None else Factor(name="limit", value=upstream.limit_per_s, source="declared")
    return _facts(settings, Control(job_class=settings.name), pending=nothing, arrivals=None, limit=limit)


def live_facts(ports: Ports, settings: ClassSettings, upstream: UpstreamSettings | None) -> ClassFacts:
    """As the last ticks saw it: one read of control, of what was learned of the upstream, and of the closed minutes."""
    control = ports.ledger.read_control(settings.name)
    limit = None
    if upstream is not None:
        learned = ports.ledger.read_learned(upstream.name)
        source = "declared" if learned is None else f"learned: {learned.decision}"
        limit = Factor(name="limit", value=rate_in_force(learned, upstream), source=source)
    pending = Factor(name="pending", value=0.0, source="no tick has counted yet")
    if control.history:
        pending = Factor(name="pending", value=control.history[-1].pending, source="the last tick")
    return _facts(settings, control, pending=pending, arrivals=_arrivals(ports, control), limit=limit)


def _facts(
    settings: ClassSettings, control: Control, *, pending: Factor, arrivals: Factor | None, limit: Factor | None
) -> ClassFacts:
    measures = control.measures or measure((), settings)
    service, calls, chunks = measures.service_s, measures.calls_per_job, measures.chunks_per_job
    slots = slots_in_force(control.slots, configured=settings.slots)
    numbers = (
        pending,
        arrivals or Factor(name="arrivals", value=0.0, source="not observed yet"),
        Factor(name="slots", value=slots, source=slots_source(control.slots)),
        Factor(name="service", value=service.value, source=service.source),
        Factor(name="calls", value=calls.value, source=calls.source),
        Factor(name="share", value=settings.upstream_share, source="configured"),
        Factor(name="interval", value=settings.tick_interval_s, source="configured"),
        *(() if limit is None else (limit,)),
    )
    usage = job_usage(
        service_s=service.value, memory_mb=settings.memory_mb, chunks=1 if chunks is None else chunks.value
    )
    return ClassFacts(
        numbers={number.name: number for number in numbers},
        longest_chunk=measures.long_chunk_s,
        chunk_room_s=settings.function_timeout_s - settings.chunk_margin_s,
        job_usd=usage.usd(),
    )


def _arrivals(ports: Ports, control: Control) -> Factor | None:
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
    source = f"observed over {len(windows_ms)} minutes"
    return Factor(name="arrivals", value=max(0.0, grown_per_s + ended_per_s), source=source)


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
    low, due = work_index.at(0), work_index.at(ports.clock.now_ms() + 1)
    pages = ports.parallel.map(
        lambda partition: ports.ledger.page(partition, low=low, high=due, limit=SAMPLE_ROWS), partitions
    )
    by_match = Counter(row.match_id for page in pages for row in page.nominees)
    return MatchSample(rows=by_match.total(), matches=len(by_match), largest=max(by_match.values(), default=0))


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
