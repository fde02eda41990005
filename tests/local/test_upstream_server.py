"""The demo's upstream: its limit and figures by an injected clock, its HTTP surface by counts."""

from __future__ import annotations

import json

import pytest

from ops.local.scenario import make_replay, match_name, match_replays
from ops.local.upstream import (
    CallLog,
    TokenBucket,
    Verdict,
    busiest,
    classify,
    per_1000,
    retry_after,
    summarise,
    worst_per_1000,
)


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
    log, limit = CallLog(), bucket(limit_per_s=1, burst=2)
    verdicts = [log.judge("job:0:0", "text", bucket=limit, now_s=0.0)[0] for _ in range(3)]
    assert verdicts == [Verdict.ACCEPTED, Verdict.REPEAT, Verdict.REFUSED]
    assert log.effects["job:0:0"].repeats == 1


def test_a_refused_key_leaves_no_effect_and_is_accepted_later() -> None:
    log, limit = CallLog(), bucket(limit_per_s=1)
    calls = [("a", 0.0), ("b", 0.0), ("b", 1.0)]
    verdicts = [log.judge(key, key, bucket=limit, now_s=at)[0] for key, at in calls]
    assert verdicts == [Verdict.ACCEPTED, Verdict.REFUSED, Verdict.ACCEPTED]


def test_a_key_that_comes_back_with_another_text_is_a_conflict() -> None:
    log, limit = CallLog(), bucket(limit_per_s=1, burst=9)
    assert [log.judge("k", text, bucket=limit, now_s=0.0)[0] for text in ("one", "two", "one")] == [
        Verdict.ACCEPTED,
        Verdict.CONFLICT,
        Verdict.REPEAT,
    ]


def test_one_text_under_two_keys_is_reported_as_work_done_twice() -> None:
    log, limit = CallLog(), bucket(limit_per_s=1, burst=9)
    for key, text in (("a", "same"), ("b", "same"), ("c", "other")):
        log.judge(key, text, bucket=limit, now_s=0.0)
    assert log.report()["texts_answered_twice"] == 1


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


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("LAB REPORT\nsee the discharge letter", "lab_report"),  # what stands first
        ("A discharge letter after a lab report", "discharge_letter"),
        ("nothing of the kind", "other"),
        ("", "other"),
    ],
)
def test_a_label_is_found_by_its_words(text: str, label: str) -> None:
    assert classify(text, ["discharge_letter", "lab_report", "other"])["label"] == label


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
