"""What a replay has cost, and which part of it bought nothing: refused calls, and chunks that were done again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from ops.simulator.drive import Drive
from ops.simulator.kinds import Shape, Work
from ops.simulator.measure import port_counts
from ops.simulator.scenario import CLASS
from ops.simulator.upstream import OK
from shared.pacer.cost import REFUSED_CALL, REPEATED_CHUNK, Prices, Usage


class Bill(Struct, frozen=True, kw_only=True):
    """US dollars: total = useful + refused + repeated. A repeated call is taken to be billed again by the upstream."""

    total_usd: float
    useful_usd: float
    refused_usd: float
    repeated_usd: float
    tokens_usd: float
    refused_calls: int
    repeated_calls: int
    repeated_chunks: int
    resumed_jobs: int
    """Jobs that were interrupted after their first chunk and went on at the stored cursor."""
    lost_worker_s: float
    input_tokens: int
    output_tokens: int


def bill_of(drive: Drive, shapes: Mapping[str, Shape], work: Work, prices: Prices) -> Bill:
    calls = Counter(call.key for call in drive.sluice.upstream.calls if call.status == OK)
    bought, again = Usage(), Usage()
    for key, count in calls.items():
        tokens = _tokens(key, shapes)
        bought, again = bought + tokens.times(count), again + tokens.times(count - 1)
    memory_gb = drive.settings.classes[CLASS].memory_mb / 1024
    lost_ms = [sum(attempts[:-1]) for attempts in work.attempts_ms.values() if len(attempts) > 1]
    repeated_chunks = sum(len(attempts) - 1 for attempts in work.attempts_ms.values())
    refusals = drive.sluice.upstream.refusals
    refused = REFUSED_CALL.times(refusals) + Usage(gb_seconds=work.refused_ms / 1000 * memory_gb)
    repeated = again + REPEATED_CHUNK.times(repeated_chunks) + Usage(gb_seconds=sum(lost_ms) / 1000 * memory_gb)
    total_usd = port_counts(drive.sluice, drive.settings.classes[CLASS]).usd + bought.usd(prices)
    return Bill(
        total_usd=total_usd,
        useful_usd=total_usd - refused.usd(prices) - repeated.usd(prices),
        refused_usd=refused.usd(prices),
        repeated_usd=repeated.usd(prices),
        tokens_usd=bought.usd(prices),
        refused_calls=refusals,
        repeated_calls=sum(calls.values()) - len(calls),
        repeated_chunks=repeated_chunks,
        resumed_jobs=len(work.resumed_jobs),
        lost_worker_s=sum(lost_ms) / 1000,
        input_tokens=round(bought.input_tokens),
        output_tokens=round(bought.output_tokens),
    )


def _tokens(key: str, shapes: Mapping[str, Shape]) -> Usage:
    """The tokens of one call, by its idempotency key `<job_id>:<cursor>:<call>`."""
    job_id, cursor, _ = key.split(":")
    put_in, got_out = shapes[job_id].chunks[int(cursor or 0)]
    return Usage(input_tokens=put_in, output_tokens=got_out)
