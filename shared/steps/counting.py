"""Count a class's rows by lane, over the index, all pages, partitions in parallel. There is no counter to drift."""

from __future__ import annotations

from typing import Final

from shared.domain import work_index
from shared.domain.job import Counts, LaneCounts
from shared.domain.settings import ClassSettings
from shared.domain.work_index import SHARDS, Nominee
from shared.ports import Ports

_END: Final = "~"
"""Sorts after every position: positions are digits and `#`."""

_PAGE: Final = 1000


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
    spans = _spans(settings, now_ms)
    counts = ports.parallel.map(lambda span: ports.ledger.count(span[1], low=span[2], high=span[3]), spans)
    sums = {"live": 0, "recovery": 0, "later": 0, "behind": 0, "dead": 0}
    for span, count in zip(spans, counts, strict=True):
        sums[span[0]] += count
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
            page = ports.ledger.page(partition, low=work_index.at(0), high=_END, limit=_PAGE, resume=resume)
            rows.extend(page.nominees)
            resume = page.resume
            if resume is None:
                return rows

    partitions = [work_index.inflight_partition(settings.name, shard=shard) for shard in range(SHARDS)]
    return [row for rows in ports.parallel.map(read, partitions) for row in rows]


def count_inflight(ports: Ports, settings: ClassSettings) -> int:
    """How many rows `read_inflight` would read."""
    partitions = [work_index.inflight_partition(settings.name, shard=shard) for shard in range(SHARDS)]
    counts = ports.parallel.map(
        lambda partition: ports.ledger.count(partition, low=work_index.at(0), high=_END), partitions
    )
    return sum(counts)


def _spans(settings: ClassSettings, now_ms: int) -> list[tuple[str, str, str, str]]:
    """(what is counted, partition, low, high) for every list."""
    later = (work_index.at(now_ms + 1), _END)
    spans = [("dead", work_index.dead_partition(settings.name), work_index.at(0), _END)]
    for priority in range(settings.priorities):
        for retried in (False, True):
            for partition in waiting_partitions(settings, retried=retried, priority=priority):
                spans.append(("later", partition, *later))
                spans.append(
                    ("recovery", partition, *eligible_span(settings, retried=retried, live=False, now_ms=now_ms))
                )
                if not retried:
                    spans.append(("live", partition, *eligible_span(settings, retried=False, live=True, now_ms=now_ms)))
    if settings.ordered:
        for shard in range(SHARDS):
            spans.append(("behind", work_index.behind_partition(settings.name, shard=shard), work_index.at(0), _END))
    return spans


def _oldest_ms(ports: Ports, settings: ClassSettings, now_ms: int) -> int | None:
    partitions = [
        partition
        for priority in range(settings.priorities)
        for retried in (False, True)
        for partition in waiting_partitions(settings, retried=retried, priority=priority)
    ]
    high = work_index.at(now_ms + 1)
    pages = ports.parallel.map(
        lambda partition: ports.ledger.page(partition, low=work_index.at(0), high=high, limit=1), partitions
    )
    times = [work_index.time_of(nominee.key) for page in pages for nominee in page.nominees]
    return min(times, default=None)
