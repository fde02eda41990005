"""What a worker knows of its class is read before its groups begin: none of them may meet a default."""

from __future__ import annotations

from ops.simulator.sluice_world import SimSluice
from ops.simulator.upstream import UpstreamTruth
from shared.domain.job import Flag, State
from shared.domain.upstream import Learned
from tests.worlds import CLASS, Bench, jobs, settings


def test_of_ten_groups_that_start_together_none_runs_while_the_class_is_halted() -> None:
    sluice = Bench(settings(batch_size=10))
    sluice.submit(jobs(40))
    (report,) = sluice.ended(sluice.tick(0))
    sluice.ledger.set_halt(CLASS, Flag(by="ada", why="test", at_ms=sluice.world.now_ms))
    sluice.switch(True)
    sluice.run(30_000)

    assert report.admitted == 40
    assert sluice.kinds[CLASS].starts == []
    assert {job.state for job in sluice.rows.values()} == {State.WAITING}


def test_ten_groups_that_start_together_all_follow_the_learned_rate() -> None:
    made = settings(batch_size=10, limit_per_s=20.0)
    sluice = SimSluice(made, seed=1, truths={"inference": UpstreamTruth(limit_per_s=2.5)})
    sluice.ledger.store_learned("inference", Learned(rate_per_s=2.0, good_per_s=2.0), before=None)
    sluice.submit(jobs(100))
    sluice.run(3 * 60_000)

    assert sluice.upstream.refusals == 0
