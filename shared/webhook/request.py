"""A webhook request -> the run that it asks for, or the reason why not. Pure, total, and silent about what it read.

Whatever arrives, nothing here raises: both payload formats of API Gateway (1.0 and 2.0), any headers, any bytes. A
caller chooses a class that is open and a minute that is now, and nothing else: the run's id must be what the two give
(facts F43 to F45).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from shared.domain.control import RunKey
from shared.domain.json_text import json_fault
from shared.domain.settings import WebhookSettings

METHOD: Final = "POST"

MAX_BODY_BYTES: Final = 4096
"""Of the decoded body; a right one has about 150."""

_MAX_ENCODED: Final = -(-MAX_BODY_BYTES // 3) * 4
"""Characters of the longest body in base64: anything longer is too large, and is not decoded to find out."""

_FIELDS: Final = frozenset({"run_id", "scheduled_at", "job_class"})
"""What the body's object must hold, and nothing beside it."""

_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", re.ASCII)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Reason(StrEnum):
    """Why a request was refused: the code in the answer, in the log and in the metric's name."""

    METHOD = "method"
    UNAUTHORIZED = "unauthorized"
    CONTENT_TYPE = "content_type"
    TOO_LARGE = "too_large"
    NO_BODY = "no_body"
    BAD_ENCODING = "bad_encoding"
    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    WRONG_FIELDS = "wrong_fields"
    WRONG_TYPES = "wrong_types"
    CLASS_NOT_OPEN = "class_not_open"
    BAD_TIME = "bad_time"
    WRONG_RUN_ID = "wrong_run_id"
    STALE = "stale"
    FUTURE = "future"
    CLOSED = "closed"
    SECRET_UNUSABLE = "secret_unusable"  # noqa: S105 - a reason, not a secret
    SECRET_UNAVAILABLE = "secret_unavailable"  # noqa: S105
    LEDGER_UNAVAILABLE = "ledger_unavailable"
    FAULT = "fault"


_STATUS: Final[Mapping[Reason, int]] = {
    Reason.METHOD: 405,
    Reason.UNAUTHORIZED: 401,
    Reason.CONTENT_TYPE: 415,
    Reason.TOO_LARGE: 413,
    **dict.fromkeys((Reason.STALE, Reason.FUTURE, Reason.CLOSED), 409),
    **dict.fromkeys((Reason.SECRET_UNUSABLE, Reason.SECRET_UNAVAILABLE, Reason.LEDGER_UNAVAILABLE, Reason.FAULT), 503),
}
"""The HTTP status of a refusal; 400 where it is not listed."""


class Request(Struct, frozen=True, kw_only=True):
    """What matters of an event. Neither the token nor the body shows in a traceback or a log line (I12)."""

    method: str
    token: bytes | None
    content_type: str
    body: str | None
    encoded: bool

    def __repr__(self) -> str:
        return f"Request(method={self.method!r}, content_type={self.content_type!r}, encoded={self.encoded!r})"


class Rejected(Struct, frozen=True, kw_only=True):
    """`job_class` only where the request named one that is open: a label must not be a caller's text."""

    reason: Reason
    job_class: str | None = None

    @property
    def status(self) -> int:
        return _STATUS.get(self.reason, 400)


def request_of(event: object) -> Request:
    """Read an event of API Gateway, or whatever else was handed in."""
    top = _table(event)
    context = _table(_table(top.get("requestContext")).get("http"))
    method = context.get("method", top.get("httpMethod"))
    body = top.get("body")
    return Request(
        method=method if isinstance(method, str) else "",
        token=_bearer(_header(top, "authorization")),
        content_type=_header(top, "content-type") or "",
        body=body if isinstance(body, str) else None,
        encoded=top.get("isBase64Encoded") is True,
    )


def refused_unread(request: Request) -> Rejected | None:
    """What needs neither the secret nor the body to be refused."""
    if request.method != METHOD:
        return Rejected(reason=Reason.METHOD)
    return Rejected(reason=Reason.UNAUTHORIZED) if request.token is None else None


