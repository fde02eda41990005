"""Run one scenario under our own policy: the production use cases, checked after every event, measured to the end.

What a run of our own policy amounts to: the figures, the series of its ticks, and the scenario's judgement.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from ops.simulator import limit_change
from ops.simulator.arrivals import Arrival, Arrivals
from ops.simulator.checks.checker import Checker
from ops.simulator.checks.rows import Attempts, Failing, OneEffect, Order
from ops.simulator.checks.suite import Suite
from ops.simulator.checks.ticks import Budget
from ops.simulator.kinds import WorkKind
from ops.simulator.measure import Measure, Truths, median, port_counts, quantile
from ops.simulator.mix import Mix
from ops.simulator.repairs import Repairs, Word
from ops.simulator.result import Figures, Result, redone_chunks
from ops.simulator.scenario import CLASS, Event, Scenario
from ops.simulator.sluice_world import SimSluice
from ops.simulator.world import START_MS, Invocation, Outcome, World
from shared.domain import stats
from shared.domain.job import Job, NewJob, State
from shared.domain.stats import StatsWindow
from shared.kind import Kind
from shared.operate.switches import pause, resume
from shared.pacer.cost import wasted

_WHY: Final = "the scenario says so"

_RETRY_MS: Final = 5_000


class Drive:
    """One run; afterwards `figures.result_of` says what came of it, and the world stays open to who wants to look.

    `stop_at_once`: at the first violation. `mix` replaces the seed's own mixture of faults.
    """

    def __init__(self, scenario: Scenario, seed: int, *, stop_at_once: bool = False, mix: Mix | None = None) -> None:
        self.scenario = scenario
        self.stop_at_once = stop_at_once
        self.mix = mix if mix is not None or not scenario.trouble.mix else Mix(seed)
        self.settings = scenario.settings if self.mix is None else self.mix.settings_of(scenario.settings)
        self._mended: set[str] = set()
        self.sluice = self._world(seed)
        more: list[type[Checker]] = [Measure] if self.mix is not None else [Measure, Failing]
        self.suite = Suite(self.sluice, more=more, clock_slack_ms=0 if self.mix is None else 2 * self.mix.skew_ms)
        self.measure = self.suite.of(Measure)
        self.measure.demand.limit = self.truth.limit
        self.measure.demand.from_ms = START_MS + round(scenario.drains_from_s * 1000)
        self.measure.calls_per_chunk = scenario.work.calls_per_chunk
        self.arrivals = Arrivals(scenario, self.sluice.world, self._take)
        self.backlog_ended_ms: int | None = None
        self._backlog: set[str] = set()
        self.measure.lives.on_end = self._job_ended
        self.repairs = self._repairs()
        self._rng = random.Random(f"{seed}/trouble")
        self._faults_over = False
        self._resuming = False
        self._producers = 0

    def _world(self, seed: int) -> SimSluice:
        scenario, mix = self.scenario, self.mix
        self.truth = scenario.upstream_truth if mix is None else mix.truth_of(scenario.upstream_truth)
        options: dict[str, Any] = {"schedule_faults": scenario.schedule_faults} if mix is None else mix.options()
        sluice = SimSluice(
            self.settings,
            seed,
            latency=scenario.latency,
            truths=dict.fromkeys(self.settings.upstreams, self.truth),
            kinds=self._kinds,
            hosting=scenario.hosting,
            keep_trace=False,
            **options,
        )
        if mix is not None:
            mix.begin(sluice)
        return sluice

    def _kinds(self, world: World) -> dict[str, Kind]:
        work, calls = self.scenario.work, self.scenario.work.calls_per_chunk
        return {"work": WorkKind(world, calls_per_chunk=calls, duration=work.duration, mended=self._mended)}

    def _repairs(self) -> Repairs:
        """Where the scenario does not ask for more, a dead job is given up: an ordered match would never end."""
        self._word_is_due = any(event.do == "repair" for event in self.scenario.events)
        return Repairs(
            self.sluice,
            self.settings.classes[CLASS],
            words=list(Word) if self._word_is_due else [Word.SKIP],
            mended=self._mended,
            over=self._over,
            expect=self._expect_replacement,
        )

    # -- the run

    def run(self) -> None:
        world, scenario = self.sluice.world, self.scenario
        for event in scenario.events:
            world.at(START_MS + round(event.at_s * 1000), partial(self._operate, event))
        if scenario.trouble.kills_per_minute:
            self._next_kill()
        if self.mix is not None:
            self.suite.faults_begin()
            world.at(START_MS + round(scenario.trouble.until_s * 1000), self._end_faults)
            for event in self.mix.events(scenario.trouble.until_s):
                world.at(START_MS + round(event.at_s * 1000), partial(self._operate, event))
        self.arrivals.start()
        world.run(START_MS + round(scenario.max_hours * 3_600_000), stop=self._over)
        self.suite.ended()

    def _over(self) -> bool:
        if self.stop_at_once and self.suite.broken:
            return True
        busy = self._producers or not self.arrivals.over or self.sluice.world.running
        if self._word_is_due and (self.repairs.found is None or self.sluice.ledger.states[State.DEAD]):
            return False
        return not busy and self.sluice.ledger.open_rows == 0 and (self.mix is None or self._faults_over)

    def _end_faults(self) -> None:
        assert self.mix is not None
        self._faults_over = True
        self.mix.end(self.sluice)
        self.suite.faults_over()
        if self.settings.classes[CLASS].ordered:
            self.repairs.begin()

    # -- what arrives

    def _take(self, batch: list[Arrival]) -> None:
        lives, calls = self.measure.lives, self.scenario.work.calls_per_chunk
        for arrival in batch:
            assert arrival.job.due_ms is not None
            lives.expect(
                arrival.job.job_id,
                due_ms=arrival.job.due_ms,
                created_ms=arrival.at_ms,
                live=arrival.live,
                calls=arrival.chunks * calls,
            )
            if not self.scenario.sources[arrival.number].endless:
                self._backlog.add(arrival.job.job_id)
        jobs = [arrival.job for arrival in batch]
        if self.mix is None:
            self.sluice.hand_in(jobs)
        else:
            self._produce(jobs)

    def _expect_replacement(self, job: Job) -> None:
        self.measure.lives.expect(
            job.job_id, due_ms=job.due_ms, created_ms=self.sluice.world.now_ms, live=False, calls=0
        )
        self._backlog.add(job.job_id)

    def _produce(self, jobs: Sequence[NewJob]) -> None:
        """A producer under faults may die or be refused: it hands the same jobs in again, until it is answered."""
        self._producers += 1
        self.sluice.world.spawn("producer", partial(self.sluice.hand_in, jobs), on_end=partial(self._produced, jobs))

    def _produced(self, jobs: Sequence[NewJob], invocation: Invocation) -> None:
        world = self.sluice.world
        if invocation.outcome is Outcome.RETURNED:
            self._producers -= 1
        else:
            world.at(world.now_ms + _RETRY_MS, partial(self._again, jobs))

    def _again(self, jobs: Sequence[NewJob]) -> None:
        self._producers -= 1
        self._produce(jobs)

    def _job_ended(self, job_id: str) -> None:
        self._backlog.discard(job_id)
        if not self._backlog and self.arrivals.backlog_over and self.backlog_ended_ms is None:
            self.backlog_ended_ms = self.sluice.world.now_ms
            self.arrivals.backlog_done()

    # -- what operators and chance do

    def _operate(self, event: Event) -> None:
        if event.do == "pause":
            self._command(partial(pause, self.sluice.ports, CLASS, by="operator", why=_WHY), "pause")
        elif event.do == "repair":
            self.repairs.begin()
        else:
            self._resuming = True
            self.suite.resumed(CLASS)
            told = partial(resume, self.sluice.ports, CLASS, by="operator", why="the scenario says so")
            self._command(told, "resume")

    def _command(self, entry: Callable[[], object], name: str) -> None:
        """What an operator types, and types again if it did not come to its end."""

        def ended(invocation: Invocation) -> None:
            if invocation.outcome is not Outcome.RETURNED and name == "resume":
                self.sluice.world.at(self.sluice.world.now_ms + _RETRY_MS, partial(self._command, entry, name))
            elif invocation.outcome is Outcome.RETURNED and name == "pause" and not self._resuming:
                self.suite.paused(CLASS)

        self.sluice.world.spawn(f"operator/{name}", entry, on_end=ended)

    def _next_kill(self) -> None:
        world, trouble = self.sluice.world, self.scenario.trouble
        wait_s = self._rng.expovariate(trouble.kills_per_minute / 60)
        if not trouble.until_s or world.now_ms + wait_s * 1000 < START_MS + trouble.until_s * 1000:
            world.at(world.now_ms + round(wait_s * 1000), self._kill)

    def _kill(self) -> None:
        world = self.sluice.world
        begun = [one for one in world.running if is_worker(one.name) and one.at_ms <= world.now_ms]
        if begun:
            world.kill(self._rng.choice(begun), Outcome.CRASHED)
        if not self.arrivals.over or self.sluice.ledger.open_rows:
            self._next_kill()


def is_worker(invocation: str) -> bool:
    """By its queue's name: a pacer's invocation is named after its tick, a dead-letter reader's after its queue."""
    return invocation.partition("/")[2].startswith(("live", "recovery"))


