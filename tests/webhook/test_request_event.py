"""What is read of an event, whose token it carries, and what may be a secret (facts F41 to F43)."""

from __future__ import annotations

from typing import Any

import pytest

from shared.webhook.request import Reason, Rejected, is_one_of, refused_unread, request_of, usable_secret
from tests.webhook.webhook_requests import JSON, event

# -- the event


@pytest.mark.parametrize("junk", [None, 7, "text", [], {}, {"headers": 7}, {"requestContext": {"http": []}}])
def test_an_event_that_is_none_is_a_request_without_a_method(junk: Any) -> None:
    assert refused_unread(request_of(junk)) == Rejected(reason=Reason.METHOD)


def test_both_payload_formats_say_the_same() -> None:
    second = event()
    first = {
        "version": "1.0",
        "httpMethod": "POST",
        "headers": {"Authorization": "Bearer t", "Content-Type": JSON},
        "multiValueHeaders": {"Authorization": ["Bearer t"], "Content-Type": [JSON]},
        "body": second["body"],
        "isBase64Encoded": False,
    }
    assert request_of(first) == request_of(second)


def token_of(**headers: Any) -> bytes | None:
    return request_of({"headers": headers}).token


@pytest.mark.parametrize("name", ["authorization", "Authorization", "AUTHORIZATION"])
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_header_and_scheme_may_have_any_case(name: str, scheme: str) -> None:
    assert token_of(**{name: f"{scheme} s3cret"}) == b"s3cret"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "Basic t"},
        {"authorization": "t"},
        {"authorization": "Bearer schlüssel"},  # no comparison is ever made with it (fact F42)
        {"authorization": "Bearer \ud800"},
        {"authorization": None},
        {"authorization": b"Bearer t"},
        {"authorization": "Bearer t", "Authorization": "Bearer t"},  # repeated: which one is meant?
    ],
)
def test_whatever_is_not_one_ascii_token_is_no_token(headers: dict[str, Any]) -> None:
    assert token_of(**headers) is None
    request = request_of(event(headers=headers))
    assert refused_unread(request) == Rejected(reason=Reason.UNAUTHORIZED)


def test_a_repeated_header_of_the_first_format_is_no_token() -> None:
    twice = {"multiValueHeaders": {"authorization": ["Bearer a", "Bearer b"]}, "headers": {"authorization": "Bearer b"}}
    assert request_of(twice).token is None


@pytest.mark.parametrize("method", ["GET", "PUT", "post", "", None, 7])
def test_only_post_asks_for_a_run(method: Any) -> None:
    request = request_of(event(requestContext={"http": {"method": method}}))
    assert refused_unread(request) == Rejected(reason=Reason.METHOD)


def test_neither_token_nor_body_shows_in_a_requests_text() -> None:
    request = request_of(event('{"canary-body": 1}', headers={"authorization": "Bearer canary-token"}))
    assert "canary" not in repr(request)


# -- the secret


@pytest.mark.parametrize(
    "stored", [None, b"", b"\n", b"fifteen bytes!!", b"fifteen bytes!!\r\n", "schlüssel".encode() * 9]
)
def test_a_secret_that_must_not_open_a_door_is_unusable(stored: bytes | None) -> None:
    assert usable_secret(stored) is None


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_newline_that_an_editor_left_is_not_part_of_the_secret(end: bytes) -> None:
    assert usable_secret(b"sixteen bytes!!!" + end) == b"sixteen bytes!!!"


def test_without_a_secret_nothing_matches_not_even_nothing() -> None:
    assert not is_one_of(b"", [])
    assert not is_one_of(b"token", [])
    assert is_one_of(b"token", [b"other", b"token"])
    assert not is_one_of(b"toke", [b"token"])


# -- the answers


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (Reason.METHOD, 405),
        (Reason.UNAUTHORIZED, 401),
        (Reason.CONTENT_TYPE, 415),
        (Reason.TOO_LARGE, 413),
        (Reason.NOT_JSON, 400),
        (Reason.WRONG_RUN_ID, 400),
        (Reason.CLASS_NOT_OPEN, 400),
        (Reason.STALE, 409),
        (Reason.FUTURE, 409),
        (Reason.CLOSED, 409),
        (Reason.SECRET_UNUSABLE, 503),
        (Reason.SECRET_UNAVAILABLE, 503),
        (Reason.LEDGER_UNAVAILABLE, 503),
    ],
)
def test_every_reason_has_its_status(reason: Reason, status: int) -> None:
    assert Rejected(reason=reason).status == status
