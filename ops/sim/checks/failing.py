"""A checker of jobs whose own code fails (I9): they burn exactly their attempts, and wait longer after each of them."""

from __future__ import annotations

from ops.sim.checks.base import Checker
from ops.sim.memory_ledger import Step


class Failing(Checker):
    """For worlds whose workers are not stalled: how long a row waits is measured from the write that sent it back.

    Each delay is longer than the one before, up to the longest that the class has. A failure kills at the last attempt
    and at no other.
    """

    invariant = "I9"

    def prepare(self) -> None:
        self._delay_ms: dict[str, int] = {}

    def stepped(self, step: Step) -> None:
        job, retry = step.after, self.sluice.settings.classes[step.after.job_class].retry
        failed = job.attempts > step.before.attempts
        if failed and (step.name == "die") is not (job.attempts >= retry.max_attempts):
            lives = "died of" if step.name == "die" else "lives after"
            self.breaks(f"{job.job_id} {lives} attempt {job.attempts} of {retry.max_attempts}")
        if step.name == "fail":
            delay_ms, before_ms = job.eligible_ms - step.at_ms, self._delay_ms.get(job.job_id, 0)
            if delay_ms <= before_ms < retry.max_delay_s * 1000:
                self.breaks(f"{job.job_id} waits {delay_ms} ms after attempt {job.attempts} and before {before_ms} ms")
            self._delay_ms[job.job_id] = delay_ms
        elif step.name in ("die", "retry", "commit", "finish"):
            self._delay_ms.pop(job.job_id, None)
