"""Runs, plans and closes for the suite."""

from __future__ import annotations

from msgspec.structs import replace

from shared.domain.control import (
    Admission,
    Carry,
    Cause,
    Measure,
    Measures,
    Origin,
    RateOverride,
    RunKey,
    Stage,
    TakeResult,
    TickClose,
    TickLine,
    TickMemory,
)
from shared.domain.job import Flag, LaneCounts
from shared.ports import Ledger
from tests.contract.worlds import CLASS, NOW_MS

KEY = RunKey.of(CLASS, NOW_MS)
NEXT = RunKey.of(CLASS, NOW_MS + 60_000)
UNTIL_MS = NOW_MS + 50_000
PLAN = TickMemory(budget=7, carry=Carry(live=-300_000_000, recovery=600_000_000), planned_at_ms=NOW_MS)
MEASURES = Measures(
    calls_per_job=Measure(value=2.5, origin=Origin.MEASURED, samples=40),
    chunks_per_job=None,
    service_s=Measure(value=1.0, origin=Origin.DECLARED),
    long_chunk_s=Measure(value=0.75, origin=Origin.REMEMBERED, samples=20),
)
FLAG = Flag(by="operator@example", why="quota – bis morgen", at_ms=NOW_MS)


def a_line(number: int = 0, *, eta_s: float | None = 81.25) -> TickLine:
    return TickLine(
        run_id=KEY.run_id,
        at_ms=NOW_MS + number,
        paused=False,
        waiting=LaneCounts(live=3, recovery=2000),
        later=1,
        behind=0,
        in_flight=40,
        dead=2,
        budget=7,
        admitted=7,
        confirmed=6,
        swept=1,
        rate_per_s=1 / 3,
        binding="upstream",
        oldest_age_s=91,
        eta_s=eta_s,
    )


RATE = RateOverride(rate_per_s=2.5, flag=FLAG, until_ms=NOW_MS + 3_600_000)
STAGE = Stage(
    cause=Cause.RESUMED, since_ms=NOW_MS, oldest_age_s=91.0, pending=2044, number=1, windows=1, window_ms=NOW_MS
)

CLOSE = TickClose(
    stage=STAGE,
    measures=MEASURES,
    recent=(Admission(at_ms=NOW_MS, rows=7),),
    history=(a_line(), a_line(1, eta_s=None), replace(a_line(2), rate_per_s=2.0)),
)


def take(
    ledger: Ledger, key: RunKey = KEY, *, owner: str = "one", now_ms: int = NOW_MS, until_ms: int = UNTIL_MS
) -> TakeResult:
    return ledger.take_run(key, owner=owner, now_ms=now_ms, until_ms=until_ms)
