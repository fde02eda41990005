"""Which of the waiting rows a tick claims: oldest first, but spread over the matches (protocol: the tick, step 5).

FIFO runs a match's jobs in series. Taken strictly oldest first, a match with 100 waiting jobs fills the budget and
leaves the other slots idle.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from typing import Final

from shared.domain.numbers import exact
from shared.domain.work_index import Nominee

_SHORTEST_SERVICE_S: Final = 0.001
_NONE: Final[Mapping[str, int]] = {}


def hard_cap(seconds_to_next_tick: float, service_s: float) -> int:
    """Jobs of one match that can start, one after the other, before the next tick; at least 1.

    The last of them may still run then: rounding down would leave its slot idle. ValueError for a number that is
    negative or not finite.
    """
    seconds = exact(seconds_to_next_tick, name="seconds_to_next_tick")
    service = max(exact(service_s, name="service_s"), exact(_SHORTEST_SERVICE_S, name="service_s"))
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
    seen: Counter[str] = Counter()
    ranked: list[tuple[int, int, Nominee]] = []
    for age, nominee in enumerate(nominees):
        rank = in_flight_by_match.get(nominee.match_id, 0) + seen[nominee.match_id]
        if rank < cap:
            ranked.append((rank, age, nominee))
            seen[nominee.match_id] += 1
    return [nominee for _, _, nominee in heapq.nsmallest(max(0, budget), ranked, key=lambda entry: entry[:2])]


def merge(*sorted_nominees: Iterable[Nominee]) -> Iterator[Nominee]:
    """One stream, oldest first, of several that are sorted by position. It reads each only as far as needed."""
    return heapq.merge(*sorted_nominees, key=lambda nominee: nominee.key.position)


def _room(match_id: str, cap: int, in_flight_by_match: Mapping[str, int]) -> int:
    return max(0, cap - in_flight_by_match.get(match_id, 0))
