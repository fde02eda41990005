"""The demo's upstream: its limit and figures by an injected clock, its HTTP surface by counts."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ops.local.inference import summarise
from ops.local.replays import make_replay, match_name, match_replays
from ops.local.tally import Tally, TokenBucket, Verdict, busiest, per_1000, retry_after, worst_per_1000
from ops.local.upstream import MAX_BODY_BYTES, InferenceServer


def bucket(*, limit_per_s: float, burst: float = 1) -> TokenBucket:
    return TokenBucket(limit_per_s=limit_per_s, burst=burst, level=burst, filled_at_s=0.0)


# -- the limit


def test_a_burst_of_three_lets_three_calls_through_at_once_and_the_fourth_waits_for_one_token() -> None:
    limit = bucket(limit_per_s=2, burst=3)
    assert [limit.take(0.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert limit.take(0.5) == 0
    assert limit.take(0.5) == 0.5


def test_the_long_run_rate_is_the_limit_however_hard_the_caller_pushes() -> None:
    limit = bucket(limit_per_s=8, burst=4)
    accepted = sum(limit.take(tick / 100) == 0 for tick in range(6_001))
    assert accepted == 4 + 8 * 60


def test_an_idle_hour_earns_no_more_than_the_burst() -> None:
    limit = bucket(limit_per_s=10, burst=2)
    assert [limit.take(3600.0) == 0 for _ in range(3)] == [True, True, False]


def test_a_refused_call_does_not_push_the_next_permit_away() -> None:
    limit = bucket(limit_per_s=1)
    limit.take(0.0)
    assert [round(limit.take(at), 3) for at in (0.25, 0.5, 0.75, 1.0)] == [0.75, 0.5, 0.25, 0]


def test_a_clock_that_steps_back_earns_nothing_twice() -> None:
    limit = bucket(limit_per_s=1)
    assert [limit.take(at) for at in (5.0, 4.0, 5.0)] == [0, 1, 1]


def test_a_changed_limit_holds_from_the_next_call_on() -> None:
    limit = bucket(limit_per_s=10, burst=5)
    limit.change(limit_per_s=0.5, burst=1, now_s=10.0)
    assert [limit.take(10.0), limit.take(10.0)] == [0, 2.0]


@pytest.mark.parametrize(
    ("wait_s", "header"),
    (
        (0.01, "1"),  # whole seconds only, and never "come back at once"
        (1.0, "1"),
        (1.01, "2"),  # rounded up: rounded down, the caller would be refused again
    ),
)
def test_retry_after_is_whole_seconds_and_never_too_early(wait_s: float, header: str) -> None:
    assert retry_after(wait_s) == header


# -- the effects


def test_a_repeated_key_is_no_second_effect_but_counts_against_the_limit() -> None:
    tally, limit = Tally(), bucket(limit_per_s=1, burst=2)
    verdicts = [tally.judge("job:0:0", "text", bucket=limit, now_s=0.0)[0] for _ in range(3)]
    assert verdicts == [Verdict.ACCEPTED, Verdict.REPEAT, Verdict.REFUSED]
    assert tally.effects["job:0:0"].repeats == 1


def test_a_refused_key_leaves_no_effect_and_is_accepted_later() -> None:
    tally, limit = Tally(), bucket(limit_per_s=1)
    calls = [("a", 0.0), ("b", 0.0), ("b", 1.0)]
    verdicts = [tally.judge(key, key, bucket=limit, now_s=at)[0] for key, at in calls]
    assert verdicts == [Verdict.ACCEPTED, Verdict.REFUSED, Verdict.ACCEPTED]


def test_a_key_that_comes_back_with_another_text_is_a_conflict() -> None:
    tally, limit = Tally(), bucket(limit_per_s=1, burst=9)
    assert [tally.judge("k", text, bucket=limit, now_s=0.0)[0] for text in ("one", "two", "one")] == [
        Verdict.ACCEPTED,
        Verdict.CONFLICT,
        Verdict.REPEAT,
    ]


def test_one_text_under_two_keys_is_reported_as_work_done_twice() -> None:
    tally, limit = Tally(), bucket(limit_per_s=1, burst=9)
    for key, text in (("a", "same"), ("b", "same"), ("c", "other")):
        tally.judge(key, text, bucket=limit, now_s=0.0)
    assert tally.report()["texts_answered_twice"] == 1


# -- the figures


def test_refusals_per_1000_of_no_calls_is_zero() -> None:
    assert (per_1000([]), worst_per_1000([], window_s=600), busiest([], window_s=1)) == (0, 0, 0)


def test_the_worst_ten_minutes_are_found_wherever_they_begin() -> None:
    # One call a second for an hour; 30 refusals between 1,900 s and 1,929 s, all within one window of 601 calls.
    calls = [(float(at), 1_900 <= at < 1_930) for at in range(3_600)]
    assert per_1000(calls) == pytest.approx(1000 * 30 / 3_600)
    assert worst_per_1000(calls, window_s=600) == pytest.approx(1000 * 30 / 601)


def test_the_worst_ten_minutes_of_sparse_calls_are_found_by_hand_too() -> None:
    calls = [(0.0, False), (100.0, True), (650.0, True), (700.0, True), (1_000.0, False), (1_300.0, False)]
    # [100, 700] holds three calls, all refused.
    assert worst_per_1000(calls, window_s=600) == 1000


def test_a_run_shorter_than_the_window_is_its_own_worst_window() -> None:
    assert worst_per_1000([(0.0, True), (1.0, False)], window_s=600) == 500


def test_the_busiest_second_counts_what_was_let_through_in_any_sliding_second() -> None:
    calls = [(0.0, False), (0.9, False), (1.0, False), (1.5, True), (1.89, False), (2.0, False)]
    assert busiest(calls, window_s=1.0) == 3


# -- the answer


def test_a_summary_names_the_players_the_moves_and_the_result_and_is_the_same_every_time() -> None:
    text = '[Event "Köln – Brno"]\n[White "Zoë"]\n[Black "王"]\n\n1. e4 {[%clk 1:00:00]} e5 2. Qxf7+\n1-0\n'
    answer = summarise(text)
    assert answer == summarise(text)
    assert answer["summary"] == {
        "event": "Köln – Brno",
        "players": ["Zoë", "王"],
        "half_moves": 3,
        "first_move": 1,
        "last_move": 2,
        "captures": 1,
        "checks": 1,
        "results": ["1-0"],
        "opening_line": "1. e4 e5 2. Qxf7+",
        "closing_line": "1-0",
    }
    assert answer["usage"]["input_tokens"] == -(-len(text.encode()) // 4)


def test_a_piece_from_the_middle_of_a_game_has_moves_but_no_players() -> None:
    summary = summarise("33. Qe2 Nxd4 34. Qe8 Rh1\n")["summary"]
    assert (summary["players"], summary["half_moves"], summary["first_move"], summary["results"]) == ([], 4, 33, [])


# -- the replays


def test_replays_are_the_same_for_a_seed_and_differ_between_seeds_matches_and_games() -> None:
    first = list(match_replays(7, 3, games=6))
    assert first == list(match_replays(7, 3, games=6))
    others = [*match_replays(8, 3, games=6), *match_replays(7, 4, games=6)]
    assert len({replay.text for replay in [*first, *others]}) == 18


def test_matches_have_distinct_names_that_are_not_ascii() -> None:
    names = [match_name(number) for number in range(500)]
    assert len(set(names)) == 500
    assert not any(name.isascii() for name in names)


def test_a_long_replay_is_as_long_as_asked_and_short_ones_are_one_or_two_segments() -> None:
    assert 180_000 <= len(make_replay(7, 1, 9, min_bytes=180_000).body) < 184_000
    sizes = [len(replay.body) for number in range(50) for replay in match_replays(7, number, games=6)]
    assert min(sizes) >= 900
    assert sum(size <= 4_000 for size in sizes) > 0.98 * len(sizes)
    assert json.loads(make_replay(7, 1, 9, min_bytes=900).payload) == {"replay_key": "replays/m0001-g09.pgn"}


# -- the HTTP surface


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


def test_the_hidden_limit_can_be_changed_and_the_change_shows_only_in_the_report() -> None:
    with serving(limit_per_s=10, burst=5) as server, calling(server) as client:
        assert client.call("POST", "/admin/limit", b'{"limit_per_s": 2, "burst": 1}')[0] == 200
        assert [client.summarise(key, "x")[0] for key in "ab"] == [200, 429]
        report = client.call("GET", "/admin/report")[2]
        assert (report["limit_per_s"], report["burst"]) == (2, 1)


@pytest.mark.parametrize(
    "body",
    (
        b'{"limit_per_s": 0}',
        b'{"limit_per_s": NaN}',
        b'{"limit_per_s": true}',
        b'{"limit_per_s": 1, "burst": 0.5}',
        b'{"burst": 2}',
    ),
)
def test_a_limit_that_is_no_limit_is_refused_and_changes_nothing(body: bytes) -> None:
    with serving(limit_per_s=10, burst=5) as server, calling(server) as client:
        assert client.call("POST", "/admin/limit", body)[0] == 400
        assert server.report(with_keys=False)["limit_per_s"] == 10


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