def run_asked_for(
    request: Request, open_classes: Iterable[str], limits: WebhookSettings, *, now_ms: int
) -> RunKey | Rejected:
    """The run that an authenticated request asks for."""
    fields = _fields_of(request)
    if isinstance(fields, Reason):
        return Rejected(reason=fields)
    job_class = fields["job_class"]
    if job_class not in open_classes:
        return Rejected(reason=Reason.CLASS_NOT_OPEN)
    key = _key_of(fields, job_class, limits, now_ms)
    return Rejected(reason=key, job_class=job_class) if isinstance(key, Reason) else key


# -- the event


def _table(value: object) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _header(event: Mapping[Any, Any], name: str) -> str | None:
    """The header's value in any case, if it is there exactly once. Of two, nobody can say which one was meant."""
    values: list[object] = []
    for part in ("multiValueHeaders", "headers"):
        for key, value in _table(event.get(part)).items():
            if isinstance(key, str) and key.lower() == name:
                values += value if isinstance(value, list) else [value]
        if values:
            break
    return values[0] if len(values) == 1 and isinstance(values[0], str) else None


def _bearer(value: str | None) -> bytes | None:
    scheme, _, rest = (value or "").strip(" \t").partition(" ")
    token = rest.strip(" \t")
    if scheme.lower() != "bearer" or not token or not token.isascii():
        return None
    return token.encode("ascii")


# -- the body


def _fields_of(request: Request) -> dict[str, str] | Reason:
    if not _is_json(request.content_type):
        return Reason.CONTENT_TYPE
    text = _text_of(request)
    if isinstance(text, Reason):
        return text
    # The fault is found first and not quoted; what has none is JSON that Python's own reader takes as well.
    if json_fault(text) is not None:
        return Reason.NOT_JSON
    value = json.loads(text)
    if not isinstance(value, dict):
        return Reason.NOT_AN_OBJECT
    if value.keys() != _FIELDS:
        return Reason.WRONG_FIELDS
    return value if all(isinstance(text, str) for text in value.values()) else Reason.WRONG_TYPES


def _is_json(content_type: str) -> bool:
    media_type, *parameters = (part.strip().lower() for part in content_type.split(";"))
    charsets = [part.partition("=")[2].strip('"') for part in parameters if part.startswith("charset=")]
    return media_type == "application/json" and all(charset == "utf-8" for charset in charsets)


def _text_of(request: Request) -> str | Reason:
    if not request.body:
        return Reason.NO_BODY
    if len(request.body) > _MAX_ENCODED:
        return Reason.TOO_LARGE
    try:
        # A lone surrogate has no UTF-8, and a non-ASCII character no base64: ValueError both, as bad digits are.
        body = base64.b64decode(request.body, validate=True) if request.encoded else request.body.encode("utf-8")
        if len(body) > MAX_BODY_BYTES:
            return Reason.TOO_LARGE
        return body.decode("utf-8") or Reason.NO_BODY
    except (ValueError, binascii.Error):
        return Reason.BAD_ENCODING


# -- the minute


def _key_of(fields: Mapping[str, str], job_class: str, limits: WebhookSettings, now_ms: int) -> RunKey | Reason:
    scheduled_ms = _milliseconds(fields["scheduled_at"])
    if scheduled_ms is None:
        return Reason.BAD_TIME
    # Both sides are bounded: a time ahead of us would stay acceptable for longer than one that is past.
    if now_ms - scheduled_ms > limits.max_age_s * 1000:
        return Reason.STALE
    if scheduled_ms - now_ms > limits.max_ahead_s * 1000:
        return Reason.FUTURE
    key = RunKey.of(job_class, scheduled_ms)
    return key if fields["run_id"] == key.run_id else Reason.WRONG_RUN_ID


def _milliseconds(text: str) -> int | None:
    """Milliseconds since 1970, rounded down: 11:59:59.9999 is still that minute."""
    written = _TIME.fullmatch(text)
    if written is None:
        return None
    seconds, fraction, zone = written.groups()
    try:
        moment = datetime.fromisoformat(seconds + ("+00:00" if zone == "Z" else zone))
        whole_s = (moment - _EPOCH) // timedelta(seconds=1)
    except (ValueError, OverflowError):
        return None
    return whole_s * 1000 + int((fraction or "").ljust(3, "0")[:3])
