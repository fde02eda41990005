"""Checkers of what ticks do: budget (I1), one run (I6), lanes (I8), pause (I10), an honest ETA (I11).

And of everything that is said anywhere: no secrets (I12).
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Final

from ops.simulator.checks.checker import Checker
from shared.domain.control import RunKey, TickLine, TickMemory
from shared.domain.job import Job, State
from shared.domain.numbers import exact
from shared.memory.ledger import Step
from shared.pacer.decide import TickPlan
from shared.pacer.tick import TickReport

_PLANNING_MS: Final = 60_000
"""A row's lane is judged when its page is read; the claim follows within the pacer's time, on a clock of its own."""

SECRETS: Final = ("canary", "job-", "match-")
"""What the simulation's payloads, job ids and match ids contain, and no line, metric or error may."""


def is_admission(step: Step) -> bool:
    """A row enters flight by the pacer's hand. A handed-over successor takes the place of the job that ended; what is
    admitted at its submission is no step but a creation."""
    return step.name == "claim"


class Budget(Checker):
    """No run admits more than it was planned with, its live allowance included, and never is more in flight than
    `max_inflight`."""

    invariant = "I1"

    def prepare(self) -> None:
        self.over_budget: set[str] = set()
        self.in_flight: Counter[str] = Counter()
        self.most_in_flight = 0
        self._budgets: dict[str, int] = {}
        self._admitted: Counter[str] = Counter()

    def planned(self, key: RunKey, owner: str, plan: TickMemory) -> None:
        self._budgets.setdefault(key.run_id, plan.budget)

    def created(self, job: Job) -> None:
        if job.state is State.QUEUED:
            self._moves(job.job_class, 1)
            self._admits(job.run_id)

    def stepped(self, step: Step) -> None:
        change = (step.after.state is State.QUEUED) - (step.before.state is State.QUEUED)
        if change:
            self._moves(step.after.job_class, change)
        if is_admission(step):
            self._admits(step.after.run_id)

    def closed(self, key: RunKey, line: TickLine) -> None:
        left = self._budgets.get(key.run_id, 0) - self._admitted[key.run_id]
        if line.granted > left:
            self.breaks(f"{key.run_id} left {line.granted} rows to submitters and has {left} left")

    def _admits(self, run_id: str) -> None:
        self._admitted[run_id] += 1
        budget = self._budgets.get(run_id, 0)
        if self._admitted[run_id] > budget:
            self.over_budget.add(run_id)
            self.breaks(f"{run_id} admitted {self._admitted[run_id]} rows of a budget of {budget}")

    def _moves(self, job_class: str, change: int) -> None:
        self.in_flight[job_class] += change
        flying, most = self.in_flight[job_class], self.sluice.settings.classes[job_class].max_inflight
        self.most_in_flight = max(self.most_in_flight, flying)
        if change > 0 and flying > most:
            self.breaks(f"{flying} rows of {job_class} are in flight, more than {most}")


class OneRun(Checker):
    """A (class, minute) is planned once, only its owner claims for it, and no two pacers of a class work at once."""

    invariant = "I6"

    def prepare(self) -> None:
        self._owners: dict[str, str] = {}
        self._planning: dict[str, str] = {}

    def planned(self, key: RunKey, owner: str, plan: TickMemory) -> None:
        first = self._owners.setdefault(key.run_id, owner)
        if first != owner:
            self.breaks(f"{key.run_id} was planned by two invocations")
        other = self._planning.get(key.job_class, owner)
        if other != owner and any(running.name == other for running in self.sluice.world.running):
            self.breaks(f"two pacers of {key.job_class} plan at once")
        self._planning[key.job_class] = owner

    def ticked(self, report: TickReport) -> None:
        job_class = report.run_id.partition("@")[0]
        if report.outcome == "closed" and self._owners.get(report.run_id) == self._planning.get(job_class):
            self._planning.pop(job_class, None)

    def stepped(self, step: Step) -> None:
        if is_admission(step) and self._owners.get(step.after.run_id) != step.after.nonce:
            self.breaks(
                f"{step.after.run_id} admitted {step.after.job_id} by another invocation than the one that planned it"
            )


