"""The session sweep in the virtual world: players renew beside it, and its worker is killed again and again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from functions.worker.kinds.session_sweep import Page, sweep_page
from ops.simulator.faults import Call, CrashAt, CrashOn, Die, Fault, FaultHook, When
from ops.simulator.sluice_world import SimSluice
from ops.simulator.world import START_MS, World
from shared.aws.keys import Item
from shared.domain.job import Job, NewJob
from shared.domain.settings import ClassSettings, Settings
from shared.kind import Chunk, ChunkContext
from tests.kinds.sessions import MemorySessions

NOW_S, HOUR_S, HOUR_MS = START_MS // 1000, 3_600, 3_600_000

SETTINGS = Settings(
    classes={"sweep": ClassSettings(name="sweep", kind="sweep", slots=4, function_timeout_s=20, chunk_margin_s=2.0)}
)


class SweepKind:
    """The kind's own code over a table in this world: reading a page and deleting each session are calls like others,
    at which a process may be killed."""

    calls_per_chunk = 0
    world: World

    def __init__(self, table: MemorySessions) -> None:
        self._table = table

    def process_chunk(self, job: Job, cursor: str, context: ChunkContext) -> Chunk:
        return sweep_page(self, job, cursor, context)

    def page(self, *, expired_before_s: int, resume: Item | None) -> Page:
        read = partial(self._table.page, expired_before_s=expired_before_s, resume=resume)
        return self.world.call("sessions.page", read)

    def delete(self, keys: Sequence[Item], *, expired_before_s: int) -> int:
        return sum(
            self.world.call("sessions.delete", partial(self._table.delete, [key], expired_before_s=expired_before_s))
            for key in keys
        )


def every_third(point: str, at: When) -> FaultHook:
    def kill(call: Call, when: When) -> Fault | None:
        return Die() if call.point == point and call.nth % 3 == 0 and when is at else None

    return kill


def swept(table: MemorySessions, *faults: FaultHook, seed: int = 5) -> SimSluice:
    """Sweep `table` to the end, while every tenth session is renewed: some before their page is read, some after."""
    kind = SweepKind(table)
    sluice = SimSluice(SETTINGS, seed, faults=faults, kinds={"sweep": kind})
    kind.world = sluice.world
    moments = sluice.world.random("renewals")
    for session_id in [*table.expires_s][::10]:
        renew = partial(table.expires_s.update, {session_id: NOW_S + 10 * HOUR_S})
        sluice.world.at(START_MS + moments.randint(0, 120_000), partial(_if_there, table, session_id, renew))
    sluice.submit([NewJob(job_id="sweep-1", job_class="sweep", match_id="sessions", payload="{}")])
    assert sluice.drain(max_ms=5 * HOUR_MS)
    return sluice


def _if_there(table: MemorySessions, session_id: str, renew: partial[None]) -> None:
    if session_id in table.expires_s:
        renew()


def renewed_on_the_way(count: int, *, conditional: bool = True) -> MemorySessions:
    """Two of three expired, and every seventh of them renewed between the read of its page and its delete."""
    expires_s = {f"s{n}": NOW_S + (HOUR_S if n % 3 == 0 else -HOUR_S) for n in range(count)}
    table = MemorySessions(expires_s, page_rows=5, conditional=conditional)

    def renew(session_id: str) -> None:
        if int(session_id[1:]) % 7 == 0 and session_id in table.expires_s:
            table.expires_s[session_id] = NOW_S + 10 * HOUR_S

    table.before_delete = renew
    return table


@pytest.mark.parametrize(
    "kill",
    [
        every_third("sessions.page", When.BEFORE),
        every_third("sessions.page", When.AFTER),
        every_third("ledger.move", When.AFTER),  # the page's cursor is committed, and its worker gone
    ],
    ids=["before every third page", "after every third page", "after every third commit"],
)
def test_killed_at_every_third_page_nothing_live_is_deleted_and_nothing_expired_left(kill: FaultHook) -> None:
    table = renewed_on_the_way(120)
    report = swept(table, kill).report()
    assert (report.done, report.dead, report.redone_chunks) == (1, 0, 0)
    assert report.crashes >= 8
    assert (table.live_deleted(NOW_S), table.expired_left(NOW_S)) == ([], [])
    assert 40 < len(table.expires_s) < 70  # a third, and of the rest those that were renewed


@pytest.mark.parametrize("when", list(When))
def test_a_kill_at_every_call_of_a_sweep_loses_nothing(when: When) -> None:
    clean = renewed_on_the_way(20)
    calls = swept(clean).world.calls
    for call in range(1, calls + 1):
        table = renewed_on_the_way(20)
        report = swept(table, CrashAt(call, when)).report()
        assert (report.done, report.redone_chunks) == (1, 0), f"crash {when} call {call}"
        assert (table.live_deleted(NOW_S), table.expired_left(NOW_S)) == ([], []), f"crash {when} call {call}"


@pytest.mark.parametrize("nth", [1, 7, 30])
def test_a_kill_between_two_deletes_of_a_page_does_not_change_what_is_left(nth: int) -> None:
    killed, clean = renewed_on_the_way(60), renewed_on_the_way(60)
    swept(killed, CrashOn("sessions.delete", nth, When.AFTER))
    swept(clean)
    assert killed.live_deleted(NOW_S) == killed.expired_left(NOW_S) == []
    assert {each for each in clean.expires_s if int(each[1:]) % 10} <= set(killed.expires_s)


def test_the_same_checks_catch_a_table_without_the_condition() -> None:
    table = renewed_on_the_way(120, conditional=False)
    swept(table)
    assert table.live_deleted(NOW_S)
