"""Our own policy on one scenario: the production use cases, checked after every event, measured to the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from ops.simulator.arrivals import Arrival
from ops.simulator.checks.checker import Checker
from ops.simulator.checks.rows import Failing
from ops.simulator.checks.suite import Suite
from ops.simulator.kinds import WorkKind
from ops.simulator.measure import Meter, port_counts
from ops.simulator.mix import Mix
from ops.simulator.operator_rounds import OperatorRounds, Remedy
from ops.simulator.result import Result, checked_figures, series_of
from ops.simulator.run import PACED, Run, world_ms
from ops.simulator.scenario import CLASS, Event, Scenario
from ops.simulator.sluice_world import SimSluice
from ops.simulator.upstream import UpstreamTruth
from ops.simulator.world import START_MS, Invocation, Outcome, World
from shared.domain import stats
from shared.domain.job import Job, NewJob, State
from shared.domain.stats import StatsWindow
from shared.kind import Kind
from shared.operate.switches import pause, resume
from shared.pacer.cost import Usage

_WHY: Final = "the scenario says so"
"""The reason on record of an operator's pause or resume."""

_RETRY_MS: Final = 5_000
"""After so long a producer or an operator whose process failed tries again."""


class Drive(Run):
    """`stop_at_once`: at the first violation. `mix` replaces the seed's own mixture of faults."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        *,
        stop_at_once: bool = False,
        mix: Mix | None = None,
        policy: str = PACED,
    ) -> None:
        self.stop_at_once = stop_at_once
        self.mix = mix if mix is not None or not scenario.trouble.mix else Mix(seed)
        self.settings = scenario.settings if self.mix is None else self.mix.settings_of(scenario.settings)
        self._mended: set[str] = set()
        truth = scenario.upstream_truth if self.mix is None else self.mix.truth_of(scenario.upstream_truth)
        self.sluice = self._sluice(scenario, seed, truth)
        extra: list[type[Checker]] = [Meter] if self.mix is not None else [Meter, Failing]
        self.suite = Suite(self.sluice, more=extra, clock_slack_ms=0 if self.mix is None else 2 * self.mix.skew_ms)
        self.meter = self.suite.of(Meter)
        self.meter.calls_per_chunk = scenario.work.calls_per_chunk
        self.meter.demand.limit, self.meter.demand.from_ms = truth.limit, world_ms(scenario.drains_from_s)
        super().__init__(
            scenario,
            policy,
            world=self.sluice.world,
            upstream=self.sluice.upstream,
            truth=truth,
            job_class=self.settings.classes[CLASS],
            lives=self.meter.lives,
            demand=self.meter.demand,
            traffic=self.meter.traffic,
        )
        self._rounds_are_due = any(event.do == "repair" for event in scenario.events)
        self.rounds = OperatorRounds(
            self.sluice,
            self.job_class,
            # Where the scenario does not ask for more, a dead job is given up: an ordered match would never end.
            remedies=list(Remedy) if self._rounds_are_due else [Remedy.SKIP],
            mended=self._mended,
            over=self._over,
            expect=self._expect_replacement,
        )
        self._faults_over = False
        self._resuming = False
        self._producers = 0

    def _sluice(self, scenario: Scenario, seed: int, truth: UpstreamTruth) -> SimSluice:
        mix = self.mix
        options: dict[str, Any] = {"schedule_faults": scenario.schedule_faults} if mix is None else mix.options()
        sluice = SimSluice(
            self.settings,
            seed,
            latency=scenario.latency,
            truths=dict.fromkeys(self.settings.upstreams, truth),
            kinds=partial(self._kinds, scenario),
            hosting=scenario.hosting,
            keep_trace=False,
            **options,
        )
        if mix is not None:
            mix.begin(sluice)
        return sluice

    def _kinds(self, scenario: Scenario, world: World) -> dict[str, Kind]:
        work = scenario.work
        return {
            "work": WorkKind(world, calls_per_chunk=work.calls_per_chunk, duration=work.duration, mended=self._mended)
        }

    def run(self) -> None:
        super().run()
        self.suite.ended()

    def finish(self) -> Result:
        """Judged by the scenario's own expectations, unless all faults at once were upon it."""
        findings = self.suite.findings
        result = Result(
            figures=checked_figures(self),
            violations=dict(sorted(findings.counts.items())),
            said=[str(violation) for violation in findings.first],
            series=series_of(self),
        )
        if self.mix is None:
            result.judge(self.scenario)
        return result

    # -- what is measured of it

    @property
    def done(self) -> int:
        return self.sluice.ledger.states[State.DONE]

    @property
    def dead(self) -> int:
        return self.sluice.ledger.states[State.DEAD]

    @property
    def open_jobs(self) -> int:
        return self.sluice.ledger.open_rows

    @property
    def usage(self) -> Usage:
        return port_counts(self.sluice, self.job_class).usage

    @property
    def windows(self) -> list[StatsWindow]:
        """What the workers counted, minute by minute."""
        minutes_ms = range(stats.window_of(START_MS), self.world.now_ms + 1, stats.WINDOW_MS)
        return self.sluice.ledger.read_stats(CLASS, windows_ms=list(minutes_ms))

    # -- the phases of a run

    def _prepare(self) -> None:
        if self.mix is not None:
            self.suite.faults_begin()
            until_s = self.scenario.trouble.until_s
            self.world.at(world_ms(until_s), partial(self._end_faults, self.mix))
            for event in self.mix.events(until_s):
                self.world.at(world_ms(event.at_s), partial(self._operate, event))

    def _over(self) -> bool:
        if self.stop_at_once and self.suite.broken:
            return True
        busy = self._producers or not self.arrivals.over or self.world.running
        if self._rounds_are_due and (self.rounds.met is None or self.dead):
            return False
        return not busy and self.open_jobs == 0 and (self.mix is None or self._faults_over)

    def _end_faults(self, mix: Mix) -> None:
        self._faults_over = True
        mix.end(self.sluice)
        self.suite.faults_over()
        if self.job_class.ordered:
            self.rounds.begin()

    # -- producers

    def _hand_in(self, batch: Sequence[Arrival]) -> None:
        jobs = [arrival.job for arrival in batch]
        if self.mix is None:
            self.sluice.hand_in(jobs)
        else:
            self._produce(jobs)

    def _expect_replacement(self, job: Job) -> None:
        self.lives.expect(job.job_id, due_ms=job.due_ms, created_ms=self.world.now_ms, live=False, calls=0)
        self._backlog.add(job.job_id)

    def _produce(self, jobs: Sequence[NewJob]) -> None:
        """A producer under faults may die or be refused: it hands the same jobs in again, until it is answered."""
        self._producers += 1
        self.world.spawn("producer", partial(self.sluice.hand_in, jobs), on_end=partial(self._produced, jobs))

    def _produced(self, jobs: Sequence[NewJob], invocation: Invocation) -> None:
        if invocation.outcome is Outcome.RETURNED:
            self._producers -= 1
        else:
            self.world.at(self.world.now_ms + _RETRY_MS, partial(self._produce_again, jobs))

    def _produce_again(self, jobs: Sequence[NewJob]) -> None:
        self._producers -= 1
        self._produce(jobs)

    # -- operators

    def _operate(self, event: Event) -> None:
        if event.do == "pause":
            self._command(partial(pause, self.sluice.ports, CLASS, by="operator", why=_WHY), "pause")
        elif event.do == "repair":
            self.rounds.begin()
        else:
            self._resuming = True
            self.suite.resumed(CLASS)
            self._command(partial(resume, self.sluice.ports, CLASS, by="operator", why=_WHY), "resume")

    def _command(self, entry: Callable[[], object], name: str) -> None:
        """What an operator types, and types again if it did not come to its end."""

        def ended(invocation: Invocation) -> None:
            if invocation.outcome is not Outcome.RETURNED and name == "resume":
                self.world.at(self.world.now_ms + _RETRY_MS, partial(self._command, entry, name))
            elif invocation.outcome is Outcome.RETURNED and name == "pause" and not self._resuming:
                self.suite.paused(CLASS)

        self.world.spawn(f"operator/{name}", entry, on_end=ended)
