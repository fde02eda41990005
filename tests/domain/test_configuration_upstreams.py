"""`sluice.toml`: upstreams, and what the classes that share one may ask of it."""

from __future__ import annotations

import pytest

from shared.domain.configuration import parse_settings
from shared.domain.settings import UpstreamApi
from tests.domain.test_configuration import UPSTREAM_TABLE, a_class, faults

BAD_UPSTREAMS = [
    ('endpoint = "ftp://inference.example"', "endpoint: got a string, expected an http:// or https:// URL"),
    ('endpoint = "inference.example"', "endpoint: got a string, expected an http:// or https:// URL"),
    ('endpoint = "https://"', "endpoint: got a string, expected an http:// or https:// URL"),
    ('endpoint = "https://[bad"', "endpoint: got a string, expected an http:// or https:// URL"),
    ('endpoint = "https://a:b"', "endpoint: got a string, expected an http:// or https:// URL"),  # no port
    ('endpoint = "https://a b"', "endpoint: got a string, expected an http:// or https:// URL"),
    ('api = "grpc"', 'api: got "grpc", expected one of http, bedrock-converse'),
    ('model = "eu.some.model-v1:0"', "model: got"),  # with an endpoint that knows no models
    ('model = "with spaces"', 'model: got "with spaces", expected the id or ARN of a Bedrock model'),
    ("max_tokens = 0", "max_tokens: got 0, expected a whole number from 1 to 100000"),
    (
        "limit_per_s = 0",
        "limit_per_s: got 0, expected a number above 0, at most 100000",
    ),  # no rate ever recovers from 0
    ("limit_per_s = nan", "limit_per_s: got nan, expected a number above 0, at most 100000"),
    ("burst_calls = 0", "burst_calls: got 0, expected a whole number from 1 to 100000"),
    ("limit_per_s = 501", "burst_calls: got 1, expected at least 1 for each 500 of limit_per_s or part of it"),
    ('refusal_threshold = "2%"', "refusal_threshold: got a string, expected a number from 0 to 1"),
    ("timeout_s = 120", "timeout_s: got 120.0, expected less than classes.replay_summary.function_timeout_s"),
    ("errors = 429", "errors: got a whole number, expected a table"),
    ('errors = {200 = "hold"}', 'errors.200: got "200", expected an HTTP status from 400 to 599'),
    ('errors = {600 = "hold"}', 'errors.600: got "600", expected an HTTP status from 400 to 599'),
    ('errors = {"٤٢٩" = "hold"}', 'errors."\\u0664\\u0662\\u0669": got'),  # digits to int(), not to HTTP
    ('errors = {429 = "retry"}', 'errors.429: got "retry", expected one of refuse, hold, exhausted, reject'),
    ("errors = {429 = 1}", "errors.429: got a whole number, expected one of refuse, hold, exhausted, reject"),
]


@pytest.mark.parametrize(("line", "expected"), BAD_UPSTREAMS)
def test_a_fault_of_an_upstream_is_named_like_any_other(line: str, expected: str) -> None:
    kept = [each for each in UPSTREAM_TABLE.splitlines() if each.partition(" ")[0] != line.partition(" ")[0]]
    (fault,) = faults("\n".join([*kept, line, a_class('upstream = "inference"')]))

    assert fault.startswith(f"upstreams.inference.{expected}")


def test_shares_of_one_upstream_above_one_are_refused_with_the_keys_that_make_them_up() -> None:
    both = a_class('upstream = "inference"', "upstream_share = 0.7", name="a")
    both += a_class('upstream = "inference"', "upstream_share = 0.5", name="b")

    assert faults(UPSTREAM_TABLE + both) == [
        "classes.a.upstream_share + classes.b.upstream_share: got 1.2, "
        "expected shares of upstreams.inference that sum to at most 1"
    ]


def test_shares_that_sum_to_one_are_accepted_whatever_their_fractions() -> None:
    classes = [a_class('upstream = "inference"', "upstream_share = 0.1", name=f"class_{n}") for n in range(10)]

    assert len(parse_settings(UPSTREAM_TABLE + "".join(classes)).classes) == 10


def test_an_address_is_not_repeated_however_short_it_is() -> None:
    text = UPSTREAM_TABLE.replace("https://inference", "ftp://me:CANARY@inference") + a_class()

    assert "CANARY" not in "".join(faults(text))


def test_an_upstream_without_an_address_is_told_which_one_is_missing() -> None:
    (fault,) = faults("[upstreams.inference]\nlimit_per_s = 8\n" + a_class('upstream = "inference"'))

    assert fault.startswith("upstreams.inference.endpoint: got nothing, expected an http:// or https:// URL with api =")


def test_a_model_of_bedrock_needs_no_address() -> None:
    text = '[upstreams.inference]\napi = "bedrock-converse"\nmodel = "eu.some.model-v1:0"\nlimit_per_s = 8\n'
    found = parse_settings(text + a_class('upstream = "inference"')).upstreams["inference"]

    assert (found.api, found.model, found.max_tokens) == (UpstreamApi.CONVERSE, "eu.some.model-v1:0", 1024)


def test_an_address_beside_a_model_is_refused_and_not_repeated() -> None:
    text = (
        UPSTREAM_TABLE + 'api = "bedrock-converse"\nmodel = "eu.some.model-v1:0"\n' + a_class('upstream = "inference"')
    )
    (fault,) = faults(text)

    assert fault.startswith(
        "upstreams.inference.endpoint: got a string, expected an http:// or https:// URL with api ="
    )


def test_a_model_that_is_not_named_is_a_fault() -> None:
    text = '[upstreams.inference]\napi = "bedrock-converse"\nlimit_per_s = 8\n' + a_class('upstream = "inference"')

    assert faults(text) == [
        "upstreams.inference.model: got nothing, expected the id or ARN of a Bedrock model or inference profile"
        ' with api = "bedrock-converse", nothing without it'
    ]


def test_a_burst_of_one_call_for_each_item_of_permits_is_enough() -> None:
    table = UPSTREAM_TABLE.replace("limit_per_s = 8", "limit_per_s = 1001\nburst_calls = 3")
    made = parse_settings(table + a_class('upstream = "inference"')).upstreams["inference"]

    assert (made.limit_per_s, made.burst_calls) == (1001.0, 3)
