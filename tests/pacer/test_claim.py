"""Claims: what counts as admitted, and how far reading goes on (I1; protocol: the tick, step 5)."""

from __future__ import annotations

import pytest

from ops.simulator.faults import Fail, FaultOn, When
from ops.simulator.world import START_MS
from shared.errors import LedgerUnavailable
from tests.worlds import TWENTY_A_TICK, Bench, jobs, settings


@pytest.mark.parametrize("when", list(When))
def test_a_claim_whose_answer_nobody_knows_counts_as_admitted(when: When) -> None:
    lost = FaultOn("ledger.move", Fail(LedgerUnavailable()), nth=5, when=when)
    sluice = Bench(settings(**TWENTY_A_TICK), crash=lost)
    sluice.submit(jobs(40))
    (report,) = sluice.ended(sluice.tick(0))

    claimed = sum(step.name == "claim" for step in sluice.ledger.steps)
    assert (report.admitted, claimed) == (20, 20 if when is When.AFTER else 19)


def test_a_match_with_a_thousand_old_rows_does_not_starve_the_others_at_a_small_budget() -> None:
    sluice = Bench(settings(slots=4, declared_service_s=120.0, live_window_s=60))
    hour_ago_ms = START_MS - 3_600_000
    sluice.submit(jobs(1000, matches=1, name="hot", due_ms=hour_ago_ms - 3_600_000))
    sluice.submit(jobs(20, name="cold", due_ms=hour_ago_ms))
    for minute in range(5):
        sluice.ticked(minute, at_s=minute * 60 + 5)

    claimed = [step.after.job_id for step in sluice.ledger.steps if step.name == "claim"]
    assert sum(job_id.startswith("cold") for job_id in claimed) >= 5
