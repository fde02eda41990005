"""The upstream over real HTTP: one call, no retries, every answer in its class."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from shared.aws.runtime import SystemClock
from shared.aws.upstream import HttpUpstream, header_key
from shared.domain.settings import Consequence, UpstreamSettings
from shared.errors import QuotaExhausted, Refused, SluiceError, UpstreamFailed, UpstreamHeld, UpstreamRejected
from tests.contract.listening import serving


@dataclass(slots=True)
class Server:
    """Answers with `status`, `headers` and `body`; `drip_s` between its bytes."""

    endpoint: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b'{"summary": "ok"}'
    drip_s: float = 0.0
    wait_s: float = 0.0
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.requests.append((self.path, dict(self.headers), json.loads(body)))
            time.sleep(state.wait_s)
            self.send_response(state.status)
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(state.body)))
            self.end_headers()
            for byte in state.body if state.drip_s else ():
                time.sleep(state.drip_s)
                self.wfile.write(bytes([byte]))
            if not state.drip_s:
                self.wfile.write(state.body)

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):  # the caller gave up
                super().handle()

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        state.endpoint = f"{url}/summarise"
        yield state


def call(server: Server, *, timeout_s: float = 5.0, key: str = "job:0:0", **errors: Consequence) -> Any:
    table = UpstreamSettings(name="u", endpoint="", limit_per_s=1).errors
    codes = {int(name.removeprefix("on_")): consequence for name, consequence in errors.items()}
    upstream = UpstreamSettings(name="u", endpoint=server.endpoint, limit_per_s=1, errors={**table, **codes})
    return HttpUpstream(SystemClock()).call(upstream, {"text": "ö"}, idempotency_key=key, timeout_s=timeout_s)


def test_a_call_posts_json_with_its_key(server: Server) -> None:
    assert call(server) == {"summary": "ok"}

    ((path, headers, body),) = server.requests
    assert (path, body) == ("/summarise", {"text": "ö"})
    assert headers["Idempotency-Key"] == "job:0:0"
    assert headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("status", "error"),
    (
        (429, Refused),
        (503, UpstreamHeld),
        (529, UpstreamHeld),
        (402, QuotaExhausted),
        (504, UpstreamRejected),  # by this upstream's own table
        (400, UpstreamRejected),
        (404, UpstreamRejected),
        (500, UpstreamFailed),
        (502, UpstreamFailed),
        (302, UpstreamFailed),  # followed nowhere
    ),
)
def test_a_status_is_mapped_and_never_tried_again(server: Server, status: int, error: type[SluiceError]) -> None:
    server.status, server.headers = status, {"Retry-After": "7", "Location": server.endpoint}

    with pytest.raises(SluiceError) as raised:
        call(server, on_402=Consequence.EXHAUSTED, on_504=Consequence.REJECT)
    assert type(raised.value) is error
    assert len(server.requests) == 1
    if isinstance(raised.value, Refused):
        assert raised.value.retry_after_s == 7.0


@pytest.mark.parametrize(("value", "wait_s"), (("-3", 0.0), ("soon", None), ("٣", None), ("9" * 5000, 3600.0)))
def test_a_strange_retry_after_never_raises(server: Server, value: str, wait_s: float | None) -> None:
    server.status, server.headers = 429, {"Retry-After": value.encode().decode("latin-1")}

    with pytest.raises(Refused) as refused:
        call(server)
    assert refused.value.retry_after_s == wait_s


@pytest.mark.parametrize("body", (b"", b"ok", b"[1]", b"null", b"\xff", b"[" * 100_000))
def test_an_answer_that_is_not_an_object_is_a_failure(server: Server, body: bytes) -> None:
    server.body = body

    with pytest.raises(UpstreamFailed):
        call(server)


def test_an_upstream_that_is_silent_or_drips_is_left_in_time(server: Server) -> None:
    for server.wait_s, server.drip_s in ((1.0, 0.0), (0.0, 0.1)):
        began_s = time.monotonic()
        with pytest.raises(UpstreamFailed):
            call(server, timeout_s=0.3)
        assert time.monotonic() - began_s < 0.9


def test_an_upstream_that_is_not_there_is_a_failure(server: Server) -> None:
    server.endpoint = "http://127.0.0.1:1/"

    with pytest.raises(UpstreamFailed):
        call(server)
    with pytest.raises(UpstreamFailed):
        call(server, timeout_s=0)


def test_an_error_never_shows_what_the_upstream_said(server: Server) -> None:
    server.status, server.body = 400, b'{"error": "patient-4711"}'

    with pytest.raises(UpstreamRejected) as raised:
        call(server)
    assert "patient-4711" not in str(raised.value)


@pytest.mark.parametrize(("key", "whole"), (("j:c:0", True), ("Köln:0:0", False), ("a\nb", False), ("x" * 300, False)))
def test_a_key_that_no_header_can_carry_is_hashed(key: str, whole: bool) -> None:
    assert (header_key(key) == key) is whole
    assert header_key(key).isascii()
    assert len(header_key(key)) <= 255
