"""The price table and its date. No other file knows a price of AWS's; what an upstream asks is in `sluice.toml`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shared.core.settings import UpstreamSettings
from shared.core.values import frozen


@frozen
class Prices:
    """US dollars per unit, on demand, without free tiers, volume discounts, storage, logs, metrics or data transfer.

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
        "https://aws.amazon.com/sqs/pricing/",  # FIFO; a request carries up to 64 KB
        "https://aws.amazon.com/lambda/pricing/",  # arm64, which is what is deployed; first tier
    ),
    write_unit_usd=0.625e-6,
    read_unit_usd=0.125e-6,
    queue_request_usd=0.50e-6,
    invocation_usd=0.20e-6,
    gb_second_usd=13.3334e-6,
)

_MILLION: Final = 1_000_000


def prices_with(upstream: UpstreamSettings | None, prices: Prices = PRICES) -> Prices:
    """The table with what the configuration says of the upstream's tokens; nothing where it says nothing."""
    if upstream is None:
        return prices
    return replace(
        prices,
        input_token_usd=(upstream.usd_per_million_input_tokens or 0.0) / _MILLION,
        output_token_usd=(upstream.usd_per_million_output_tokens or 0.0) / _MILLION,
    )
