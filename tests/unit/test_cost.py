"""Prices are applied to spending, and spending adds up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.core.cost import PRICES, Spending


def test_a_million_single_chunk_jobs_cost_what_their_writes_messages_and_seconds_cost() -> None:
    job = Spending(write_units=8, queue_requests=2.1, invocations=1, gb_seconds=0.5)  # 512 MB for a second

    # 8 x 0.625 + 2.1 x 0.50 + 0.20 + 0.5 x 16.6667 dollars
    assert job.times(1_000_000).usd() == pytest.approx(5.0 + 1.05 + 0.20 + 8.33335)


def test_tokens_cost_what_the_operator_says_and_nothing_otherwise() -> None:
    spent = Spending(input_tokens=2_000_000, output_tokens=1_000_000)

    assert spent.usd() == 0
    assert spent.usd(replace(PRICES, input_token_usd=0.15e-6, output_token_usd=0.6e-6)) == pytest.approx(0.9)


def test_spending_adds_up_in_every_part() -> None:
    one, two = Spending(write_units=1, read_units=2), Spending(write_units=3, gb_seconds=4)

    assert one + two == Spending(write_units=4, read_units=2, gb_seconds=4)
    assert one + one == one.times(2)


def test_the_prices_say_of_when_and_from_where_they_are() -> None:
    assert PRICES.as_of >= "2026-11"
    assert PRICES.region == "us-east-1"
    assert all(source.startswith("https://aws.amazon.com/") for source in PRICES.sources)
