"""A webhook request: which run does it ask for, or why is it refused, and whose token does it carry?"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from shared.domain.control import RunKey
from shared.domain.settings import WebhookSettings
from shared.webhook.request import MAX_BODY_BYTES, Reason, Rejected, refused_unread, request_of, run_asked_for
from shared.webhook.tokens import is_one_of, usable_secret

NOW_MS = 1_796_040_300_000
"""2026-11-30T12:05Z."""

CLASS = "document_classification"
OPEN = frozenset({CLASS})
RIGHT = {"run_id": f"{CLASS}@2026-11-30T12:05Z", "scheduled_at": "2026-11-30T12:05:00Z", "job_class": CLASS}
JSON = "application/json"


def event(body: Any = RIGHT, *, content_type: Any = JSON, encoded: bool = False, **changes: Any) -> dict[str, Any]:
    text = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
    if isinstance(text, bytes):
        text, encoded = base64.b64encode(text).decode(), True
    return {
        "version": "2.0",
        "requestContext": {"http": {"method": "POST"}},
        "headers": {"authorization": "Bearer t", "content-type": content_type},
        "body": text,
        "isBase64Encoded": encoded,
    } | changes


def asked(*arguments: Any, now_ms: int = NOW_MS, limits: WebhookSettings | None = None, **changes: Any) -> Any:
    """The minute that the request asks for, or the reason it is refused for."""
    answer = run_asked_for(request_of(event(*arguments, **changes)), OPEN, limits or WebhookSettings(), now_ms=now_ms)
    return answer.reason if isinstance(answer, Rejected) else answer


# -- what is right


def test_the_right_request_asks_for_the_run_of_its_minute() -> None:
    assert asked() == RunKey(job_class=CLASS, minute_ms=NOW_MS)


@pytest.mark.parametrize("content_type", [JSON, "application/json; charset=utf-8", 'APPLICATION/JSON;charset="UTF-8"'])
def test_json_may_name_its_charset(content_type: str) -> None:
    assert asked(content_type=content_type) == RunKey(job_class=CLASS, minute_ms=NOW_MS)


def test_a_body_in_base64_is_the_same_body() -> None:
    assert asked(json.dumps(RIGHT).encode()) == asked()


@pytest.mark.parametrize(
    ("scheduled_at", "minute"),
    [
        ("2026-11-30T12:05:00Z", "12:05"),
        ("2026-11-30T12:05:00.000Z", "12:05"),  # as JavaScript writes it
        ("2026-11-30T13:05:00+01:00", "12:05"),
        ("2026-11-30T12:04:59.9Z", "12:04"),
        ("2026-11-30T12:04:59.999999999Z", "12:04"),  # down, never to the nearest
        ("2026-11-30T12:05:00.1Z", "12:05"),
    ],
)
def test_the_minute_is_the_one_that_the_time_lies_in(scheduled_at: str, minute: str) -> None:
    run_id = f"{CLASS}@2026-11-30T{minute}Z"
    answer = asked(RIGHT | {"scheduled_at": scheduled_at, "run_id": run_id})
    assert answer.run_id == run_id


# -- the age


@pytest.mark.parametrize(
    ("now_ms", "answer"),
    [
        (NOW_MS + 120_000, None),
        (NOW_MS + 120_001, Reason.STALE),
        (NOW_MS - 30_000, None),
        (NOW_MS - 30_001, Reason.FUTURE),
        (NOW_MS + 10**12, Reason.STALE),
    ],
)
def test_both_sides_of_now_are_bounded(now_ms: int, answer: Reason | None) -> None:
    assert asked(now_ms=now_ms) == (answer or RunKey(job_class=CLASS, minute_ms=NOW_MS))


def test_the_bounds_are_the_configured_ones() -> None:
    assert asked(now_ms=NOW_MS + 61_000, limits=WebhookSettings(max_age_s=60)) is Reason.STALE
    assert asked(now_ms=NOW_MS - 1_000, limits=WebhookSettings(max_ahead_s=0)) is Reason.FUTURE


@pytest.mark.parametrize("scheduled_at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_the_ends_of_the_calendar_are_only_stale_or_future(scheduled_at: str) -> None:
    assert asked(RIGHT | {"scheduled_at": scheduled_at}) in (Reason.STALE, Reason.FUTURE)


@pytest.mark.parametrize(
    "scheduled_at",
    [
        "",
        "now",
        "2026-11-30",
        "2026-11-30T12:05:00",  # of which zone?
        "2026-11-30T12:05Z",
        "2026-11-30 12:05:00Z",
        "2026-11-30T12:05:60Z",
        "2026-13-30T12:05:00Z",
        "2026-11-30T12:05:00+24:00",
        "0000-11-30T12:05:00Z",
        "٢٠٢٦-11-30T12:05:00Z",
        "2026-11-30T12:05:00Z\n",
        "1796040300",
    ],
)
def test_a_time_is_written_in_one_way(scheduled_at: str) -> None:
    assert asked(RIGHT | {"scheduled_at": scheduled_at}) is Reason.BAD_TIME


# -- the run's id, the class


@pytest.mark.parametrize(
    "run_id",
    [
        "",
        f"{CLASS}@2026-11-30T12:06Z",
        f"{CLASS}@2026-11-30T12:05Z ",
        f"{CLASS}@2026-11-30T12:05Z+repair",
        f"{CLASS.upper()}@2026-11-30T12:05Z",
        "replay_summary@2026-11-30T12:05Z",
    ],
)
def test_a_caller_cannot_choose_its_run_id(run_id: str) -> None:
    assert asked(RIGHT | {"run_id": run_id}) is Reason.WRONG_RUN_ID


@pytest.mark.parametrize("job_class", ["", "replay_summary", "DOCUMENT_CLASSIFICATION", "*", "canary-name"])
def test_only_a_class_that_is_open_can_be_asked_for(job_class: str) -> None:
    answer = run_asked_for(request_of(event(RIGHT | {"job_class": job_class})), OPEN, WebhookSettings(), now_ms=NOW_MS)
    assert answer == Rejected(reason=Reason.CLASS_NOT_OPEN, job_class=None)  # the name stays the caller's


# -- the body


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (None, Reason.NO_BODY),
        ("", Reason.NO_BODY),
        (b"", Reason.NO_BODY),
        ("null", Reason.NOT_AN_OBJECT),
        ("1", Reason.NOT_AN_OBJECT),
        ('"text"', Reason.NOT_AN_OBJECT),
        ("[]", Reason.NOT_AN_OBJECT),
        ("{}", Reason.WRONG_FIELDS),
        ("{", Reason.NOT_JSON),
        ("NaN", Reason.NOT_JSON),
        ('{"run_id": NaN}', Reason.NOT_JSON),
        ("[" * 4000, Reason.NOT_JSON),
        ("[" * 2000 + "]" * 2000, Reason.NOT_JSON),
        ('{"a":' * 600 + "1" + "}" * 600, Reason.NOT_JSON),
        ("[" * 100_000, Reason.TOO_LARGE),
        ("9" * 4000, Reason.NOT_AN_OBJECT),
        ("9" * 5000, Reason.TOO_LARGE),
        ("1e999", Reason.NOT_JSON),
        ('{"run_id": "a", "run_id": "a", "scheduled_at": "b", "job_class": "c"}', Reason.NOT_JSON),  # twice
        (json.dumps(RIGHT).encode("utf-16"), Reason.BAD_ENCODING),
        (b"\xef\xbb\xbf" + json.dumps(RIGHT).encode(), Reason.NOT_JSON),  # a byte-order mark
        (b"\xff", Reason.BAD_ENCODING),
        ("\ud800", Reason.BAD_ENCODING),
        (RIGHT | {"more": "canary"}, Reason.WRONG_FIELDS),
        ({"run_id": "a", "job_class": CLASS}, Reason.WRONG_FIELDS),
        (RIGHT | {"run_id": 1}, Reason.WRONG_TYPES),
        (RIGHT | {"job_class": [CLASS]}, Reason.WRONG_TYPES),
        (RIGHT | {"scheduled_at": NOW_MS}, Reason.WRONG_TYPES),
        (RIGHT | {"scheduled_at": None}, Reason.WRONG_TYPES),
        (RIGHT | {"scheduled_at": True}, Reason.WRONG_TYPES),
    ],
)
def test_a_body_that_is_not_exactly_right_is_refused_with_its_reason(body: Any, reason: Reason) -> None:
    assert asked(body) is reason


@pytest.mark.parametrize("text", ["no base64!", "YQ", "YQ==\n", "ä"])
def test_base64_that_is_none_is_a_bad_encoding(text: str) -> None:
    assert asked(text, encoded=True) is Reason.BAD_ENCODING


def test_the_body_is_measured_in_bytes_after_decoding() -> None:
    text = json.dumps(RIGHT)
    fits, over = (text + " " * (size - len(text)) for size in (MAX_BODY_BYTES, MAX_BODY_BYTES + 1))
    for body in (fits, fits.encode()):
        assert asked(body) == RunKey(job_class=CLASS, minute_ms=NOW_MS)
    for body in (over, over.encode(), "ä" * 2049, ("ä" * 2049).encode()):
        assert asked(body) is Reason.TOO_LARGE


@pytest.mark.parametrize(
    "content_type",
    [None, "", "text/plain", "application/jsonp", "application/json; charset=utf-16", [JSON, JSON], 7, "application/*"],
)
def test_only_json_is_read(content_type: Any) -> None:
    assert asked(content_type=content_type) is Reason.CONTENT_TYPE


# -- the event, and whose token it carries


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
