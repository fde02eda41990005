"""`drill --restore`: what waits now is exported, restored into an empty ledger, and drained there to the same ends."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from ops.drill.ground import Ground, check
from ops.long_run import Meter, meter_for
from ops.simulator import scenario_file
from ops.simulator.ledger_drive import LedgerDrive
from ops.simulator.ledger_file import read_class
from ops.submission.source import opened
from ops.transfer.copying import LedgerCopy
from ops.transfer.export import Asked, Export, PartFile
from ops.transfer.importing import Import
from ops.wording import counted
from shared.domain.job import State
from shared.operate import switches

SCENARIO = "planning-2400"
"""A pool without troubles: the question is what was exported, not what can go wrong in a drain."""


def restore(ground: Ground, copy: LedgerCopy, other: Ground | None, other_copy: LedgerCopy | None) -> str:
    """The export is deleted afterwards; it held what the class holds."""
    with tempfile.TemporaryDirectory(prefix="sluice-drill-") as directory:
        file, meter = Path(directory) / "ledger.jsonl", meter_for(sys.stderr)
        asked = Asked(classes=(ground.name,), live=False, payloads=True)
        counts = Export(ground.ports, ground.settings, copy, asked, meter).run(PartFile(file))
        if other is None or other_copy is None:
            where = _simulated(ground, file)
        else:
            where = _deployed(ground, other, other_copy, file, meter)
    return f"{counted(counts.job, 'job')} and {counted(counts.output, 'output')} exported, {where}"


def _simulated(ground: Ground, file: Path) -> str:
    run = LedgerDrive(scenario_file.load(SCENARIO), read_class(str(file), ground.settings, ground.name), seed=1)
    run.run()
    result = run.finish()
    check(result.passed, f"in the simulator: {'; '.join(result.said)}")
    ends = run.ends()
    done = [job_id for job_id in ground.job_ids if ends.get(job_id) == State.DONE]
    check(
        len(done) == len(ground.job_ids), f"{len(done)} of {len(ground.job_ids)} drill jobs are done in the simulator"
    )
    return f"drained in the simulator: {len(done)} of {len(done)} drill jobs done, every invariant checked"


def _deployed(ground: Ground, other: Ground, copy: LedgerCopy, file: Path, meter: Meter) -> str:
    there = [job_id for job_id in ground.job_ids if other.ports.ledger.read_job(job_id) is not None]
    check(not there, "the drill's jobs are there already: --into has to name another deployment than --outputs")
    with opened(str(file), rewindable=True) as source:
        run = Import(other.ports, other.settings, copy, meter)
        result = run.run(source, by=ground.by, why=ground.why, merge=False, dry_run=False)
    check(not result.refused, "the other ledger is not empty, or does not fit: python -m ops import says how")
    before = {job_id: ground.row(job_id) for job_id in ground.job_ids}
    check(all(other.row(job_id) == row for job_id, row in before.items()), "a row is not what it was")
    switches.resume(other.ports, other.name, by=ground.by, why=ground.why)
    other.job_ids = list(ground.job_ids)
    other.until(lambda: set(other.states(other.job_ids)) == {State.DONE}, "the drill's jobs are done there")
    return f"imported into {copy.name} and drained there: {len(before)} of {len(before)} drill jobs done"
