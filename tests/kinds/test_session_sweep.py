"""`session_sweep`: its pages, what it judges by, its cursor. Its DynamoDB side is in tests/handlers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from functions.worker.kinds import session_sweep
from functions.worker.kinds.session_sweep import DELETED, SPARED, Page, expired_before_s, sweep_page
from shared.aws.keys import Item
from shared.domain.job import Job
from shared.errors import BadPayload, ConfigError
from shared.kind import Chunk, ChunkContext
from shared.memory.resources import MemoryBlobs
from shared.worker.message import MAX_CURSOR_BYTES
from tests.kinds.chunks import NOW_MS, FakeContext, a_job, run_to_end
from tests.kinds.sessions import MemorySessions

NOW_S = NOW_MS // 1000
HOUR_S = 3600


def sweep(sessions: session_sweep.Sessions, context: FakeContext, payload: Any = None, **run: Any) -> list[str]:
    def process(job: Job, cursor: str, given: ChunkContext) -> Chunk:
        return sweep_page(sessions, job, cursor, given)

    return run_to_end(process, a_job(payload or {}), context, **run)


def half_expired(count: int, **changes: Any) -> MemorySessions:
    """Every second session expired an hour ago, the others last another hour."""
    expires_s = {f"s{n}": NOW_S + (HOUR_S if n % 2 else -HOUR_S) for n in range(count)}
    return MemorySessions(expires_s, **changes)


# -- pages


def test_the_expired_are_deleted_and_the_others_stay_page_by_page() -> None:
    sessions, context = half_expired(95), FakeContext()
    cursors = sweep(sessions, context)
    assert len(sessions.expires_s) == 47
    assert (sessions.live_deleted(NOW_S), sessions.expired_left(NOW_S)) == ([], [])
    assert len(cursors) == sessions.pages == 10
    assert context.counted == {DELETED: 48, SPARED: 0}
    assert context.committed == {}  # no output: one plain update commits a page


@pytest.mark.parametrize(
    ("count", "pages"),
    [
        (0, 1),
        (1, 1),
        (10, 2),  # a full page says that there may be more
        (11, 2),
    ],
)
def test_a_table_ends_where_its_last_page_says_so(count: int, pages: int) -> None:
    sessions = half_expired(count)
    sweep(sessions, FakeContext())
    assert sessions.pages == pages


@pytest.mark.parametrize("dies_at", range(10))
def test_a_page_that_runs_twice_leaves_what_it_left(dies_at: int) -> None:
    sessions, undisturbed = half_expired(95), half_expired(95)
    sweep(sessions, FakeContext(), dies_at=dies_at)
    sweep(undisturbed, FakeContext())
    assert sessions.expires_s == undisturbed.expires_s


def test_a_session_renewed_between_its_page_and_its_delete_stays() -> None:
    sessions = half_expired(40)

    def renew(session_id: str) -> None:
        if session_id in ("s4", "s8"):
            sessions.expires_s[session_id] = NOW_S + HOUR_S

    sessions.before_delete = renew
    context = FakeContext()
    sweep(sessions, context)
    assert {"s4", "s8"} <= set(sessions.expires_s)
    assert context.counted == {DELETED: 18, SPARED: 2}


def test_a_session_that_moved_its_expiry_and_is_expired_still_is_deleted() -> None:
    sessions = half_expired(10)
    sessions.before_delete = lambda session_id: sessions.expires_s.update({session_id: NOW_S - 1})
    sweep(sessions, FakeContext())
    assert sessions.expired_left(NOW_S) == []


# -- what it judges by


def test_the_moment_is_the_jobs_due_time_and_a_session_lives_until_its_last_second() -> None:
    sessions = MemorySessions({"before": NOW_S - 1, "at": NOW_S, "after": NOW_S + 1})
    sweep(sessions, FakeContext())
    assert set(sessions.expires_s) == {"at", "after"}


def test_a_payload_may_ask_for_an_earlier_moment() -> None:
    sessions = MemorySessions({"yesterday": NOW_S - 86_400, "just now": NOW_S - 60})
    sweep(sessions, FakeContext(), {"expired_before_s": NOW_S - HOUR_S})
    assert set(sessions.expires_s) == {"just now"}


@pytest.mark.parametrize(
    "payload",
    [
        {"expired_before_s": NOW_S + 1},  # live sessions would be expired ones
        {"expired_before_s": -1},
        {"expired_before_s": float(NOW_S)},
        {"expired_before_s": True},
        {"expired_before_s": str(NOW_S)},
        {"expired_before_s": None},
        [],
        "sessions",
    ],
)
def test_any_other_payload_is_the_jobs_failure(payload: Any) -> None:
    with pytest.raises(BadPayload):
        expired_before_s(a_job(payload))


def test_a_class_without_a_table_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"options\.sessions_table: got nothing"):
        session_sweep.process_chunk(a_job({"table": "ledger"}), "", FakeContext())


# -- the cursor


class OneKey:
    """A table of two pages, whose first ends at `key`."""

    def __init__(self, key: Item) -> None:
        self.key = key
        self.resumed: list[Item | None] = []

    def page(self, *, expired_before_s: int, resume: Item | None) -> Page:
        self.resumed.append(resume)
        return Page(expired=(), resume=self.key if resume is None else None)

    def delete(self, keys: object, *, expired_before_s: int) -> int:
        return 0


@pytest.mark.parametrize(
    ("key", "objects"),
    [
        ({"session_id": {"S": "a"}}, 0),
        ({"session_id": {"S": '{"@": "\\ \x00 \U0001f3c6"}'}}, 0),
        ({"shard": {"N": "-1.50"}, "token": {"B": b"\x00\xff"}}, 0),
        ({"@": {"S": "@cursors/"}}, 0),
        ({"session_id": {"S": "a" * 2048}}, 1),  # the longest that DynamoDB takes: 2,048 bytes and 1,024
        ({"player": {"B": b"\xff" * 2048}, "session_id": {"B": b"\xfe" * 1024}}, 1),
        ({"player": {"S": "\x00" * 2048}, "session_id": {"S": "京都 – " * 100}}, 1),
    ],
)
def test_any_key_makes_a_cursor_that_leads_back_to_it(key: Item, objects: int) -> None:
    sessions, context = OneKey(key), FakeContext()
    _, cursor = sweep(sessions, context)
    assert sessions.resumed == [None, key]
    assert len(cursor.encode()) <= MAX_CURSOR_BYTES
    assert len(context.blobs.objects) == objects


def test_a_long_key_is_one_object_however_often_its_page_runs() -> None:
    context = FakeContext(blobs=MemoryBlobs())
    key: Item = {"session_id": {"S": "a" * 2048}}
    for _ in range(3):
        sweep(OneKey(key), context)
    ((name, body),) = context.blobs.objects.items()
    assert json.loads(body) == key
    assert name.startswith("cursors/")