PACED: Final = "paced"

WAITED_TICKS: Final = 2
"""What any drain waits for beyond its work: its first tick, and the one that admits its last rows."""


def run_paced(scenario: Scenario, seed: int) -> Result:
    """One run to its end, judged by the scenario's own expectations."""
    drive = Drive(scenario, seed)
    drive.run()
    return result_of(drive)


def result_of(drive: Drive) -> Result:
    world = drive.sluice.world
    figures = Figures(scenario=drive.scenario.name, seed=world.seed, policy=PACED)
    _count(drive, figures)
    truths = Truths(drive.measure.lives, _done(drive))
    _time(drive, figures, truths)
    _follow(drive, figures)
    found = drive.suite.findings
    result = Result(
        figures=figures,
        violations=dict(sorted(found.counts.items())),
        said=[str(violation) for violation in found.first],
        series=list(_series(drive, truths)),
    )
    if drive.mix is None:
        result.judge(drive.scenario)
    return result


def _done(drive: Drive) -> set[str]:
    return {job_id for job_id, row in drive.sluice.ledger.rows.items() if row.job.state is State.DONE}


def _count(drive: Drive, figures: Figures) -> None:
    sluice, measure, suite = drive.sluice, drive.measure, drive.suite
    ledger, outcomes = sluice.ledger, Counter(one.outcome for one in sluice.world.invocations)
    figures.jobs = len(measure.lives.created_ms)
    figures.done, figures.dead = ledger.states[State.DONE], ledger.states[State.DEAD]
    figures.unfinished = ledger.open_rows
    figures.lost = figures.jobs - len(ledger.rows) + suite.findings.counts.get("I3", 0)
    repeated_calls = sum(count - 1 for count in sluice.upstream.effects.values())
    figures.duplicate_effects = repeated_calls + suite.of(OneEffect).repeats
    figures.redone_chunks = redone_chunks(
        ledger.steps, [start for kind in sluice.kinds.values() for start in kind.starts]
    )
    figures.over_budget_ticks = len(suite.of(Budget).over_budget)
    figures.max_in_flight = suite.of(Budget).most_in_flight
    figures.order_violations = suite.findings.counts.get(Order.invariant, 0)
    if (found := drive.repairs.found) is not None and drive.mix is None:
        figures.dead_at_word, figures.held_at_word, figures.free_at_word = found.dead, found.held, found.free
    figures.upstream_calls, figures.refusals = len(sluice.upstream.calls), sluice.upstream.refusals
    figures.refusals_per_1000 = measure.traffic.per_1000
    figures.refusals_per_1000_worst = measure.traffic.worst_per_1000
    figures.ticks = len(measure.lines)
    figures.attempts_burned_by_refusals = suite.of(Attempts).burned_by_others
    figures.crashes, figures.timeouts = outcomes[Outcome.CRASHED], outcomes[Outcome.TIMED_OUT]
    if figures.done:
        job_class = drive.settings.classes[CLASS]
        used = port_counts(sluice, job_class).usage
        figures.cost_per_job_usd = used.usd() / figures.done
        figures.waste_per_job_usd = wasted(_windows(drive), job_class).at_most(used).usd() / figures.done


