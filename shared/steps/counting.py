"""Count a class's rows by lane, over the index, all pages, partitions in parallel. There is no counter to drift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from shared.domain import work_index
from shared.domain.job import Counts, LaneCounts
from shared.domain.settings import ClassSettings
from shared.domain.work_index import SHARDS, Nominee
from shared.ports import Ports

_FIRST: Final = work_index.at(0)
"""Sorts before every position."""

_END: Final = "~"
"""Sorts after every position: positions are digits and `#`."""

_PAGE: Final = 1000
"""Rows of the index in one read: well below the 1 MB that bounds a page."""


def eligible_span(settings: ClassSettings, *, retried: bool, live: bool, now_ms: int) -> tuple[str, str]:
    """The positions [low, high) of a waiting list that belong to a lane now.

    The lane follows from the due time at claim time: an outage turns live rows into recovery rows by itself. Rows that
    waited before are recovery whatever their time.
    """
    now_end, live_from = work_index.at(now_ms + 1), work_index.at(now_ms + 1 - settings.live_window_s * 1000)
    if retried:
        return ("", "") if live else (work_index.at(0), now_end)
    return (live_from, now_end) if live else (work_index.at(0), live_from)


def waiting_partitions(settings: ClassSettings, *, retried: bool, priority: int) -> list[str]:
    return [
        work_index.waiting_partition(settings.name, priority=priority, shard=shard, retried=retried)
        for shard in range(SHARDS)
    ]


def count_rows(ports: Ports, settings: ClassSettings, now_ms: int) -> Counts:
    """Every list of the class except what is in flight, which the pacer reads row by row anyway."""
    spans = list(_spans(settings, now_ms))
    counts = ports.parallel.map(lambda span: ports.ledger.count(span.partition, low=span.low, high=span.high), spans)
    sums: Counter[str] = Counter()
    for span, count in zip(spans, counts, strict=True):
        sums[span.counts] += count
    return Counts(
        eligible=LaneCounts(live=sums["live"], recovery=sums["recovery"]),
        later=sums["later"],
        behind=sums["behind"],
        dead=sums["dead"],
        oldest_eligible_ms=_oldest_ms(ports, settings, now_ms) if sums["live"] + sums["recovery"] else None,
    )


def read_inflight(ports: Ports, settings: ClassSettings) -> list[Nominee]:
    """All in-flight rows as the index shows them. Reading them costs what counting them would."""

    def read(partition: str) -> list[Nominee]:
        rows: list[Nominee] = []
        resume: str | None = None
        while True:
            page = ports.ledger.page(partition, low=_FIRST, high=_END, limit=_PAGE, resume=resume)
            rows.extend(page.nominees)
            resume = page.resume
            if resume is None:
                return rows

    return [row for rows in ports.parallel.map(read, _inflight_partitions(settings)) for row in rows]


def count_inflight(ports: Ports, settings: ClassSettings) -> int:
    """How many rows `read_inflight` would read."""
    partitions = _inflight_partitions(settings)
    return sum(ports.parallel.map(lambda partition: ports.ledger.count(partition, low=_FIRST, high=_END), partitions))


class _Span(NamedTuple):
    """Positions [low, high) of a partition, and what their rows are counted as."""

    counts: str
    partition: str
    low: str
    high: str


def _spans(settings: ClassSettings, now_ms: int) -> Iterator[_Span]:
    yield _Span("dead", work_index.dead_partition(settings.name), _FIRST, _END)
    for retried, partition in _waiting_lists(settings):
        yield _Span("later", partition, work_index.at(now_ms + 1), _END)
        for lane in ("recovery",) if retried else ("recovery", "live"):
            span = eligible_span(settings, retried=retried, live=lane == "live", now_ms=now_ms)
            yield _Span(lane, partition, *span)
    if settings.ordered:
        for shard in range(SHARDS):
            yield _Span("behind", work_index.behind_partition(settings.name, shard=shard), _FIRST, _END)


def _oldest_ms(ports: Ports, settings: ClassSettings, now_ms: int) -> int | None:
    partitions = [partition for _, partition in _waiting_lists(settings)]
    high = work_index.at(now_ms + 1)
    pages = ports.parallel.map(
        lambda partition: ports.ledger.page(partition, low=_FIRST, high=high, limit=1), partitions
    )
    times = [work_index.time_of(nominee.key) for page in pages for nominee in page.nominees]
    return min(times, default=None)


def _waiting_lists(settings: ClassSettings) -> Iterator[tuple[bool, str]]:
    """Every partition of waiting rows, and whether it is one of retried rows."""
    for priority in range(settings.priorities):
        for retried in (False, True):
            for partition in waiting_partitions(settings, retried=retried, priority=priority):
                yield retried, partition


def _inflight_partitions(settings: ClassSettings) -> list[str]:
    return [work_index.inflight_partition(settings.name, shard=shard) for shard in range(SHARDS)]
