"""Stats: counters that are only ever added to, one item per class, minute and shard. They expire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from shared.aws import keys
from shared.aws.paging import batch_get
from shared.aws.table import Table
from shared.core.stats import SHARDS, StatsWindow

STATS_KEPT_S: Final = 14 * 24 * 3600

_PREFIX: Final = "c_"
"""A kind may name a counter anything, also `pk`."""


class Stats:
    """The part of the `Ledger` that counts."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def add_stats(self, job_class: str, *, window_ms: int, shard: int, counters: Mapping[str, int]) -> None:
        if not 0 <= shard < SHARDS:
            raise ValueError("a shard that read_stats would not read")
        added = {name: amount for name, amount in counters.items() if amount}
        if not added:
            return
        names = {f"#{index}": f"{_PREFIX}{name}" for index, name in enumerate(added)}
        amounts = {f":{index}": {"N": str(amount)} for index, amount in enumerate(added.values())}
        clauses = ", ".join(f"#{index} :{index}" for index in range(len(added)))
        request = {
            "Key": keys.stats(job_class, window_ms, shard),
            "UpdateExpression": f"SET expires_s = :expires ADD {clauses}",
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": amounts | {":expires": {"N": str(window_ms // 1000 + STATS_KEPT_S)}},
        }
        self._table.update(request, once=True)

    def read_stats(self, job_class: str, *, windows_ms: Sequence[int]) -> list[StatsWindow]:
        """Eventually consistent: half the price, and nothing is ever conditional on a counter."""
        sums: dict[int, Counter[str]] = {window_ms: Counter() for window_ms in windows_ms}
        places = {
            keys.stats(job_class, window_ms, shard)["pk"]["S"]: (window_ms, shard)
            for window_ms in sums
            for shard in range(SHARDS)
        }
        wanted = [keys.stats(job_class, *place) for place in places.values()]
        for item in batch_get(self._table, wanted, consistent=False):
            window_ms, _ = places[item["pk"]["S"]]
            for name, attribute in item.items():
                if name.startswith(_PREFIX):
                    sums[window_ms][name.removeprefix(_PREFIX)] += int(attribute["N"])
        return [StatsWindow(start_ms=window_ms, counters=dict(sums[window_ms])) for window_ms in windows_ms]