def _windows(drive: Drive) -> list[StatsWindow]:
    """What the workers counted, minute by minute."""
    minutes_ms = range(stats.window_of(START_MS), drive.sluice.world.now_ms + 1, stats.WINDOW_MS)
    return drive.sluice.ledger.read_stats(CLASS, windows_ms=list(minutes_ms))


def _time(drive: Drive, figures: Figures, truths: Truths) -> None:
    measure, scenario, job_class = drive.measure, drive.scenario, drive.settings.classes[CLASS]
    from_ms = measure.demand.from_ms
    figures.utilisation = measure.demand.utilisation(drive.sluice.world.now_ms)
    if drive.backlog_ended_ms is not None:
        figures.drain_s = (drive.backlog_ended_ms - from_ms) / 1000
    calls_per_s = job_class.slots / scenario.service_s * scenario.calls_per_job
    figures.ideal_drain_s = measure.lives.ideal_drain_s(drive.truth.limit, from_ms=from_ms, calls_per_s=calls_per_s)
    figures.drain_ratio = drain_ratio(figures, job_class.tick_interval_s)
    errors, figures.eta_silent_ticks = truths.errors(measure.lines, interval_s=job_class.tick_interval_s)
    figures.eta_error_median, figures.eta_error_p95 = median(errors), quantile(errors, 0.95)
    wait_ms = quantile(measure.lives.live_waits_ms, 0.95)
    figures.live_wait_p95_s = None if wait_ms is None else wait_ms / 1000


