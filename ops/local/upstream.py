"""The demo's upstream: a real HTTP server with a real rate limit, and a memory of every effect that it has had.

    python -m ops.local.upstream --limit 10 --burst 5 --latency-ms 200

POST /v1/summarise  {"text": ...} under an Idempotency-Key: 200, 429 with Retry-After, or 4xx
POST /v1/classify   {"text": ..., "labels": [...]}, likewise
GET  /admin/report  the figures; with ?keys=1 also {key: its accepted calls, and the age of its effect}
GET  /health        200

The first line on stdout is `listening on http://127.0.0.1:PORT`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import select
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

# -- the "models": an extractive match summary, a label by its words. Pure: one text has one answer

TAG: Final = re.compile(r'^\[(\w+)\s+"(.*)"\]$')
COMMENT: Final = re.compile(r"\{[^}]*\}")
MOVE_NUMBER: Final = re.compile(r"^(\d+)\.+")
RESULTS: Final = frozenset({"1-0", "0-1", "1/2-1/2", "*"})
"""The parts of a game's record."""

LINE_CHARS: Final = 80
"""Of the first and the last line, what a summary quotes."""

BYTES_PER_TOKEN: Final = 4

MAX_DIGITS: Final = 9
"""Of a move's number: Python refuses to read numbers of thousands of digits."""


def summarise(text: str) -> dict[str, Any]:
    """What a reader wants to know of a piece of a replay, and what the call would cost in tokens.

    A piece may hold several games, or start or end in the middle of one: then it has no players, or no result.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    tags = [(match[1], match[2]) for line in lines if (match := TAG.match(line))]
    record = [" ".join(COMMENT.sub(" ", line).split()) for line in lines if not TAG.match(line)]
    moves, numbers, results = _read_moves(" ".join(record))
    summary = {
        "event": next((value for name, value in tags if name == "Event"), None),
        "players": list(dict.fromkeys(value for name, value in tags if name in ("White", "Black"))),
        "half_moves": len(moves),
        "first_move": numbers[0] if numbers else None,
        "last_move": numbers[-1] if numbers else None,
        "captures": sum("x" in move for move in moves),
        "checks": sum(move.endswith(("+", "#")) for move in moves),
        "results": results,
        "opening_line": _clip(record[0]) if record else None,
        "closing_line": _clip(record[-1]) if record else None,
    }
    return {"summary": summary, "usage": {"input_tokens": tokens(text), "output_tokens": tokens(repr(summary))}}


def classify(text: str, labels: Sequence[str]) -> dict[str, Any]:
    """The label whose words stand earliest in the text; the last one, which should be "other", where none does."""
    read = text.casefold()
    places = {label: read.find(label.replace("_", " ").casefold()) for label in labels}
    named = [label for label in labels if places[label] >= 0]
    label = min(named, key=lambda label: (places[label], label)) if named else labels[-1]
    return {"label": label, "usage": {"input_tokens": tokens(text), "output_tokens": tokens(label)}}


def tokens(text: str) -> int:
    """A token count that rounds up, as bills do."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def _read_moves(record: str) -> tuple[list[str], list[int], list[str]]:
    moves: list[str] = []
    numbers: list[int] = []
    results: list[str] = []
    for word in record.split():
        if word in RESULTS:
            results.append(word)
            continue
        number = MOVE_NUMBER.match(word)
        if number:
            numbers.append(int(number[1][:MAX_DIGITS]))
        if move := word[number.end() if number else 0 :]:
            moves.append(move)
    return moves, numbers, results


def _clip(line: str) -> str:
    return line if len(line) <= LINE_CHARS else line[: LINE_CHARS - 1] + "…"


# -- what the upstream decides and remembers. No clock and no I/O: `now_s` is an argument, callers hold a lock

WORST_WINDOW_S: Final = 600.0
"""Over which refusals are bounded: ten minutes, as the class's own configuration bounds them."""

Calls: TypeAlias = list[tuple[float, bool]]
"""(time in seconds, refused) in order of time."""


class Verdict(StrEnum):
    """What becomes of one call."""

    ACCEPTED = "accepted"
    REPEAT = "repeat"
    CONFLICT = "conflict"
    REFUSED = "refused"


@dataclass(slots=True)
class TokenBucket:
    """`burst` calls at once, `limit_per_s` in the long run. A refused call costs nothing."""

    limit_per_s: float
    burst: float
    level: float
    filled_at_s: float

    def take(self, now_s: float) -> float:
        """0 when a call may go on, else the seconds until one may."""
        elapsed = max(0.0, now_s - self.filled_at_s)
        self.level = min(self.burst, self.level + elapsed * self.limit_per_s)
        self.filled_at_s = max(self.filled_at_s, now_s)
        if self.level >= 1:
            self.level -= 1
            return 0.0
        return (1 - self.level) / self.limit_per_s


