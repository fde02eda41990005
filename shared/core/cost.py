"""What work costs: a dated price table, and the spending that it is applied to."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from shared.core.values import frozen


@frozen
class Prices:
    """US dollars per unit, on demand, without free tiers, volume discounts, storage or data transfer.

    The upstream's tokens have no price here: what an inference API asks is its operator's to say.
    """

    as_of: str
    region: str
    sources: tuple[str, ...]
    write_unit_usd: float
    read_unit_usd: float
    queue_request_usd: float
    invocation_usd: float
    gb_second_usd: float
    input_token_usd: float = 0.0
    output_token_usd: float = 0.0


PRICES: Final = Prices(
    as_of="2026-11",
    region="us-east-1",
    sources=(
        "https://aws.amazon.com/dynamodb/pricing/on-demand/",  # standard table class; halved in November 2024
        "https://aws.amazon.com/sqs/pricing/",  # FIFO
        "https://aws.amazon.com/lambda/pricing/",  # x86, first tier
    ),
    write_unit_usd=0.625e-6,
    read_unit_usd=0.125e-6,
    queue_request_usd=0.50e-6,
    invocation_usd=0.20e-6,
    gb_second_usd=16.6667e-6,
)


@frozen
class Spending:
    """What was used. Write units: 1 KB each, doubled in a transaction; a write that moves an index entry adds two."""

    write_units: float = 0.0
    read_units: float = 0.0
    queue_requests: float = 0.0
    invocations: float = 0.0
    gb_seconds: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0

    def __add__(self, other: Spending) -> Spending:
        return Spending(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    def times(self, count: float) -> Spending:
        return Spending(**{each.name: getattr(self, each.name) * count for each in fields(self)})

    def usd(self, prices: Prices = PRICES) -> float:
        return (
            self.write_units * prices.write_unit_usd
            + self.read_units * prices.read_unit_usd
            + self.queue_requests * prices.queue_request_usd
            + self.invocations * prices.invocation_usd
            + self.gb_seconds * prices.gb_second_usd
            + self.input_tokens * prices.input_token_usd
            + self.output_tokens * prices.output_token_usd
        )


REFUSED_CALL: Final = Spending(write_units=6, queue_requests=2.1, invocations=1, read_units=1)
"""A refused call beside its time: the row's way back to waiting and its next claim (3 units each: the row, its old and
its new place in the index), a tenth of a batch, a receive and a delete, an invocation and its read of the row."""

REPEATED_CHUNK: Final = Spending(write_units=1, queue_requests=2, invocations=1, read_units=1)
"""A chunk begun again beside its time and its calls: the start mark, an extended visibility and a receive, an
invocation and its read of the row."""


def job_spending(*, service_s: float, memory_mb: int, chunks: float = 1) -> Spending:
    """A job from its creation to its end: two units for the row and its place in the index, three for the claim, one a
    chunk and two for the last; a tenth of a batch, a receive and a delete; one invocation that reads the row."""
    return Spending(
        write_units=7 + max(0.0, chunks - 1),
        read_units=1,
        queue_requests=2.1,
        invocations=1,
        gb_seconds=service_s * memory_mb / 1024,
    )
