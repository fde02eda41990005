"""`make demo`: an outage drained by the real app on a local emulator, watched, disturbed and verified."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, Self, TextIO

from msgspec import Struct
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from functions.worker.kinds.replay_summary import SEGMENT_BYTES
from ops.local import processes
from ops.local.deployment import Deployment, deployed
from ops.local.scenario import FUNCTION_TIMEOUT_S, JOB_CLASS, LATENCY_MS, Replay, Scenario, new_jobs, segment_count
from ops.local.verify import Check, Kill, gather, judge
from shared.errors import SluiceError
from shared.operate.switches import pause, resume
from shared.pacer.forecast import DrainState, Eta, drain_eta
from shared.steps.counting import count_rows, read_inflight
from shared.submit.submission import submit_jobs

STEP_S: Final = 0.2
LOOK_EVERY_S: Final = 3.0
"""Between two looks at the upstream, which a kill needs at once, and at the ledger, which the view needs."""
GIVE_UP_S: Final = 360.0
"""Of the seven minutes, what is left for the verification being more than it needs."""

RATE_WINDOW_S: Final = 20.0
"""Over which finished jobs become a rate."""

PLAIN_EVERY_S: Final = 10.0
"""Between two lines where the output is no terminal."""


# -- what an operator watches


class Sight(Struct, frozen=True, kw_only=True):
    """One look at the drain. `at_s` counts from the demo's start; `rate_per_s` is finished jobs."""

    at_s: float
    submitted: int
    waiting_live: int
    waiting_recovery: int
    later: int
    in_flight: int
    dead: int
    rate_per_s: float
    calls: int
    refused: int
    paused: bool
    eta: Eta

    @property
    def pending(self) -> int:
        return self.waiting_live + self.waiting_recovery + self.later + self.in_flight

    @property
    def done(self) -> int:
        """What is nowhere else any more: it may read one row too many while a row moves between two lists."""
        return self.submitted - self.pending - self.dead


class View:
    """Where the demo speaks: `note` is for events, `show` for the latest look. This one prints lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown_at_s = -PLAIN_EVERY_S

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def show(self, sight: Sight) -> None:
        if sight.at_s - self._shown_at_s < PLAIN_EVERY_S:
            return
        self._shown_at_s = sight.at_s
        self.note(line(sight))


class LiveView(View):
    """A table that is redrawn in place; notes scroll by above it."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._live = Live(console=Console(file=stream), auto_refresh=False, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        self._live.console.print(Text(text))

    def show(self, sight: Sight) -> None:
        self._live.update(table(sight), refresh=True)


def watching(stream: TextIO) -> View:
    return LiveView(stream) if stream.isatty() else View(stream)


def line(sight: Sight) -> str:
    """One look in one line."""
    return (
        f"{clock(sight.at_s)}  waiting live {sight.waiting_live:>3} recovery {sight.waiting_recovery:>3}"
        f"  in flight {sight.in_flight:>3}  done {sight.done:>3}/{sight.submitted}  {sight.rate_per_s:4.1f} jobs/s"
        f"  refusals {sight.refused}/{sight.calls} calls  ETA {eta_text(sight.eta)}"
    )


def table(sight: Sight) -> Group:
    """One look as a table with a bar under it."""
    grid = Table(title=f"drain at {clock(sight.at_s)}" + (" (paused)" if sight.paused else ""), title_justify="left")
    columns = {
        "waiting live": str(sight.waiting_live),
        "waiting recovery": str(sight.waiting_recovery),
        "later": str(sight.later),
        "in flight": str(sight.in_flight),
        "done": f"{sight.done} of {sight.submitted}",
        "dead": str(sight.dead),
        "jobs/s": f"{sight.rate_per_s:.1f}",
        "refusals": f"{sight.refused} of {sight.calls} calls",
        "drain ETA": eta_text(sight.eta),
    }
    for name in columns:
        grid.add_column(name, justify="right")
    grid.add_row(*columns.values())
    return Group(grid, ProgressBar(total=max(1, sight.submitted), completed=max(0, sight.done), width=100))


def eta_text(eta: Eta) -> str:
    """A time only where there is one to say (I11)."""
    if eta.seconds is not None:
        return clock(eta.seconds)
    return "will not drain" if eta.state.will_not_drain else WORDS.get(eta.state, eta.state.value)


WORDS: Final = {DrainState.MEASURING: "measuring", DrainState.PAUSED: "paused"}


def clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


