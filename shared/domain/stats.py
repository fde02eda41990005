"""Counters of one class in one UTC minute, and the chunk-duration histogram. Observation, never a condition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field

WINDOW_MS: Final = 60_000

SHARDS: Final = 4

COMPLETIONS: Final = "completions"

CALLS: Final = "calls"

REFUSALS: Final = "refusals"

FAILURES: Final = "failures"

DEATHS: Final = "deaths"

CHUNKS: Final = "chunks"

CHUNK_MS: Final = "chunk_ms"

CONTINUATIONS: Final = "continuations"

HANDOVERS: Final = "handovers"

RESENDS: Final = "resends"

STARTS: Final = "starts"

RESUMES: Final = "resumes"

RELEASES: Final = "releases"

TRANSPORT_DEATHS: Final = "transport_deaths"

STALE: Final = "stale"

LOST_RACES: Final = "lost_races"

CRASHES: Final = "crashes"

HOP_CAPS: Final = "hop_caps"

HAND_BACKS: Final = "hand_backs"

HOLDS: Final = "holds"

OUTAGES: Final = "outages"

QUOTA_PAUSES: Final = "quota_pauses"

NO_PERMIT: Final = "no_permit"

INPUT_TOKENS: Final = "input_tokens"

OUTPUT_TOKENS: Final = "output_tokens"

INVOCATIONS: Final = "invocations"

MESSAGES: Final = "messages"

WORKER_MS: Final = "worker_ms"

FLUSHES: Final = "flushes"

CLASS_READS: Final = "class_reads"

RESERVATIONS: Final = "reservations"

REDELIVERIES: Final = "redeliveries"

OUTPUTS: Final = "outputs"

LAST_OUTPUTS: Final = "last_outputs"

WASTED_MS: Final = "wasted_ms"

WASTED_CALLS: Final = "wasted_calls"
"""What only the cost is made of (`pacer.cost`). Outputs are of chunks before the last, last outputs of last ones; time
and answered calls are wasted if their chunk was not committed, calls also if a redelivery may have repeated them."""

MOVES: Final = (CONTINUATIONS, HAND_BACKS, HANDOVERS, RESENDS)
"""What moves an in-flight row between index entries, where a count may miss it for a moment."""

ENDINGS: Final = (COMPLETIONS, DEATHS)
"""What takes a row out of the backlog."""

RETRIED: Final = (FAILURES, REFUSALS, HOLDS, OUTAGES, CRASHES, TRANSPORT_DEATHS)
"""What sends a row back to wait, or would if its bound were not reached."""

_BUCKET_PREFIX: Final = "chunk_bucket_"

_BUCKET_BASE: Final = 1.15

_BUCKETS: Final = 110


class StatsWindow(Struct, frozen=True, kw_only=True):
    """One class's counters over one closed or running minute, all shards summed."""

    start_ms: int
    counters: Mapping[str, int] = field(default_factory=dict)


def window_of(now_ms: int) -> int:
    """The start of the UTC minute that `now_ms` lies in."""
    return now_ms - now_ms % WINDOW_MS


def bucket_name(duration_ms: int) -> str:
    """The histogram counter of a chunk that took `duration_ms`: each bucket ends 15 % above the one before."""
    bucket, bound = 0, 1.0
    while bound < duration_ms and bucket < _BUCKETS:
        bound *= _BUCKET_BASE
        bucket += 1
    return f"{_BUCKET_PREFIX}{bucket}"


def percentile_ms(windows: Iterable[StatsWindow], quantile: float, *, at_least: int) -> float | None:
    """The upper bound of the bucket that holds the quantile, or None below `at_least` samples."""
    counts = [0] * (_BUCKETS + 1)
    for window in windows:
        for name, count in window.counters.items():
            if name.startswith(_BUCKET_PREFIX):
                counts[int(name.removeprefix(_BUCKET_PREFIX))] += count
    total = sum(counts)
    if total < max(1, at_least):
        return None
    seen = 0
    for bucket, count in enumerate(counts):
        seen += count
        if seen >= quantile * total:
            return float(_BUCKET_BASE**bucket)
    raise AssertionError("unreachable: the counts sum to the total")


def total(windows: Iterable[StatsWindow], *names: str) -> int:
    return sum(window.counters.get(name, 0) for window in windows for name in names)
