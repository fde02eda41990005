"""The demo's upstream: a real HTTP server with a real rate limit, and a memory of every effect that it has had.

    python -m ops.local.upstream --limit 10 --burst 5 --latency-ms 200

POST /v1/summarise  {"text": ...} under an Idempotency-Key: 200, 429 with Retry-After, or 4xx
POST /v1/classify   {"text": ..., "labels": [...]}, likewise
POST /admin/limit   {"limit_per_s": 5, "burst": 1}: change the limit without telling anyone
GET  /admin/report  the figures; with ?keys=1 also {key: its accepted calls, and the age of its effect}
GET  /health        200

The first line on stdout is `listening on http://127.0.0.1:PORT`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from ops.local.inference import classify, summarise
from ops.local.tally import Tally, TokenBucket, Verdict, retry_after

MAX_BODY_BYTES: Final = 256 * 1024
CONTENT_LENGTH: Final = re.compile(r"[0-9]{1,12}")
MAX_KEY_CHARS: Final = 512
IDLE_TIMEOUT_S: Final = 30


class RequestError(Exception):
    """The caller's fault: a status and a reason, never what the caller sent."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(reason)


class InferenceServer(ThreadingHTTPServer):
    """The server and its state. `clock` counts seconds, for the limit alone; `think` is how long an answer takes."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        *,
        port: int = 0,
        limit_per_s: float,
        burst: float,
        clock: Callable[[], float] = time.monotonic,
        think: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.clock = clock
        self.think = think
        self.lock = threading.Lock()
        self.tally = Tally()
        self.bucket = TokenBucket(limit_per_s=limit_per_s, burst=burst, level=burst, filled_at_s=clock())
        self.in_flight: list[str] = []
        self.abandoned: list[str] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A killed worker's connection is part of the demo and no fault of ours; anything else shows its traceback."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def judge(self, key: str, text: str) -> tuple[Verdict, float]:
        with self.lock:
            return self.tally.judge(key, text, bucket=self.bucket, now_s=self.clock())

    def change_limit(self, *, limit_per_s: float, burst: float) -> None:
        with self.lock:
            self.bucket.change(limit_per_s=limit_per_s, burst=burst, now_s=self.clock())

    def report(self, *, with_keys: bool) -> dict[str, Any]:
        """The tally's figures, the keys in flight at this moment, and those whose caller was gone before the answer."""
        with self.lock:
            report = self.tally.report()
            report |= {"in_flight": list(self.in_flight), "abandoned": list(self.abandoned)}
            report |= {"limit_per_s": self.bucket.limit_per_s, "burst": self.bucket.burst}
            if with_keys:
                now_s = self.clock()
                report["keys"] = {
                    key: {"calls": 1 + effect.repeats, "age_s": now_s - effect.at_s}
                    for key, effect in self.tally.effects.items()
                }
        return report


