"""What a tick over a long backlog reads and calls: counted, so the figures are the same on every machine."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from functools import partial

import pytest

from ops.simulator.sluice_world import SimSluice
from ops.simulator.world import START_MS
from shared.domain.job import NewJob
from shared.domain.settings import ClassSettings, Settings
from shared.pacer.tick import TickReport, TickRequest, run_tick
from shared.submit.submission import submit_jobs
from tests.bench.conftest import Results

pytestmark = pytest.mark.bench

WAITING, ADMITTED = 50_000, 2_400
MOST_PAGES, MOST_OTHER_CALLS, MOST_MIB = 60, 60, 64


def test_a_tick_over_50000_waiting_rows_reads_what_it_admits_and_not_the_backlog(results: Results) -> None:
    settings = Settings(classes={"bench": ClassSettings(name="bench", kind="sim", slots=2_000, max_inflight=ADMITTED)})
    sluice = SimSluice(settings, 1)
    submit_jobs(
        sluice.ports,
        settings,
        (NewJob(job_id=f"j{n}", job_class="bench", match_id=f"m{n % 9_000}", payload="{}") for n in range(WAITING)),
    )
    request = TickRequest(scheduled_ms=START_MS, source="bench", nonce="t", deadline_ms=START_MS + 50_000)
    tracemalloc.start()
    invocation = sluice.command("tick", partial(run_tick, sluice.ports, settings.classes["bench"], None, request))
    peak_mib = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    report = invocation.value
    assert isinstance(report, TickReport)
    assert (report.admitted, report.confirmed) == (ADMITTED, ADMITTED)
    calls = Counter(call.point for call in sluice.world.trace if call.invocation == "tick")
    pages, counts = calls.pop("ledger.page"), calls.pop("ledger.count")
    claims, batches = calls.pop("ledger.move"), calls.pop("queue.send_batch")
    what = f"a tick over {WAITING:,} waiting rows that admits {ADMITTED:,}"
    results.add("tick", f"{what}: pages read", str(pages), str(MOST_PAGES))
    results.add("tick", "its counts (COUNT queries, all pages each)", str(counts))
    results.add(
        "tick", "its claims and batches sent", f"{claims:,} and {batches}", f"{ADMITTED:,} and {ADMITTED // 10}"
    )
    others = ", ".join(f"{point.split('.')[1]} {count}" for point, count in sorted(calls.items()))
    results.add("tick", f"its other calls ({others})", str(calls.total()), str(MOST_OTHER_CALLS))
    results.add("tick", "its peak memory, with the simulator's own record", f"{peak_mib:.0f} MiB", f"{MOST_MIB} MiB")
    assert pages <= MOST_PAGES
    assert (claims, batches) == (ADMITTED, ADMITTED // 10)
    assert calls.total() <= MOST_OTHER_CALLS
    assert peak_mib <= MOST_MIB
