"""What the tests of permits share: the items of one upstream in whole microseconds, and the count in a window."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from shared.domain.settings import UpstreamSettings
from shared.worker.permits import Full, Part, Reserved, gcra_reserve, parts_to_ask

FAR_US = 10**18


def upstream(
    limit_per_s: float, *, burst_calls: int = 1, name: str = "api", learned_per_s: float | None = None
) -> UpstreamSettings:
    return UpstreamSettings(
        name=name, endpoint="http://api", limit_per_s=limit_per_s, burst_calls=burst_calls, learned_per_s=learned_per_s
    )


class Items:
    """One arrival time per item. Workers ask with their own view of the parts, their own turn and their own clock."""

    def __init__(self) -> None:
        self.tats_us: dict[int, int] = {}

    def reserve(
        self, parts: tuple[Part, ...], *, turn: int, now_us: int, latest_us: int = FAR_US, calls: int = 1
    ) -> tuple[Part, tuple[int, ...]] | None:
        """The item that gave the permits and when their calls may start, on the worker's clock. None: no room."""
        for part in parts_to_ask(parts, turn):
            answer = gcra_reserve(
                self.tats_us.get(part.shard),
                now_us=now_us,
                latest_us=latest_us,
                interval_us=part.interval_us,
                calls=calls,
                burst_calls=part.burst_calls,
            )
            if isinstance(answer, Full):
                continue
            self.tats_us[part.shard] = answer.tat_us
            slots = starts_us(answer, interval_us=part.interval_us, calls=calls, burst_calls=part.burst_calls)
            assert now_us <= slots[0] <= latest_us  # never in the worker's past
            return part, slots
        return None


def starts_us(reserved: Reserved, *, interval_us: int, calls: int, burst_calls: int) -> tuple[int, ...]:
    """The earliest start of each reserved call, with the arguments that it was reserved with.

    Evenly spaced starts from `start_us` on are never earlier than these.
    """
    first_us = reserved.tat_us - (calls + burst_calls - 1) * interval_us
    return tuple(max(reserved.start_us, first_us + call * interval_us) for call in range(calls))


def most_in(starts: Iterable[int], window_us: int) -> int:
    """The most starts in any sliding window, both of its ends included."""
    times: Sequence[int] = sorted(starts)
    return max((bisect_right(times, at + window_us) - first for first, at in enumerate(times)), default=0)
