"""What `sluice.toml` may say of how an upstream is spoken to: plain JSON over HTTP, or Amazon Bedrock's Converse."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shared.domain import config_rules as rules
from shared.domain.settings import CALLS_PER_SHARD, UpstreamApi, shards_for

API: Final = rules.Rule(
    kinds=(str,),
    accepts=lambda value: value in {each.value for each in UpstreamApi},
    expected="one of " + ", ".join(each.value for each in UpstreamApi),
    convert=UpstreamApi,
)

MODEL: Final = rules.text(
    r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}", "the id or ARN of a Bedrock model or inference profile"
)

TOKEN_PRICE: Final = rules.number(0, 1_000_000)

UPSTREAM: Final = replace(
    rules.UPSTREAM,
    rules={
        **rules.UPSTREAM.rules,
        "api": API,
        "model": MODEL,
        "max_tokens": rules.whole(1, 100_000),
        "usd_per_million_input_tokens": TOKEN_PRICE,
        "usd_per_million_output_tokens": TOKEN_PRICE,
    },
    laws=(
        *rules.UPSTREAM.laws,
        rules.Law(
            blames="endpoint",
            reads=("api", "endpoint"),
            holds=lambda values: (values["api"] is UpstreamApi.HTTP) == bool(values["endpoint"]),
            expected=f'{rules.URL.expected} with api = "{UpstreamApi.HTTP}", nothing without it',
        ),
        rules.Law(
            blames="model",
            reads=("api", "model"),
            holds=lambda values: (values["api"] is UpstreamApi.CONVERSE) == bool(values["model"]),
            expected=f'{MODEL.expected} with api = "{UpstreamApi.CONVERSE}", nothing without it',
        ),
        rules.Law(
            blames="burst_calls",
            reads=("burst_calls", "limit_per_s"),
            holds=lambda values: values["burst_calls"] >= shards_for(values["limit_per_s"]),
            expected=f"at least 1 for each {CALLS_PER_SHARD:g} of limit_per_s or part of it: so many items of the table"
            " hold the permits, and each may start a call at once",
        ),
    ),
)
