"""How many items the permits of one upstream lie in, because one item takes about 1,000 writes/s.

Each of N items (shards) is a GCRA of its own (`core.permits`) with 1/N of the rate and its part of the burst, which is
at least one call. Over all of them a window holds what it would hold with one: the limit and the declared burst. A
worker goes round the items from a random one, without asking the others. Turns and not draws: with these some item
always falls idle while others have lines.

N follows from the declared limit and burst alone, so the learned rate moves without moving permits. A deployment may
change it. Items keep their keys and arrival times then, and while workers of both deployments run, an item that both
know starts calls at the faster of their two rates. From n items for a limit L to m for M, all items together start

    max(L, M) calls a second, and less than `CALLS_PER_SHARD` more, for as long as workers of the old deployment run

and nothing more at all where the items that both know are no faster in the smaller deployment (400 to 800 calls/s:
1 to 2 items of 400). A hold by an old worker reaches the items that it knows.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from shared.core.settings import UpstreamSettings

CALLS_PER_SHARD: Final = 500.0
"""Permits a second of one item at most. Half of what it takes in writes: a question that finds no room is one, too."""


def shards_for(limit_per_s: float, *, calls_per_shard: float = CALLS_PER_SHARD) -> int:
    """How many items the permits of an upstream with this declared limit need."""
    return max(1, ceil(limit_per_s / calls_per_shard))


def shards_of(upstream: UpstreamSettings, *, calls_per_shard: float = CALLS_PER_SHARD) -> int:
    """How many items its permits lie in: what the limit needs, and no more than the burst has calls for.

    Where the burst is smaller the items are hotter and the allowance holds all the same; `sluice.toml` may not say so.
    """
    return min(upstream.burst_calls, shards_for(upstream.limit_per_s, calls_per_shard=calls_per_shard))
