"""Prices are applied to usage, usage adds up, and no waste is larger than the whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from shared.domain.settings import UpstreamSettings
from shared.pacer.cost import PRICES, Spending, Usage, prices_with, spending, summed, unpacked

AMOUNTS = st.floats(min_value=0, max_value=1e9)
USAGES = st.builds(Usage, **{each.name: AMOUNTS for each in structs.fields(Usage)})
TOKEN_PRICES = replace(PRICES, input_token_usd=0.15e-6, output_token_usd=0.6e-6)


def test_a_million_single_chunk_jobs_cost_what_their_writes_messages_and_seconds_cost() -> None:
    job = Usage(write_units=8, queue_requests=2.1, invocations=1, gb_seconds=0.5)  # 512 MB for a second

    # 8 x 0.625 + 2.1 x 0.50 + 0.20 + 0.5 x 13.3334 dollars
    assert job.times(1_000_000).usd() == pytest.approx(5.0 + 1.05 + 0.20 + 6.6667)


def test_each_dollar_stands_with_who_charges_it() -> None:
    used = Usage(
        write_units=4e6,
        read_units=8e6,
        queue_requests=2e6,
        invocations=5e6,
        gb_seconds=1e6,
        input_tokens=2e6,
        output_tokens=1e6,
    )
    found = spending(used, jobs=10, prices=TOKEN_PRICES)

    assert found.dynamodb_usd == pytest.approx(2.5 + 1.0)
    assert found.sqs_usd == pytest.approx(1.0)
    assert found.lambda_usd == pytest.approx(1.0 + 13.3334)
    assert found.upstream_usd == pytest.approx(0.3 + 0.6)
    assert found.per_job_usd == pytest.approx((3.5 + 1.0 + 14.3334 + 0.9) / 10)
    assert found.waste_usd == 0


def test_tokens_cost_what_the_operator_says_and_nothing_otherwise() -> None:
    used = Usage(input_tokens=2_000_000, output_tokens=1_000_000)
    said = UpstreamSettings(
        name="inference", limit_per_s=1.0, usd_per_million_input_tokens=0.15, usd_per_million_output_tokens=0.6
    )

    assert used.usd() == used.usd(prices_with(None)) == 0
    assert used.usd(prices_with(UpstreamSettings(name="inference", limit_per_s=1.0))) == 0
    assert used.usd(prices_with(said)) == pytest.approx(0.9)


def test_nobody_drained_is_no_price_of_a_job() -> None:
    assert spending(Usage(invocations=1)).per_job_usd is None


@given(one=USAGES, two=USAGES)
def test_usage_adds_up_in_every_part(one: Usage, two: Usage) -> None:
    both = one + two

    assert all(getattr(both, name) == getattr(one, name) + getattr(two, name) for name in Usage.__struct_fields__)
    assert one + one == one.times(2)
    assert both.usd(TOKEN_PRICES) == pytest.approx(one.usd(TOKEN_PRICES) + two.usd(TOKEN_PRICES))


@given(used=USAGES, wasted=USAGES)
def test_waste_is_never_more_than_all_that_was_spent_on_the_same(used: Usage, wasted: Usage) -> None:
    found = spending(used, wasted=wasted, prices=TOKEN_PRICES)

    assert 0 <= found.waste_usd <= found.total_usd * (1 + 1e-9)


@given(used=USAGES, jobs=st.integers(0, 10**9))
def test_what_a_tick_keeps_of_its_cost_is_right_to_the_nano_dollar(used: Usage, jobs: int) -> None:
    found = spending(used, wasted=used.times(0.5), jobs=jobs, prices=TOKEN_PRICES)
    kept = unpacked(found.packed())

    assert kept is not None
    assert kept.jobs == jobs
    for each in structs.fields(Spending):
        assert getattr(kept, each.name) == pytest.approx(getattr(found, each.name), abs=1e-9)


@pytest.mark.parametrize("text", ["", "1 2", "1 2 3 4 5 x", "1 2 3 4 5 6 7"])
def test_a_line_that_says_no_cost_has_none(text: str) -> None:
    assert unpacked(text) is None


def test_ticks_sum_up() -> None:
    one, two = Spending(lambda_usd=1.0, waste_usd=0.5, jobs=2), Spending(sqs_usd=2.0, jobs=3)

    assert summed([one, two]) == Spending(lambda_usd=1.0, sqs_usd=2.0, waste_usd=0.5, jobs=5)
    assert summed([]) == Spending()


def test_the_prices_say_of_when_and_from_where_they_are() -> None:
    assert PRICES.as_of >= "2026-11"
    assert PRICES.region == "us-east-1"
    assert all(source.startswith("https://aws.amazon.com/") for source in PRICES.sources)