@dataclass(slots=True)
class Effect:
    """One accepted idempotency key: the text and the time it was accepted with, and how often the key came again."""

    text_sha256: str
    at_s: float
    repeats: int = 0


class CallLog:
    """Every call, in order, and every effect by its idempotency key."""

    def __init__(self) -> None:
        self.effects: dict[str, Effect] = {}
        self.verdicts: Counter[Verdict] = Counter()
        self._calls: Calls = []

    def judge(self, key: str, text: str, *, bucket: TokenBucket, now_s: float) -> tuple[Verdict, float]:
        """The verdict on one call, recorded, and for a refusal the seconds to wait.

        A repeat has no second effect but is a call like any other to the limit, as with the APIs that we know.
        """
        wait_s = bucket.take(now_s)
        verdict = Verdict.REFUSED if wait_s > 0 else self._record(key, text, now_s)
        self.verdicts[verdict] += 1
        self._calls.append((now_s, verdict is Verdict.REFUSED))
        return verdict, wait_s

    def report(self) -> dict[str, Any]:
        """The figures, without the keys. `texts_answered_twice` finds one piece of work done under two keys."""
        texts = Counter(effect.text_sha256 for effect in self.effects.values())
        return {
            "calls": len(self._calls),
            "accepted": self.verdicts[Verdict.ACCEPTED],
            "repeats": self.verdicts[Verdict.REPEAT],
            "conflicts": self.verdicts[Verdict.CONFLICT],
            "refused": self.verdicts[Verdict.REFUSED],
            "texts_answered_twice": sum(count > 1 for count in texts.values()),
            "calls_per_s_max": busiest(self._calls, window_s=1.0),
            "refusals_per_1000": per_1000(self._calls),
            "refusals_per_1000_worst": worst_per_1000(self._calls, window_s=WORST_WINDOW_S),
        }

    def _record(self, key: str, text: str, now_s: float) -> Verdict:
        text_sha256 = hashlib.sha256(text.encode()).hexdigest()
        known = self.effects.get(key)
        if known is None:
            self.effects[key] = Effect(text_sha256, now_s)
            return Verdict.ACCEPTED
        if known.text_sha256 != text_sha256:
            return Verdict.CONFLICT
        known.repeats += 1
        return Verdict.REPEAT


def per_1000(calls: Calls) -> float:
    """Refused calls of a thousand; 0 when there was none."""
    return 1000 * sum(refused for _, refused in calls) / len(calls) if calls else 0.0


def worst_per_1000(calls: Calls, *, window_s: float) -> float:
    """The highest rate of refusals in any full window that starts or ends with a call; of all calls when none is full.

    A window must be full, or the first call that is refused would count as 1,000 of 1,000.
    """
    if not calls or calls[-1][0] - calls[0][0] < window_s:
        return per_1000(calls)
    first_s, last_s = calls[0][0], calls[-1][0]
    starts = sorted({at for t, _ in calls for at in (t, t - window_s) if first_s <= at <= last_s - window_s})
    worst, low, high, refused = 0.0, 0, 0, 0
    for start in starts:
        while high < len(calls) and calls[high][0] <= start + window_s:
            refused += calls[high][1]
            high += 1
        while calls[low][0] < start:
            refused -= calls[low][1]
            low += 1
        worst = max(worst, 1000 * refused / (high - low) if high > low else 0.0)
    return worst


def busiest(calls: Calls, *, window_s: float) -> int:
    """The most calls that were let through within any window."""
    passed = [at for at, refused in calls if not refused]
    most, low = 0, 0
    for high, at in enumerate(passed):
        while at - passed[low] >= window_s:
            low += 1
        most = max(most, high - low + 1)
    return most


def retry_after(wait_s: float) -> str:
    """The header's value: whole seconds, never less than the wait."""
    return str(max(1, math.ceil(wait_s)))


# -- over HTTP

MAX_BODY_BYTES: Final = 256 * 1024
CONTENT_LENGTH: Final = re.compile(r"[0-9]{1,12}")
MAX_KEY_CHARS: Final = 512
IDLE_TIMEOUT_S: Final = 30
"""What a caller may send, and how long a connection may be silent."""


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
        self.calls = CallLog()
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
            return self.calls.judge(key, text, bucket=self.bucket, now_s=self.clock())

    def report(self, *, with_keys: bool) -> dict[str, Any]:
        """The log's figures, the keys in flight at this moment, and those whose caller was gone before the answer."""
        with self.lock:
            report = self.calls.report()
            report |= {"in_flight": list(self.in_flight), "abandoned": list(self.abandoned)}
            if with_keys:
                now_s = self.clock()
                report["keys"] = {
                    key: {"calls": 1 + effect.repeats, "age_s": now_s - effect.at_s}
                    for key, effect in self.calls.effects.items()
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
        routes = {"/v1/summarise": self._summarise, "/v1/classify": self._classify}
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