class Handler(BaseHTTPRequestHandler):
    """One connection. Bodies are always read or the connection closed, or the next request would start inside them."""

    server: InferenceServer
    protocol_version = "HTTP/1.1"
    server_version = "demo-upstream"
    sys_version = ""
    timeout = IDLE_TIMEOUT_S
    # The status line and the body go out in two writes: without this, the second waits for the first's ACK.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/health":
            self._answer(HTTPStatus.OK, {"status": "ok"})
        elif url.path == "/admin/report":
            with_keys = parse_qs(url.query).get("keys") == ["1"]
            self._answer(HTTPStatus.OK, self.server.report(with_keys=with_keys))
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "unknown_path"})

    def do_POST(self) -> None:
        routes = {
            "/v1/summarise": self._summarise,
            "/v1/classify": self._classify,
            "/admin/limit": self._change_limit,
        }
        try:
            body = self._read_json()
            routes.get(urlsplit(self.path).path, self._unknown_path)(body)
        except RequestError as fault:
            self._answer(fault.status, {"error": fault.reason})

    def _summarise(self, body: dict[str, Any]) -> None:
        self._infer(body, summarise)

    def _classify(self, body: dict[str, Any]) -> None:
        labels = body.get("labels")
        if not isinstance(labels, list) or not labels or not all(isinstance(label, str) for label in labels):
            raise RequestError(HTTPStatus.BAD_REQUEST, "labels")
        self._infer(body, lambda text: classify(text, labels))

    def _infer(self, body: dict[str, Any], model: Callable[[str], dict[str, Any]]) -> None:
        key, text = self.headers.get("Idempotency-Key", ""), body.get("text")
        if not 0 < len(key) <= MAX_KEY_CHARS:
            raise RequestError(HTTPStatus.BAD_REQUEST, "idempotency_key")
        if not isinstance(text, str) or not text.strip() or not _is_unicode(text):
            raise RequestError(HTTPStatus.BAD_REQUEST, "text")
        verdict, wait_s = self.server.judge(key, text)
        if verdict is Verdict.REFUSED:
            header = {"Retry-After": retry_after(wait_s)}
            self._answer(HTTPStatus.TOO_MANY_REQUESTS, {"error": "rate_limited"}, header)
            return
        if verdict is Verdict.CONFLICT:
            raise RequestError(HTTPStatus.UNPROCESSABLE_ENTITY, "idempotency_key_reused")
        self._think(key)
        self._answer(HTTPStatus.OK, model(text))

    def _think(self, key: str) -> None:
        """The model's time, by which the effect is already made: a caller that dies now leaves it behind."""
        with self.server.lock:
            self.server.in_flight.append(key)
        self.server.think()
        with self.server.lock:
            self.server.in_flight.remove(key)
            if self._caller_is_gone():
                self.server.abandoned.append(key)

    def _caller_is_gone(self) -> bool:
        # The first write to a closed connection still succeeds, so that it has to be asked for.
        readable, _, _ = select.select([self.connection], [], [], 0)
        try:
            return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return True

    def _change_limit(self, body: dict[str, Any]) -> None:
        limit_per_s = _number(body, "limit_per_s", least=0.001)
        burst = _number(body, "burst", least=1)
        self.server.change_limit(limit_per_s=limit_per_s, burst=burst)
        self._answer(HTTPStatus.OK, {"limit_per_s": limit_per_s, "burst": burst})

    def _unknown_path(self, body: dict[str, Any]) -> None:
        raise RequestError(HTTPStatus.NOT_FOUND, "unknown_path")

    def _read_json(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not CONTENT_LENGTH.fullmatch(length):
            self.close_connection = True
            raise RequestError(HTTPStatus.LENGTH_REQUIRED, "length")
        if int(length) > MAX_BODY_BYTES:
            self.close_connection = True
            raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "length")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise RequestError(HTTPStatus.BAD_REQUEST, "json") from None
        if not isinstance(body, dict):
            raise RequestError(HTTPStatus.BAD_REQUEST, "json")
        return body

    def _answer(self, status: HTTPStatus, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        payload = json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(payload)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: Any) -> None:
        """Silent: a call's line would say no more than the report, and the demo's terminal is for the drain."""


def _number(body: dict[str, Any], name: str, *, least: float) -> float:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
        raise RequestError(HTTPStatus.BAD_REQUEST, name)
    return value


def _is_unicode(text: str) -> bool:
    """JSON can spell a lone surrogate, which no encoding can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ops.local.upstream", description="A rate-limited upstream.")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--limit", type=float, default=10.0, help="calls per second in the long run")
    parser.add_argument("--burst", type=float, default=1.0, help="calls at once")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="how long an accepted call takes")
    options = parser.parse_args(arguments)
    if options.limit <= 0 or options.burst < 1 or options.latency_ms < 0:
        parser.error("--limit must be above 0, --burst at least 1, --latency-ms not negative")
    latency_s = options.latency_ms / 1000
    server = InferenceServer(
        port=options.port, limit_per_s=options.limit, burst=options.burst, think=lambda: time.sleep(latency_s)
    )
    print(f"listening on {server.url}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
