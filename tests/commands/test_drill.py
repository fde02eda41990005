"""`drill` over the virtual world: everything holds, each of its parts notices when what it tries is broken, and the
class is left as it was found.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ops.access import Access
from ops.simulator.sluice_world import SimSluice
from ops.simulator.world import World as VirtualWorld
from shared.domain import messages
from shared.domain.control import Control, Run, RunKey, RunState
from shared.domain.job import Job, NewJob, State
from shared.domain.messages import Message
from shared.domain.settings import Settings
from shared.kind import Chunk, ChunkContext, Kind
from shared.memory.ledger import MemoryRuns
from shared.pacer.tick import TickReport
from tests.commands.world import CLASS, World, settings

WHY = ("--reason", "a test", "--yes")


@dataclass(slots=True)
class DrillKind:
    """The twin of functions/worker/kinds/drill.py in virtual time."""

    world: VirtualWorld
    calls_per_chunk: int = 0

    def process_chunk(self, job: Job, cursor: str, context: ChunkContext) -> Chunk:
        asked, number = {"chunks": 1, "seconds": 0} | json.loads(job.payload), int(cursor or 0)
        if number == asked.get("die_at") and job.mark is None:
            self.world.die()
        self.world.call("kind.work", partial(self.world.sleep, round(asked["seconds"] * 1000)))
        return Chunk(next_cursor=None if number + 1 >= asked["chunks"] else str(number + 1), output={"chunk": number})


def declared(**changes: Any) -> Settings:
    fields = {"kind": "drill", "function_timeout_s": 60, "priorities": 1, "slots": 8, "declared_service_s": 1.0}
    return settings(**(fields | changes))


def _kinds(world: VirtualWorld) -> dict[str, Kind]:
    return {"drill": DrillKind(world), "other": DrillKind(world)}


def _sluice() -> SimSluice:
    return SimSluice(declared(), seed=1, kinds=_kinds)


@dataclass(slots=True)
class DrillWorld(World):
    sluice: SimSluice = field(default_factory=_sluice)
    other: DrillWorld | None = None

    def pacer(self) -> DrillWorld:
        return self

    def tick(self, key: RunKey, *, source: str) -> str:
        """The pacer, waited for."""
        invocation = self.sluice.schedules[key.job_class].fire(key.minute_ms)
        self.sluice.world.run(stop=lambda: invocation.ended)
        assert isinstance(invocation.value, TickReport), invocation.error
        return invocation.value.outcome

    def beside(self, outputs: Path) -> Access:
        assert self.other is not None
        return self.other

    def drilled(self, *options: object) -> tuple[int, dict[str, Any]]:
        result = self.run("drill", CLASS, *WHY, "--json", *options)
        return result.exit_code, {step["name"]: step for step in json.loads(result.stdout)["steps"]}


@pytest.fixture
def world() -> DrillWorld:
    return DrillWorld()


def test_everything_holds_and_the_class_is_as_it_was(world: DrillWorld) -> None:
    code, steps = world.drilled()
    assert (code, [step["ok"] for step in steps.values()]) == (0, [True] * 5), steps
    assert list(steps) == ["one run a minute", "one effect", "pause", "concurrency there and back", "resume and drain"]
    assert "duplicate, duplicate; 1 tick on record" in steps["one run a minute"]["found"]
    assert "an earlier message stale while it ran" in steps["one effect"]["found"]
    assert "a worker killed between commit and acknowledgement" in steps["one effect"]["found"]
    assert "4 queued and 2 delayed jobs all there" in steps["pause"]["found"]
    assert "8 -> 4 -> 8 slots" in steps["concurrency there and back"]["found"]
    control = world.control
    assert control.admits
    assert control.slots is not None
    assert control.slots.settled
    assert control.slots.before == 8, "nothing to go back to but what was there"
    assert {job.state for job in world.rows.values()} == {State.DONE}


def test_what_an_operator_set_is_still_theirs_afterwards_with_its_way_back(world: DrillWorld) -> None:
    world.run("concurrency", CLASS, 6, "--reason", "mine")
    before = world.control.slots
    code, steps = world.drilled("--only", "stop")
    assert (code, "6 -> 4 -> 6 slots" in steps["concurrency there and back"]["found"]) == (0, True), steps
    assert world.control.slots == before


# -- what the drill is for: each of these takes one condition out of the code


def no_epoch_check(patch: pytest.MonkeyPatch) -> None:
    def is_current(job: Job | None, message: Message) -> bool:
        return job is not None and job.state is State.QUEUED

    patch.setattr(messages, "is_current", is_current)


def no_run_dedup(patch: pytest.MonkeyPatch) -> None:
    def admit(self: MemoryRuns, key: RunKey, *, source: str) -> bool:
        self.runs[key] = Run(key=key, state=RunState.OPEN, source=source)
        return True

    patch.setattr(MemoryRuns, "admit", admit)


def no_pause_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Control, "admits", True)


@pytest.mark.parametrize(
    ("mutation", "step", "says"),
    [
        (no_epoch_check, "one effect", "a message of an earlier epoch was not found stale"),
        (no_run_dedup, "one run a minute", "was executed 3 times: closed, closed, closed"),
        (no_pause_check, "pause", "of 6 jobs still wait"),
    ],
)
def test_the_drill_fails_where_a_check_is_taken_out(
    world: DrillWorld,
    monkeypatch: pytest.MonkeyPatch,
    mutation: Callable[[pytest.MonkeyPatch], None],
    step: str,
    says: str,
) -> None:
    mutation(monkeypatch)
    code, steps = world.drilled()
    assert code == 1
    assert [name for name, each in steps.items() if not each["ok"]] == [step], steps
    assert says in steps[step]["found"]
    assert list(steps)[-1] == step, "the first failure ends the drill"
    assert world.control.pause is None, "the class is left as it was found"


# -- restore


def test_what_waits_is_drained_in_the_simulator_too(world: DrillWorld) -> None:
    code, steps = world.drilled("--only", "stop", "--restore")
    assert (code, steps["restore"]["ok"]) == (0, True), steps
    assert "7 jobs and 1 output exported, drained in the simulator: 7 of 7" in steps["restore"]["found"]


def test_what_waits_is_drained_in_another_deployment(world: DrillWorld, tmp_path: Path) -> None:
    world.other = DrillWorld()
    code, steps = world.drilled("--only", "stop", "--restore", "--into", tmp_path / "outputs.json")
    assert (code, steps["restore"]["ok"]) == (0, True), steps
    assert "imported into memory and drained there: 7 of 7" in steps["restore"]["found"]
    assert set(world.other.rows) == set(world.rows)
    assert {job.state for job in world.other.rows.values()} == {State.DONE}


def test_a_deployment_restored_into_itself_proves_nothing(world: DrillWorld, tmp_path: Path) -> None:
    world.other = world
    code, steps = world.drilled("--only", "stop", "--restore", "--into", tmp_path / "outputs.json")
    assert (code, steps["restore"]["ok"]) == (1, False)
    assert "the drill's jobs are there already" in steps["restore"]["found"]


def test_a_ledger_that_is_not_empty_fails_the_restore_and_the_class_goes_on(world: DrillWorld, tmp_path: Path) -> None:
    world.other = DrillWorld()
    world.other.sluice.submit([NewJob(job_id="theirs", job_class=CLASS, match_id="m", payload="{}")])
    code, steps = world.drilled("--only", "stop", "--restore", "--into", tmp_path / "outputs.json")
    assert (code, steps["restore"]["ok"]) == (1, False)
    assert world.control.pause is None


# -- what it refuses


def test_a_class_of_another_kind_needs_a_payload_and_says_what_was_not_tried(tmp_path: Path) -> None:
    world = DrillWorld(sluice=SimSluice(declared(kind="other"), seed=1, kinds=_kinds))
    result = world.run("drill", CLASS, *WHY)
    assert (result.exit_code, "--payload: got nothing, expected a file with a harmless payload" in result.output) == (
        2,
        True,
    )
    payload = tmp_path / "payload.json"
    payload.write_text('{"seconds": 20}')
    code, steps = world.drilled("--payload", payload, "--only", "effect")
    assert code == 0, steps
    assert "no worker was killed: only the drill's own kind can be told to die" in steps["one effect"]["found"]


def test_a_backlog_is_not_paused_without_force(world: DrillWorld) -> None:
    world.sluice.submit([NewJob(job_id="theirs", job_class=CLASS, match_id="m", payload='{"seconds": 5}')])
    result = world.run("drill", CLASS, *WHY)
    assert (result.exit_code, "got 1 rows of its own, expected none, or --force" in result.output) == (2, True)
    assert world.drilled("--only", "run", "--force")[0] == 0
    world = DrillWorld()
    world.sluice.submit([NewJob(job_id="theirs", job_class=CLASS, match_id="m", payload="{}")])
    assert world.run("drill", CLASS, *WHY, "--force", "--restore").exit_code == 2


def test_a_paused_class_is_left_alone(world: DrillWorld) -> None:
    world.run("pause", CLASS, "--reason", "mine")
    result = world.run("drill", CLASS, *WHY)
    assert (result.exit_code, "got a class that is paused or halted" in result.output) == (2, True)


def test_without_yes_it_asks_first(world: DrillWorld) -> None:
    result = world.run("drill", CLASS, "--reason", "a test", stdin=b"n\n")
    assert (result.exit_code, world.rows) == (1, {})
    assert "Go on?" in result.output


def test_ctrl_c_leaves_the_class_as_it_was(world: DrillWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ops.drill.steps.slots.change", interrupted)
    result = world.run("drill", CLASS, *WHY, "--only", "stop")
    assert result.exit_code == 130
    assert world.control.pause is None
