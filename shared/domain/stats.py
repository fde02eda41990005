"""Counters of one class in one UTC minute, and the chunk-duration histogram. Observation, never a condition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field

WINDOW_MS: Final = 60_000
"""Counters are kept by the UTC minute in which things happened."""

SHARDS: Final = 4
"""Items that share the counters of one minute, so that all workers together do not write to one."""

# -- what happened to jobs

STARTS: Final = "starts"  # a first chunk begins
RESUMES: Final = "resumes"  # a later chunk begins
CHUNKS: Final = "chunks"  # a chunk ran to its end
CHUNK_MS: Final = "chunk_ms"  # how long chunks took, waits for permits before them left out
COMPLETIONS: Final = "completions"  # a job is done
DEATHS: Final = "deaths"  # a job is dead
FAILURES: Final = "failures"  # a job's own code failed and may try again: an attempt is burned
CRASHES: Final = "crashes"  # a redelivery proved that a worker died in a chunk
TRANSPORT_DEATHS: Final = "transport_deaths"  # a message ended in the dead-letter queue
RELEASES: Final = "releases"  # a job went back to waiting by order, without a fault of anybody's
HOP_CAPS: Final = "hop_caps"  # a job had its most continuations, and waits for a tick again
CONTINUATIONS: Final = "continuations"  # time was up after a chunk: a message of the next epoch goes on
HAND_BACKS: Final = "hand_backs"  # time was up before a message's first chunk
HANDOVERS: Final = "handovers"  # a finished head made the next job of its match the head and claimed it
RESENDS: Final = "resends"  # the sweep sent a message again

# -- what happened to messages

REDELIVERIES: Final = "redeliveries"  # the queue delivered a message once more
STALE: Final = "stale"  # a message of an epoch that is over was acknowledged
LOST_RACES: Final = "lost_races"  # another moved the row first

# -- what the upstream said

CALLS: Final = "calls"
REFUSALS: Final = "refusals"  # it said no
HOLDS: Final = "holds"  # it is not ready, and asked to wait
NO_PERMIT: Final = "no_permit"  # the next free permit comes after the deadline: the job waits in the table
OUTAGES: Final = "outages"  # something that a job needs did not answer, or its quota is used up: the job waits
QUOTA_PAUSES: Final = "quota_pauses"  # a quota is used up: the class was paused

# -- what it cost

INVOCATIONS: Final = "invocations"
MESSAGES: Final = "messages"
WORKER_MS: Final = "worker_ms"  # how long invocations ran
FLUSHES: Final = "flushes"  # counters written
CLASS_READS: Final = "class_reads"  # control, learned rate and statistics read by a worker
RESERVATIONS: Final = "reservations"  # requests for permits
INPUT_TOKENS: Final = "input_tokens"
OUTPUT_TOKENS: Final = "output_tokens"
OUTPUTS: Final = "outputs"  # outputs of chunks before the last one
LAST_OUTPUTS: Final = "last_outputs"  # outputs of last chunks
WASTED_MS: Final = "wasted_ms"  # time of chunks that were not committed
WASTED_CALLS: Final = "wasted_calls"  # answered calls of such chunks, and those that a redelivery may have repeated

MOVES: Final = (CONTINUATIONS, HAND_BACKS, HANDOVERS, RESENDS)
"""What moves an in-flight row between index entries, where a count may miss it for a moment."""

ENDINGS: Final = (COMPLETIONS, DEATHS)
"""What takes a row out of the backlog."""

RETRIED: Final = (FAILURES, REFUSALS, HOLDS, OUTAGES, CRASHES, TRANSPORT_DEATHS)
"""What sends a row back to wait, or would if its bound were not reached."""

_BUCKET_PREFIX: Final = "chunk_bucket_"

_BUCKET_BASE: Final = 1.15
"""Each bucket of the histogram ends 15 % above the one before: a percentile is at most that much too high."""

_BUCKETS: Final = 110
"""The last bucket begins at 1.15^109 ms, about 70 minutes: longer than a worker lives."""


class StatsWindow(Struct, frozen=True, kw_only=True):
    """One class's counters over one closed or running minute, all shards summed."""

    start_ms: int
    counters: Mapping[str, int] = field(default_factory=dict)


def window_of(now_ms: int) -> int:
    """The start of the UTC minute that `now_ms` lies in."""
    return now_ms - now_ms % WINDOW_MS


def bucket_name(duration_ms: int) -> str:
    """The histogram's counter of a chunk that took `duration_ms`."""
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
    below = 0
    for bucket, count in enumerate(counts):
        below += count
        if below >= quantile * total:
            return float(_BUCKET_BASE**bucket)
    raise AssertionError("unreachable: the counts sum to the total")


def total(windows: Iterable[StatsWindow], *names: str) -> int:
    return sum(window.counters.get(name, 0) for window in windows for name in names)
