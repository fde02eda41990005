"""`make demo`: an outage drained by the real app on a local emulator, watched, disturbed and verified."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from functions.worker.kinds.replay_summary import SEGMENT_BYTES
from ops.local.chaos import Killer
from ops.local.scenario import FUNCTION_TIMEOUT_S, JOB_CLASS, LATENCY_MS, Replay, Scenario, new_jobs, segment_count
from ops.local.stage import Stage, staged
from ops.local.verify import Check, Drain, gather, judge
from ops.local.view import View, clock, view_for
from shared.errors import SluiceError
from shared.operate.switches import pause, resume
from shared.submit.submission import submit_jobs

PGN: Final = "application/x-chess-pgn"
STEP_S: Final = 0.2
LOOK_EVERY_S: Final = 3.0
GIVE_UP_S: Final = 360.0
"""Of the seven minutes, what is left for the verification being more than it needs."""


class Demo:
    """The story, told on a stage to a view."""

    def __init__(self, stage: Stage, scenario: Scenario, view: View, *, began_s: float) -> None:
        self._stage = stage
        self._scenario = scenario
        self._view = view
        self._began_s = began_s
        self._began_ms = stage.ports.clock.now_ms() - int((time.monotonic() - began_s) * 1000)
        self._drain = Drain(stage=stage, began_ms=self._began_ms)
        self._replays: list[Replay] = []

    def play(self) -> list[Check]:
        self._outage()
        killer = Killer(victims=self._long_jobs())
        self._until_drained(killer)
        self._view.note(f"{self._clock()}  verifying")
        return judge(gather(self._stage, self._replays, kill=killer.kill, began_ms=self._began_ms))

    def _outage(self) -> None:
        """Jobs pile up while the class is paused; then it is resumed."""
        pause(self._stage.ports, JOB_CLASS, by="demo", why="the upstream is down")
        now_ms = self._stage.ports.clock.now_ms()
        backlog = self._scenario.backlog()
        self._submit(backlog, first_due_ms=now_ms - self._scenario.outage_s * 1000, last_due_ms=now_ms)
        matches = len({replay.match_id for replay in backlog})
        self._view.note(f"{self._clock()}  paused, {len(backlog)} jobs of {matches} matches wait: resuming")
        resume(self._stage.ports, JOB_CLASS, by="demo", why="the upstream is back")

    def _until_drained(self, killer: Killer) -> None:
        """Fresh matches arrive, a worker dies, and the view shows it, until nothing is left or time is up."""
        fresh = self._scenario.fresh()
        next_fresh_s = next_look_s = time.monotonic()
        arriving, killed = True, False
        while time.monotonic() - self._began_s < GIVE_UP_S:
            report = self._stage.upstream.report()
            killer.step(self._stage, report)
            if killer.kill and not killed:
                killed = True
                self._view.note(f"{self._clock()}  killed worker process {killer.kill.pid} during {killer.kill.key}")
            if arriving and time.monotonic() >= next_fresh_s:
                next_fresh_s += self._scenario.fresh_every_s
                arriving = self._arrive(next(fresh, []))
            if time.monotonic() >= next_look_s:
                next_look_s = time.monotonic() + LOOK_EVERY_S
                sight = self._drain.look(report)
                self._view.show(sight)
                if sight.pending == 0 and not arriving:
                    return
            time.sleep(STEP_S)
        self._view.note(f"{self._clock()}  not drained in time")

    def _arrive(self, replays: list[Replay]) -> bool:
        now_ms = self._stage.ports.clock.now_ms()
        if replays:
            self._submit(replays, first_due_ms=now_ms, last_due_ms=now_ms)
        return bool(replays)

    def _submit(self, replays: Sequence[Replay], *, first_due_ms: int, last_due_ms: int) -> None:
        ports = self._stage.ports
        ports.parallel.map(
            lambda replay: ports.blobs.put_once(replay.key, replay.body, content_type="application/x-chess-pgn"),
            replays,
        )
        jobs = new_jobs(replays, first_due_ms=first_due_ms, last_due_ms=last_due_ms, seed=self._scenario.seed)
        created = submit_jobs(ports, self._stage.settings, jobs).created
        if created != len(jobs):
            raise DemoError(f"{created} of {len(jobs)} jobs were accepted")
        self._replays += replays
        self._drain.submitted += created

    def _long_jobs(self) -> set[str]:
        """Those that no single invocation could finish, whatever share of the upstream they had."""
        most = FUNCTION_TIMEOUT_S * 1000 // LATENCY_MS
        return {replay.job_id for replay in self._replays if segment_count(replay.body, SEGMENT_BYTES) > most}

    def _clock(self) -> str:
        return clock(time.monotonic() - self._began_s)


class DemoError(SluiceError):
    """The demo cannot go on:"""

    code = "demo"


def report(checks: Sequence[Check]) -> str:
    """The verdict, one line per check."""
    width = max(len(check.name) for check in checks)
    lines = [f"{'ok  ' if check.holds else 'FAIL'}  {check.name:<{width}}  {check.detail}" for check in checks]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ops.local.demo", description="The main job, on a local emulator.")
    parser.add_argument("--emulator", type=Path, default=None, help="the emulator's virtual environment")
    parser.add_argument("--seed", type=int, default=Scenario().seed)
    options = parser.parse_args(arguments)
    for ending in (signal.SIGINT, signal.SIGTERM):  # SIGINT too: a shell starts background jobs with it ignored
        signal.signal(ending, _interrupt)
    began_s = time.monotonic()
    try:
        with view_for(sys.stdout) as view, staged(options.emulator, say=view.note) as stage:
            checks = Demo(stage, Scenario(seed=options.seed), view, began_s=began_s).play()
    except SluiceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    print(report(checks))
    verdict = "all of it holds" if all(check.holds for check in checks) else "it does NOT all hold"
    print(f"{clock(time.monotonic() - began_s)}  {verdict}")
    return 0 if all(check.holds for check in checks) else 1


def _interrupt(*_: object) -> NoReturn:
    """Everything that was started is stopped on the way out."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    raise SystemExit(main())
