"""Whose turn it is in an ordered match, and what the next head does."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shared.domain import lifecycle, ordering
from shared.domain.job import Flag, Job, Lane, State
from shared.domain.ordering import Match, Turn

NOW_MS = 1_800_000_000_000
SIGNATURE = Flag(by="ada", why="looked at it", at_ms=NOW_MS)
TURN = Turn(admits=True, now_ms=NOW_MS, live_window_s=300)
MATCH = Match(job_class="c", match_id="m", head_seq=3, tail_seq=5)
HEAD = Job(
    job_id="head",
    job_class="c",
    match_id="m",
    payload="{}",
    due_ms=NOW_MS - 1000,
    state=State.QUEUED,
    epoch=1,
    seq=3,
    run_id="c@minute",
    hand_until_ms=NOW_MS + 1000,
)
NEXT = replace(HEAD, job_id="next", state=State.BEHIND, epoch=0, seq=4, run_id="", hand_until_ms=0)


def test_the_first_job_of_a_match_waits_and_the_second_stands_behind() -> None:
    first = ordering.enter(Match(job_class="c", match_id="m"), replace(NEXT, seq=0, state=State.WAITING))
    assert first.enters is not None
    second = ordering.enter(first.after, replace(NEXT, seq=0, job_id="second"))
    assert second.enters is not None
    assert (first.enters.seq, first.enters.state) == (1, State.WAITING)
    assert (second.enters.seq, second.enters.state) == (2, State.BEHIND)


def test_a_job_that_enters_an_emptied_match_waits() -> None:
    emptied = Match(job_class="c", match_id="m", head_seq=6, tail_seq=5)
    step = ordering.enter(emptied, replace(NEXT, state=State.WAITING))
    assert step.enters is not None
    assert (step.enters.seq, step.enters.state) == (6, State.WAITING)


def test_a_job_that_is_admitted_at_its_submission_enters_an_empty_match_as_it_is() -> None:
    step = ordering.enter(Match(job_class="c", match_id="m", head_seq=6, tail_seq=5), HEAD)
    assert step.enters == replace(HEAD, seq=6)


@pytest.mark.parametrize(
    ("turn", "head", "successor", "state"),
    [
        (TURN, HEAD, NEXT, State.QUEUED),
        (replace(TURN, admits=False), HEAD, NEXT, State.WAITING),  # paused or halted
        (TURN, HEAD, replace(NEXT, due_ms=NOW_MS + 1), State.WAITING),  # not due yet
        (TURN, replace(HEAD, hand_until_ms=NOW_MS), NEXT, State.WAITING),  # the next tick is expected by now
    ],
)
def test_the_next_head_is_handed_over_only_while_that_is_allowed(
    turn: Turn, head: Job, successor: Job, state: State
) -> None:
    step = ordering.pass_on(MATCH, lifecycle.finish(head, output=None, nonce="n"), head, successor, turn, nonce="n")
    assert lifecycle.after(successor, step.moves[1]).state is state
    assert step.after.head_seq == 4


def test_a_skipped_heads_successor_waits_for_a_tick() -> None:
    dead = replace(HEAD, state=State.DEAD)
    step = ordering.pass_on(MATCH, lifecycle.skip(dead, signature=SIGNATURE, nonce="n"), dead, NEXT, TURN, nonce="n")
    assert lifecycle.after(NEXT, step.moves[1]).state is State.WAITING


def test_a_handover_inherits_run_and_bound_so_that_a_chain_ends_with_its_tick() -> None:
    step = ordering.pass_on(MATCH, lifecycle.finish(HEAD, output=None, nonce="n"), HEAD, NEXT, TURN, nonce="n")
    handed = lifecycle.after(NEXT, step.moves[1])
    assert (handed.run_id, handed.hand_until_ms, handed.epoch) == ("c@minute", NOW_MS + 1000, 1)


def test_the_last_of_a_match_leaves_it_empty() -> None:
    match = replace(MATCH, head_seq=5)
    step = ordering.pass_on(match, lifecycle.finish(HEAD, output=None, nonce="n"), HEAD, None, TURN, nonce="n")
    assert step.after.empty
    assert len(step.moves) == 1


@pytest.mark.parametrize(
    ("age_s", "retried", "lane"),
    [(299, False, Lane.LIVE), (300, False, Lane.RECOVERY), (0, True, Lane.RECOVERY)],
)
def test_the_successors_lane_comes_from_its_own_due_time(age_s: int, retried: bool, lane: Lane) -> None:
    assert TURN.lane_of(replace(NEXT, due_ms=NOW_MS - age_s * 1000, retried=retried)) is lane


def test_a_replacement_takes_the_dead_ones_place_and_waits() -> None:
    dead = replace(HEAD, state=State.DEAD)
    step = ordering.replace_head(MATCH, dead, replace(NEXT, job_id="other", seq=0), signature=SIGNATURE, nonce="n")
    assert step.enters is not None
    assert (step.enters.seq, step.enters.state, step.after) == (3, State.WAITING, MATCH)