def drain_ratio(figures: Figures, interval_s: float) -> float | None:
    if figures.drain_s is None or not figures.ideal_drain_s:
        return None
    return (figures.drain_s - WAITED_TICKS * interval_s) / figures.ideal_drain_s


def _follow(drive: Drive, figures: Figures) -> None:
    limit, lines = drive.truth.limit, drive.measure.lines
    interval_s = drive.settings.classes[CLASS].tick_interval_s
    figures.refusals_per_1000_changing = limit_change.refused_per_1000(
        limit, drive.sluice.upstream.calls, interval_s=interval_s
    )
    figures.ticks_to_90_percent = limit_change.ticks_to_90_percent(limit, lines)
    steady = limit_change.steady_rates(limit, lines)
    figures.steady_rate_low, figures.steady_rate_high = steady or (None, None)


def _series(drive: Drive, truths: Truths) -> Iterator[dict[str, Any]]:
    """One entry per closed tick; calls and refusals since the one before."""
    calls = refusals = 0
    for line, (calls_now, refusals_now) in zip(drive.measure.lines, drive.measure.marks, strict=True):
        learned_per_s = limit_change.learned_per_s(line)
        yield {
            "t_s": (line.at_ms - START_MS) / 1000,
            "waiting_live": line.waiting.live,
            "waiting_recovery": line.waiting.recovery,
            "later": line.later,
            "behind": line.behind,
            "dead": line.dead,
            "in_flight": line.in_flight,
            "budget": line.budget,
            "admitted": line.admitted,
            "rate_per_s": round(line.rate_per_s * drive.scenario.calls_per_job, 4),
            "learned_per_s": None if learned_per_s is None else round(learned_per_s, 4),
            "true_limit_per_s": drive.truth.limit.at(line.at_ms),
            "refusals": refusals_now - refusals,
            "calls": calls_now - calls,
            "eta_said_s": None if line.eta_s is None else round(line.eta_s, 1),
            "eta_true_s": round(truths.remaining_s(line.at_ms), 1),
            "paused": line.paused,
            "staged": line.staged,
        }
        calls, refusals = calls_now, refusals_now
