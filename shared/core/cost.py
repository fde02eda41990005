"""What work costs: what was used, priced, and which part of it bought nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Final

from shared.core.prices import PRICES, Prices
from shared.core.values import frozen


@frozen
class Usage:
    """What was used, in the units that are billed (`core.usage` says how many a step takes). Never negative."""

    write_units: float = 0.0
    read_units: float = 0.0
    queue_requests: float = 0.0
    invocations: float = 0.0
    gb_seconds: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in _UNITS})

    def times(self, count: float) -> Usage:
        return Usage(**{name: getattr(self, name) * count for name in _UNITS})

    def at_most(self, other: Usage) -> Usage:
        """Of each unit no more than `other` has."""
        return Usage(**{name: min(getattr(self, name), getattr(other, name)) for name in _UNITS})

    def usd(self, prices: Prices = PRICES) -> float:
        return spending(self, prices=prices).total_usd


_UNITS: Final = tuple(each.name for each in fields(Usage))

_NANO: Final = 1_000_000_000


@frozen
class Spending:
    """US dollars by who charges them. `waste_usd` is the part of all of it that bought nothing: refusals, repeats,
    stale messages. `jobs` are those that ended meanwhile."""

    lambda_usd: float = 0.0
    sqs_usd: float = 0.0
    dynamodb_usd: float = 0.0
    upstream_usd: float = 0.0
    waste_usd: float = 0.0
    jobs: int = 0

    @property
    def total_usd(self) -> float:
        return self.lambda_usd + self.sqs_usd + self.dynamodb_usd + self.upstream_usd

    @property
    def per_job_usd(self) -> float | None:
        """None: no job ended, so there is nothing to divide by."""
        return self.total_usd / self.jobs if self.jobs else None

    def packed(self) -> str:
        """Whole nano-dollars and jobs, some 30 bytes: control keeps one for each tick, and is paid by its size."""
        amounts = [round(getattr(self, name) * _NANO) for name in _DOLLARS]
        return " ".join(map(str, [*amounts, self.jobs]))


_DOLLARS: Final = tuple(each.name for each in fields(Spending) if each.name.endswith("_usd"))


def spending(used: Usage, *, wasted: Usage | None = None, jobs: int = 0, prices: Prices = PRICES) -> Spending:
    """What `used` costs; `wasted` is a part of it."""
    waste = Usage() if wasted is None else wasted.at_most(used)
    return Spending(
        lambda_usd=used.invocations * prices.invocation_usd + used.gb_seconds * prices.gb_second_usd,
        sqs_usd=used.queue_requests * prices.queue_request_usd,
        dynamodb_usd=used.write_units * prices.write_unit_usd + used.read_units * prices.read_unit_usd,
        upstream_usd=used.input_tokens * prices.input_token_usd + used.output_tokens * prices.output_token_usd,
        waste_usd=0.0 if wasted is None else waste.usd(prices),
        jobs=jobs,
    )


def unpacked(text: str) -> Spending | None:
    """The inverse of `packed`, to the nano-dollar; None where nothing was said, or nothing that can be read."""
    try:
        *amounts, jobs = (int(part) for part in text.split())
        return Spending(**{name: amount / _NANO for name, amount in zip(_DOLLARS, amounts, strict=True)}, jobs=jobs)
    except ValueError:
        return None


def summed(parts: Iterable[Spending]) -> Spending:
    found = list(parts)
    sums = {name: sum(getattr(each, name) for each in found) for name in _DOLLARS}
    return Spending(**sums, jobs=sum(each.jobs for each in found))