@dataclass(slots=True, kw_only=True)
class Drain:
    """The drain of one class since `began_ms`."""

    deployment: Deployment
    began_ms: int
    submitted: int = 0
    _finished: deque[tuple[float, int]] = field(default_factory=deque)

    def look(self, report: Mapping[str, Any]) -> Sight:
        ports, settings = self.deployment.ports, self.deployment.job_class
        now_ms = ports.clock.now_ms()
        counts = count_rows(ports, settings, now_ms)
        in_flight = len(read_inflight(ports, settings))
        control = ports.ledger.read_control(settings.name)
        pending = counts.waiting + counts.behind + in_flight
        at_s = (now_ms - self.began_ms) / 1000
        return Sight(
            at_s=at_s,
            submitted=self.submitted,
            waiting_live=counts.eligible.live,
            waiting_recovery=counts.eligible.recovery,
            later=counts.later + counts.behind,
            in_flight=in_flight,
            dead=counts.dead,
            rate_per_s=self._rate(at_s, self.submitted - pending - counts.dead),
            calls=report["calls"],
            refused=report["refused"],
            paused=not control.admits,
            eta=drain_eta(control.history, now_ms=now_ms, pending=pending, paused=not control.admits),
        )

    def _rate(self, at_s: float, finished: int) -> float:
        self._finished.append((at_s, finished))
        while at_s - self._finished[0][0] > RATE_WINDOW_S:
            self._finished.popleft()
        since_s, before = self._finished[0]
        return max(0, finished - before) / (at_s - since_s) if at_s > since_s else 0.0


# -- what disturbs it


@dataclass(slots=True, kw_only=True)
class Killer:
    """Waits for one of the `victims` to be beyond its first chunk, then kills the process that runs it.

    Which of the worker's processes that is cannot be seen from outside; but the upstream sees whose caller is gone. So
    a kill counts once the upstream has said so, and until then the next process is tried.
    """

    victims: Collection[str]
    kill: Kill | None = None
    _tried: dict[int, list[str]] = field(default_factory=dict)

    def step(self, deployment: Deployment, report: Mapping[str, Any]) -> None:
        """One look at the upstream's report, and perhaps one kill."""
        if self.kill is not None:
            return
        gone = set(report["abandoned"])
        for tried, keys in self._tried.items():
            if hit := gone.intersection(keys):
                self.kill = Kill(pid=tried, key=min(hit))
                return
        if any(set(keys).intersection(report["in_flight"]) for keys in self._tried.values()):
            return  # the last kill's verdict is still out
        if open_keys := [key for key in report["in_flight"] if self._is_victim(key)]:
            pid = next((pid for pid in deployment.worker_processes() if pid not in self._tried), None)
            if pid is not None and processes.kill(pid):
                self._tried[pid] = open_keys

    def _is_victim(self, key: str) -> bool:
        job_id, _, call = key.partition(":")
        return job_id in self.victims and not call.startswith(":")  # "<job>::0" is a first chunk


# -- the story


class Demo:
    """The story, told of a deployment to a view."""

    def __init__(self, deployment: Deployment, scenario: Scenario, view: View, *, began_s: float) -> None:
        self._deployment = deployment
        self._scenario = scenario
        self._view = view
        self._began_s = began_s
        self._began_ms = deployment.ports.clock.now_ms() - int((time.monotonic() - began_s) * 1000)
        self._drain = Drain(deployment=deployment, began_ms=self._began_ms)
        self._replays: list[Replay] = []

    def play(self) -> list[Check]:
        self._outage()
        killer = Killer(victims=self._long_jobs())
        self._until_drained(killer)
        self._view.note(f"{self._clock()}  verifying")
        return judge(gather(self._deployment, self._replays, kill=killer.kill, began_ms=self._began_ms))

    def _outage(self) -> None:
        """Jobs pile up while the class is paused; then it is resumed."""
        pause(self._deployment.ports, JOB_CLASS, by="demo", why="the upstream is down")
        now_ms = self._deployment.ports.clock.now_ms()
        backlog = self._scenario.backlog()
        self._submit(backlog, first_due_ms=now_ms - self._scenario.outage_s * 1000, last_due_ms=now_ms)
        matches = len({replay.match_id for replay in backlog})
        self._view.note(f"{self._clock()}  paused, {len(backlog)} jobs of {matches} matches wait: resuming")
        resume(self._deployment.ports, JOB_CLASS, by="demo", why="the upstream is back")

    def _until_drained(self, killer: Killer) -> None:
        """Fresh matches arrive, a worker dies, and the view shows it, until nothing is left or time is up."""
        fresh = self._scenario.fresh()
        next_fresh_s = next_look_s = time.monotonic()
        arriving, killed = True, False
        while time.monotonic() - self._began_s < GIVE_UP_S:
            report = self._deployment.upstream.report()
            killer.step(self._deployment, report)
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
        now_ms = self._deployment.ports.clock.now_ms()
        if replays:
            self._submit(replays, first_due_ms=now_ms, last_due_ms=now_ms)
        return bool(replays)

    def _submit(self, replays: Sequence[Replay], *, first_due_ms: int, last_due_ms: int) -> None:
        ports = self._deployment.ports
        ports.parallel.map(
            lambda replay: ports.blobs.put_once(replay.key, replay.body, content_type="application/x-chess-pgn"),
            replays,
        )
        jobs = new_jobs(replays, first_due_ms=first_due_ms, last_due_ms=last_due_ms, seed=self._scenario.seed)
        created = submit_jobs(ports, self._deployment.settings, jobs).created
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
        with watching(sys.stdout) as view, deployed(options.emulator, say=view.note) as deployment:
            checks = Demo(deployment, Scenario(seed=options.seed), view, began_s=began_s).play()
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
