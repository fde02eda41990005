"""The transition table, and what each move leaves alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.domain import lifecycle, messages, work_index
from shared.domain.job import Flag, Job, Lane, State
from shared.domain.lifecycle import IndexFence, Move, RowFence
from shared.domain.messages import Message
from shared.domain.work_index import IndexKey, KeepPlace, LeaveIndex, Nominee

NOW_MS = 1_800_000_000_000
SIGNATURE = Flag(by="ada", why="looked at it", at_ms=NOW_MS)

QUEUED = Job(
    job_id="j1",
    job_class="replays",
    match_id="m1",
    payload="{}",
    due_ms=NOW_MS - 1000,
    state=State.QUEUED,
    cursor="c3",
    epoch=4,
    copy=2,
    nonce="earlier",
    lane=Lane.LIVE,
    sent_at_ms=NOW_MS - 500,
    hop=1,
    attempts=2,
)

WORKER_MOVES: dict[str, Move] = {
    "mark": lifecycle.mark(QUEUED, copy=2, receives=2, nonce="n", crashed=False),
    "unmark": lifecycle.unmark(QUEUED, nonce="n"),
    "commit": lifecycle.commit(QUEUED, next_cursor="c4", output=None, nonce="n"),
    "continue": lifecycle.continue_later(QUEUED, next_cursor="c4", output=None, now_ms=NOW_MS, nonce="n"),
    "hand_back": lifecycle.hand_back(QUEUED, now_ms=NOW_MS, nonce="n"),
    "finish": lifecycle.finish(QUEUED, output=None, nonce="n"),
    "release": lifecycle.release(QUEUED, reason="refused", eligible_ms=NOW_MS + 1, nonce="n"),
    "fail": lifecycle.fail(QUEUED, reason="ValueError", eligible_ms=NOW_MS + 1, nonce="n"),
    "die": lifecycle.die(QUEUED, reason="crash", now_ms=NOW_MS, nonce="n"),
    "transport": lifecycle.transport_death(
        QUEUED, copy=2, eligible_ms=NOW_MS + 1, now_ms=NOW_MS, max_deaths=5, nonce="n"
    ),
}

BEHIND = replace(QUEUED, state=State.BEHIND, cursor="", epoch=0, copy=0, lane=None, sent_at_ms=0, hop=0, seq=2)
DEAD = replace(QUEUED, state=State.DEAD, attempts=5, crashes=1, transport_deaths=1, eligible_ms=NOW_MS - 9)

OTHER_MOVES: dict[str, tuple[Job, Move]] = {
    "hand_over": (BEHIND, lifecycle.hand_over(BEHIND, ended=QUEUED, lane=Lane.LIVE, now_ms=NOW_MS, nonce="n")),
    "promote": (BEHIND, lifecycle.promote(BEHIND, nonce="n")),
    "retry": (DEAD, lifecycle.retry(DEAD, signature=SIGNATURE, nonce="n")),
    "skip": (DEAD, lifecycle.skip(DEAD, signature=SIGNATURE, nonce="n")),
    "replace": (DEAD, lifecycle.replace_by_another(DEAD, signature=SIGNATURE, nonce="n")),
}


def after(job: Job, move: Move) -> Job:
    return replace(job, **dict(move.changes))


def nominee(job: Job) -> Nominee:
    key = lifecycle.place_of(job)
    assert isinstance(key, IndexKey)
    return Nominee(job_id=job.job_id, match_id=job.match_id, epoch=job.epoch, key=key)


def test_every_row_of_the_table_has_a_move_and_every_move_a_row() -> None:
    assert set(WORKER_MOVES) | set(OTHER_MOVES) | {"claim", "resend"} == set(lifecycle.TABLE)


@pytest.mark.parametrize("name", WORKER_MOVES)
def test_a_workers_move_is_fenced_on_state_epoch_and_cursor_as_read(name: str) -> None:
    fence = WORKER_MOVES[name].fence
    assert isinstance(fence, RowFence)
    assert (fence.state, fence.epoch, fence.cursor) == (State.QUEUED, 4, "c3")


@pytest.mark.parametrize("name", WORKER_MOVES)
def test_a_move_ends_in_the_state_that_the_table_says_and_in_that_states_place(name: str) -> None:
    move = WORKER_MOVES[name]
    result = after(QUEUED, move)
    assert result.state is lifecycle.TABLE[name][1]
    if not isinstance(move.place, KeepPlace):
        assert move.place == lifecycle.place_of(result)


@pytest.mark.parametrize("name", OTHER_MOVES)
def test_a_move_of_a_match_or_an_operator_is_fenced_on_what_it_leaves_and_ends_where_the_table_says(name: str) -> None:
    job, move = OTHER_MOVES[name]
    result = after(job, move)
    assert isinstance(move.fence, RowFence)
    assert (move.fence.state, move.fence.epoch) == (lifecycle.TABLE[name][0], job.epoch)
    assert result.state is lifecycle.TABLE[name][1]
    assert move.place == lifecycle.place_of(result)


def test_a_handed_over_head_is_claimed_in_the_finished_ones_place() -> None:
    result = after(*OTHER_MOVES["hand_over"])
    assert (result.epoch, result.copy, result.hand_until_ms) == (1, 0, QUEUED.hand_until_ms)


def test_an_operators_retry_starts_with_fresh_bounds() -> None:
    result = after(*OTHER_MOVES["retry"])
    assert (result.attempts, result.crashes, result.transport_deaths, result.retried) == (0, 0, 0, True)


@pytest.mark.parametrize("name", ["retry", "skip", "replace"])
def test_an_operators_move_is_signed_on_the_row(name: str) -> None:
    assert after(*OTHER_MOVES[name]).changed == SIGNATURE


@pytest.mark.parametrize("name", ["mark", "unmark", "commit"])
def test_a_move_within_an_epoch_leaves_copy_sent_at_and_place_to_the_sweep(name: str) -> None:
    move = WORKER_MOVES[name]
    assert isinstance(move.place, KeepPlace)
    assert not {"copy", "sent_at_ms", "epoch"} & set(move.changes)


@pytest.mark.parametrize("name", ["continue", "hand_back"])
def test_an_entry_to_queued_raises_the_epoch_and_starts_at_copy_0(name: str) -> None:
    result = after(QUEUED, WORKER_MOVES[name])
    assert (result.epoch, result.copy, result.sent_at_ms) == (5, 0, NOW_MS)


@pytest.mark.parametrize(
    ("name", "attempts"),
    [
        ("fail", 3),  # the job's own code: the one thing that burns an attempt
        ("release", 2),  # refusal, no permit, halt, hop cap
        ("continue", 2),
        ("hand_back", 2),
        ("transport", 2),
        ("mark", 2),
    ],
)
def test_only_a_failure_burns_an_attempt(name: str, attempts: int) -> None:
    assert after(QUEUED, WORKER_MOVES[name]).attempts == attempts


def test_only_a_continuation_with_progress_is_a_hop() -> None:
    assert after(QUEUED, WORKER_MOVES["continue"]).hop == 2
    assert after(QUEUED, WORKER_MOVES["hand_back"]).hop == 1


def test_progress_forgives_crashes_and_transport_deaths() -> None:
    troubled = replace(QUEUED, crashes=2, transport_deaths=1)
    result = after(troubled, lifecycle.commit(troubled, next_cursor="c4", output=None, nonce="n"))
    assert (result.crashes, result.transport_deaths) == (0, 0)


def test_a_claim_is_fenced_on_the_place_that_was_seen_and_enters_a_fresh_chain() -> None:
    waiting = replace(QUEUED, state=State.WAITING, eligible_ms=NOW_MS - 5)
    shown = nominee(waiting)
    move = lifecycle.claim(
        shown, job_class="replays", lane=Lane.RECOVERY, run_id="r", nonce="n", now_ms=NOW_MS, hand_until_ms=NOW_MS + 9
    )
    result = after(waiting, move)
    assert move.fence == IndexFence(key=shown.key)
    assert (result.epoch, result.copy, result.hop, result.lane) == (5, 0, 0, Lane.RECOVERY)
    assert move.place == lifecycle.place_of(result)


def test_a_resend_raises_the_copy_under_the_same_epoch_and_leaves_the_nonce() -> None:
    move = lifecycle.resend(nominee(QUEUED), job_class="replays", now_ms=NOW_MS)
    result = after(QUEUED, move)
    assert (result.epoch, result.copy, result.sent_at_ms, move.nonce) == (4, 3, NOW_MS, None)
    assert move.place == lifecycle.place_of(result)


def test_a_transport_death_at_the_bound_is_a_death_fenced_on_the_copy() -> None:
    dying = replace(QUEUED, transport_deaths=4)
    move = lifecycle.transport_death(dying, copy=2, eligible_ms=NOW_MS, now_ms=NOW_MS, max_deaths=5, nonce="n")
    assert move.name == "die"
    assert isinstance(move.fence, RowFence)
    assert move.fence.copy == 2


def test_a_done_row_leaves_the_index() -> None:
    assert WORKER_MOVES["finish"].place == LeaveIndex()


def test_a_dead_row_stands_in_the_dead_list_at_the_time_of_its_death() -> None:
    place = WORKER_MOVES["die"].place
    assert isinstance(place, IndexKey)
    assert (place.partition, work_index.time_of(place)) == ("replays#dead", NOW_MS)


MARKED = after(QUEUED, WORKER_MOVES["mark"])


@pytest.mark.parametrize(
    ("row", "copy", "receives", "proven"),
    [
        (MARKED, 2, 3, True),  # the next delivery finds the mark unchanged
        (MARKED, 3, 1, True),  # so does the first delivery of the next copy
        (MARKED, 2, 2, False),  # a twin of the delivery that left it
        (MARKED, 1, 9, False),  # an older copy, late
        (replace(MARKED, cursor="c4"), 2, 3, False),  # the chunk was committed
        (replace(MARKED, epoch=5), 2, 3, False),  # the row was admitted again
        (QUEUED, 2, 3, False),  # no mark
    ],
)
def test_a_crash_is_proven_by_the_mark_that_an_earlier_delivery_left_at_this_chunk(
    row: Job, copy: int, receives: int, proven: bool
) -> None:
    assert lifecycle.crash_proven(row, copy=copy, receives=receives) is proven


def test_a_proven_crash_is_counted_with_the_next_mark() -> None:
    assert after(MARKED, lifecycle.mark(MARKED, copy=2, receives=3, nonce="n", crashed=True)).crashes == 1


@pytest.mark.parametrize("state", [state for state in State if state is not State.QUEUED])
def test_a_message_for_a_row_that_is_not_queued_is_stale(state: State) -> None:
    assert not messages.is_current(replace(QUEUED, state=state), messages.message_of(QUEUED))


def test_a_message_of_another_epoch_is_stale_and_of_another_copy_is_not() -> None:
    message = messages.message_of(QUEUED)
    assert messages.is_current(QUEUED, message)
    assert messages.is_current(replace(QUEUED, copy=9, cursor="c7"), message)
    assert not messages.is_current(replace(QUEUED, epoch=5), message)
    assert not messages.is_current(None, message)


identities = st.tuples(st.text(), st.text(), st.integers(0, 50), st.integers(0, 50))


@given(identities, identities)
def test_dedup_ids_differ_exactly_when_the_identities_do(
    one: tuple[str, str, int, int], other: tuple[str, str, int, int]
) -> None:
    ids = [
        Message(job_id=job_id, job_class="c", cursor=cursor, epoch=epoch, copy=copy).dedup_id
        for job_id, cursor, epoch, copy in (one, other)
    ]
    assert (ids[0] == ids[1]) == (one == other)
    assert all(len(value) == 64 and value.isascii() for value in ids)
