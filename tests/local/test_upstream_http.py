"""The demo's upstream as its callers see it: over HTTP."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ops.local.upstream import MAX_BODY_BYTES, InferenceServer, summarise


class Caller:
    """One connection, kept alive, so that a body that was left unread would break the next call."""

    def __init__(self, server: InferenceServer) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any, Any]:
        self.connection.request(method, path, body=body, headers=headers)
        answer = self.connection.getresponse()
        return answer.status, answer.headers, json.loads(answer.read())

    def summarise(self, key: str, text: str) -> tuple[int, Any, Any]:
        return self.call("POST", "/v1/summarise", json.dumps({"text": text}).encode(), **{"Idempotency-Key": key})


@contextmanager
def calling(server: InferenceServer) -> Iterator[Caller]:
    caller = Caller(server)
    try:
        yield caller
    finally:
        caller.connection.close()


def at_once() -> None:
    """A model that needs no time."""


@contextmanager
def serving(*, limit_per_s: float, burst: float, think: Callable[[], object] = at_once) -> Iterator[InferenceServer]:
    """A server whose clock stands still: what it accepts is exactly the burst."""
    server = InferenceServer(limit_per_s=limit_per_s, burst=burst, clock=lambda: 0.0, think=think)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def calls_by_key(report: dict[str, Any]) -> dict[str, int]:
    return {key: effect["calls"] for key, effect in report["keys"].items()}


def test_calls_over_the_burst_get_429_with_retry_after_and_a_repeat_gets_the_same_answer() -> None:
    with serving(limit_per_s=0.4, burst=3) as server, calling(server) as client:
        answers = [client.summarise(key, "1. e4 e5") for key in ("a", "a", "b", "c")]
        assert [status for status, _, _ in answers] == [200, 200, 200, 429]
        assert answers[0][2] == answers[1][2] == summarise("1. e4 e5")
        assert answers[3][1]["Retry-After"] == "3"  # 1 token at 0.4/s is 2.5 s
        _, _, report = client.call("GET", "/admin/report?keys=1")
    assert {name: report[name] for name in ("calls", "accepted", "repeats", "refused", "conflicts")} == {
        "calls": 4,
        "accepted": 2,
        "repeats": 1,
        "refused": 1,
        "conflicts": 0,
    }
    assert report["keys"] == {"a": {"calls": 2, "age_s": 0}, "b": {"calls": 1, "age_s": 0}}
    assert (report["refusals_per_1000"], report["refusals_per_1000_worst"]) == (250, 250)
    assert (report["in_flight"], report["abandoned"], report["texts_answered_twice"]) == ([], [], 1)


def test_the_report_leaves_the_keys_out_unless_asked() -> None:
    with serving(limit_per_s=1, burst=1) as server, calling(server) as client:
        assert "keys" not in client.call("GET", "/admin/report")[2]


def test_forty_callers_with_one_key_have_one_effect() -> None:
    with serving(limit_per_s=1, burst=1_000) as server:
        barrier = threading.Barrier(40)

        def call() -> None:
            barrier.wait()
            with calling(server) as client:
                client.summarise("job:12:0", "1. e4")

        threads = [threading.Thread(target=call) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        report = server.report(with_keys=True)
    assert (report["accepted"], report["repeats"], calls_by_key(report)) == (1, 39, {"job:12:0": 40})


@pytest.mark.parametrize(
    ("body", "key", "status", "reason"),
    (
        (b'{"text": "x"}', "", 400, "idempotency_key"),
        (b'{"text": "x"}', "k" * 513, 400, "idempotency_key"),
        (b'{"text": 5}', "k", 400, "text"),
        (b'{"text": "  "}', "k", 400, "text"),
        (b'{"text": "\\ud800"}', "k", 400, "text"),  # a lone surrogate is JSON, but no text
        (b"{", "k", 400, "json"),
        (b"[" * 100_000, "k", 400, "json"),
        (b"\xff\xfe", "k", 400, "json"),
        (b"[]", "k", 400, "json"),
    ),
)
def test_a_malformed_call_gets_4xx_uses_no_permit_and_the_server_goes_on(
    body: bytes, key: str, status: int, reason: str
) -> None:
    with serving(limit_per_s=1, burst=1) as server, calling(server) as client:
        got, _, answer = client.call("POST", "/v1/summarise", body, **{"Idempotency-Key": key})
        assert (got, answer) == (status, {"error": reason})
        assert client.summarise("next", "1. e4")[0] == 200
        assert client.call("GET", "/admin/report")[2]["calls"] == 1


@pytest.mark.parametrize(
    ("length", "status"),
    (
        (None, 411),  # chunked, for example
        ("-1", 411),
        ("٣", 411),
        ("9" * 5_000, 411),
        (str(MAX_BODY_BYTES + 1), 413),
    ),
)
def test_a_body_without_a_sane_length_is_refused_unread_and_its_connection_closed(
    length: str | None, status: int
) -> None:
    with serving(limit_per_s=1, burst=1) as server, calling(server) as client:
        client.connection.putrequest("POST", "/v1/summarise")
        if length is not None:
            client.connection.putheader("Content-Length", length.encode())
        client.connection.endheaders()
        answer = client.connection.getresponse()
        assert (answer.status, answer.headers["Connection"]) == (status, "close")
        answer.close()


def test_an_unknown_path_is_404_and_the_connection_goes_on() -> None:
    with serving(limit_per_s=1, burst=1) as server, calling(server) as client:
        calls = [("POST", "/v2/nothing", b"{}"), ("GET", "/v1/summarise", None), ("GET", "/health", None)]
        assert [client.call(*call)[0] for call in calls] == [404, 404, 200]


def test_a_caller_that_dies_during_its_call_leaves_one_effect_and_is_reported_as_gone() -> None:
    released = threading.Event()
    with serving(limit_per_s=1, burst=9, think=lambda: released.wait(10)) as server, calling(server) as client:
        body = json.dumps({"text": "1. e4"}).encode()
        client.connection.request("POST", "/v1/summarise", body=body, headers={"Idempotency-Key": "job:0:0"})
        while not server.report(with_keys=False)["in_flight"]:
            pass
        client.connection.close()
        released.set()
        assert client.summarise("job:0:0", "1. e4")[0] == 200
        while server.report(with_keys=False)["in_flight"]:
            pass
        report = server.report(with_keys=True)
    assert (report["abandoned"], calls_by_key(report), report["accepted"]) == (["job:0:0"], {"job:0:0": 2}, 1)