class Lanes(Checker):
    """While both lanes wait, each gets its share of the rows to within one, over any ticks; what is split is spent."""

    invariant = "I8"

    def prepare(self) -> None:
        self._owed: dict[str, Fraction] = {}

    def ticked(self, report: TickReport) -> None:
        plan = report.plan
        job_class = report.run_id.partition("@")[0]
        if plan is None or report.outcome != "closed":
            self._owed.pop(job_class, None)
            return
        waiting_live, waiting_recovery = (int(factor(plan, f"waiting_{lane}")) for lane in ("live", "recovery"))
        split = plan.live + plan.recovery + plan.granted
        wanted = waiting_live + waiting_recovery + int(factor(plan, "expected_live"))
        if plan.budget and split != min(plan.budget, wanted):
            self.breaks(f"{report.run_id} split {split} of {plan.budget} rows with {wanted} waiting or expected")
        if waiting_live < plan.budget or waiting_recovery < plan.budget:
            self._owed.pop(job_class, None)  # a lane may have lent, which ends what can be compared
            return
        share = exact(factor(plan, "live_share"), name="live_share")
        owed = self._owed.get(job_class, Fraction(0)) + share * split - plan.live
        self._owed[job_class] = owed
        if abs(owed) > 2:
            self.breaks(f"{report.run_id} leaves the live lane {float(owed):g} rows behind its share")

    def created(self, job: Job) -> None:
        window_ms = self.sluice.settings.classes[job.job_class].live_window_s * 1000
        if job.state is State.QUEUED and job.sent_at_ms - job.due_ms >= window_ms:
            self.breaks(f"{job.job_id} is recovery work and was admitted at its submission")

    def stepped(self, step: Step) -> None:
        if not is_admission(step) or step.after.lane is None:
            return
        before, window_ms = step.before, self.sluice.settings.classes[step.after.job_class].live_window_s * 1000
        is_old = before.retried or step.at_ms - before.eligible_ms > window_ms + _PLANNING_MS
        if step.after.lane.value == "live" and is_old:
            self.breaks(f"{before.job_id} is recovery work and was claimed into the live lane")


def factor(plan: TickPlan, name: str) -> float:
    return next(known.value or 0 for known in plan.factors if known.name == name)


class Pause(Checker):
    """After a pause is committed nothing is admitted until the resume, and its reasons are on record."""

    invariant = "I10"

    def prepare(self) -> None:
        self._paused: set[str] = set()

    def paused(self, job_class: str) -> None:
        flag = self.sluice.ledger.read_control(job_class).pause
        if flag is None or not (flag.by and flag.why and flag.at_ms):
            self.breaks(f"{job_class} is paused without a record of who, why and when")
        self._paused.add(job_class)

    def resumed(self, job_class: str) -> None:
        self._paused.discard(job_class)

    def created(self, job: Job) -> None:
        if job.state is State.QUEUED and job.job_class in self._paused:
            self.breaks(f"{job.job_id} was admitted at its submission while {job.job_class} is paused")

    def stepped(self, step: Step) -> None:
        enters = step.after.state is State.QUEUED and step.before.state is not State.QUEUED
        if enters and step.after.job_class in self._paused:
            self.breaks(f"{step.after.job_id} was admitted by {step.name} while {step.after.job_class} is paused")


class HonestEta(Checker):
    """Every metric is finite, an ETA is not negative, and "will not drain" is a state without a number."""

    invariant = "I11"

    def prepare(self) -> None:
        self._told = 0

    def event(self) -> None:
        sets = self.sluice.metrics.sets
        while self._told < len(sets):
            values = sets[self._told].values
            self._told += 1
            eta = values.get("DrainEtaMinutes")
            if not all(math.isfinite(value) for value in values.values()):
                self.breaks("a metric is not finite")
            if eta is not None and eta < 0:
                self.breaks(f"the ETA is {eta:g} minutes")
            if eta is not None and values.get("DrainStalled"):
                self.breaks(f"an ETA of {eta:g} minutes beside the statement that it will not drain")

    def closed(self, key: RunKey, line: TickLine) -> None:
        if line.eta_s is not None and not (math.isfinite(line.eta_s) and line.eta_s >= 0):
            self.breaks(f"{key.run_id} says an ETA of {line.eta_s} s")


class Secrecy(Checker):
    """No payload and no identifier in a log line, a metric or an error."""

    invariant = "I12"

    def prepare(self) -> None:
        self._told = 0

    def event(self) -> None:
        lines = self.sluice.log.lines
        while self._told < len(lines):
            line = lines[self._told]
            self._told += 1
            for name, value in line.fields.items():
                if isinstance(value, str) and _tells(value):
                    self.breaks(f"the log line {line.name} tells a secret in its field {name}")

    def ended(self) -> None:
        for error in self.sluice.errors:
            if _tells(str(error)):
                self.breaks(f"an error of the type {type(error).__name__} tells a secret")
        for row in self.sluice.ledger.rows.values():
            if _tells(row.job.last_error):
                self.breaks("a row's last error tells a secret")


def _tells(text: str) -> bool:
    return any(secret in text for secret in SECRETS)
