"""Waits: whatever an upstream writes into Retry-After, and never everybody at once (facts F37, F38)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.settings import RetrySettings
from shared.worker.retry import after_refusal_s, backoff_s, parse_retry_after

NOW = 1_800_000_000_000  # Fri, 15 Jan 2027 08:00:00 GMT
RETRY = RetrySettings(base_delay_s=30, max_delay_s=3600)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 120\t", 120.0),
        ("0", 0.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("-5", 0.0),
        ("+5", 5.0),
        ("99999", 3600.0),
        ("9" * 5000, 3600.0),  # int() of it raises
        ("0." + "3" * 5000, pytest.approx(1 / 3)),
        ("Fri, 15 Jan 2027 08:02:00 GMT", 120.0),
        ("Friday, 15-Jan-27 08:02:00 GMT", 120.0),  # RFC 850
        ("Fri Jan 15 08:02:00 2027", 120.0),  # asctime
        ("Fri, 15 Jan 2027 09:02:00 +0100", 120.0),
        ("Fri, 15 Jan 2027 08:02:00 -0000", 120.0),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0.0),  # gone by
        ("Fri, 15 Jan 2038 08:00:00 GMT", 3600.0),
    ],
)
def test_a_number_or_a_date_is_read(value: str, seconds: float) -> None:
    assert parse_retry_after(value, now_ms=NOW) == seconds


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        " ",
        "soon",
        "1,5",
        "1e3",
        "nan",
        "inf",
        "0x10",
        "5 seconds",
        "5, 10",
        "١٢٠",  # Arabic-Indic digits
        "１２０",  # full-width digits
        "1\N{NO-BREAK SPACE}",
        "Fri, 15 Jan 99999 08:00:00 GMT",
        "Fri, 32 Jan 2027 08:00:00 GMT",
        "Fri, 15 Jan 2027 25:61:61 GMT",
        "Fri, " + "9" * 5000,
    ],
)
def test_anything_else_is_no_wish(value: str | None) -> None:
    assert parse_retry_after(value, now_ms=NOW) is None


DATE_LIKE = st.lists(
    st.sampled_from(["Fri", "Friday", ",", " ", "15", "-", "Jan", "27", "99999", "0", ":", "08", "GMT", "+9999", "EST"])
).map("".join)


@settings(deadline=None, max_examples=500)
@given(value=st.text() | DATE_LIKE | DATE_LIKE.map("Fri, 15 Jan ".__add__), now_ms=st.integers(0, 10**14))
def test_no_value_raises_or_leaves_the_bounds(value: str, now_ms: int) -> None:
    seconds = parse_retry_after(value, now_ms=now_ms)
    assert seconds is None or 0 <= seconds <= 3600


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(0, 30), (1, 30), (2, 60), (3, 120), (7, 1920), (8, 3600), (10**6, 3600)]
)
def test_a_backoff_doubles_up_to_its_cap(attempts: int, seconds: float) -> None:
    assert backoff_s(attempts, RETRY, 0) == seconds


def test_jitter_lengthens_a_backoff_by_up_to_half() -> None:
    assert backoff_s(2, RETRY, 0.5) == 75
    assert backoff_s(8, RETRY, 0.5) == 4500


@pytest.mark.parametrize(
    ("asked", "jitter", "seconds"),
    [
        (30, 0, 30),
        (30, 0.5, 37.5),
        (0, 0.5, 0.5),  # also those who may return at once do not do so together
        (None, 0, 5),
        (10**9, 0, 3600),
        (-1, 0, 0),
    ],
)
def test_a_refused_row_waits_as_asked_plus_jitter(asked: float | None, jitter: float, seconds: float) -> None:
    assert after_refusal_s(asked, jitter) == seconds


@pytest.mark.parametrize("jitter", [-0.1, 1.0, float("nan")])
def test_a_jitter_that_is_none_is_refused_by_name(jitter: float) -> None:
    with pytest.raises(ValueError, match="jitter"):
        backoff_s(1, RETRY, jitter)
    with pytest.raises(ValueError, match="jitter"):
        after_refusal_s(1, jitter)


@given(attempts=st.integers(-5, 5000), jitter=st.floats(0, 1, exclude_max=True))
def test_a_wait_is_never_shorter_for_its_jitter(attempts: int, jitter: float) -> None:
    plain = backoff_s(attempts, RETRY, 0)
    assert plain <= backoff_s(attempts, RETRY, jitter) <= 1.5 * plain
