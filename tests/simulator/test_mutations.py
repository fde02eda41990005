"""The tests can fail: the protocol passes every scenario, and each of its parts, taken out, fails a named check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from shared.domain import lifecycle, messages, work_index
from shared.domain.control import Carry, Taken, TickClose
from shared.domain.job import Lane, State
from shared.domain.lifecycle import IndexFence, Move
from shared.domain.messages import BatchAnswer, Outgoing
from shared.memory import ledger
from shared.memory.ledger import MemoryAllowances, MemoryLedger, MemoryRuns
from shared.memory.queue import MemoryQueue
from shared.pacer import claim, decide, snapshot, tick
from shared.ports import Ports
from shared.steps import sending
from shared.worker import message
from shared.worker.context import Invocation, Lease
from tests.simulator.scenarios import SCENARIOS

Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_healthy_protocol_passes(name: str) -> None:
    assert SCENARIOS[name]() == set()


# -- mutations: each takes one part of the protocol out


def no_epoch_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(messages, "is_current", lambda job, message: job is not None and job.state is State.QUEUED)


def believe_the_queue(patch: pytest.MonkeyPatch) -> None:
    """Whatever was handed over counts as confirmed."""
    original = MemoryQueue.send_batch

    def send_batch(self: Any, job_class: str, lane: Lane, batch: Sequence[Outgoing]) -> BatchAnswer:
        return replace(original(self, job_class, lane, batch), successful=frozenset(range(len(batch))))

    patch.setattr(MemoryQueue, "send_batch", send_batch)


def send_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sending, "_TRIES", 1)


class MessageFirst:
    """The ledger of a pacer that sends the message of a claim before it makes the claim."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def __getattr__(self, method: str) -> Any:
        return getattr(self._ports.ledger, method)

    def move(self, move: Move) -> Any:
        row = self._ports.ledger.read_job(move.job_id)
        assert row is not None
        sending.send_jobs(self._ports, [replace(row, epoch=row.epoch + 1, copy=0, lane=move.changes["lane"])])
        return self._ports.ledger.move(move)


def message_first(patch: pytest.MonkeyPatch) -> None:
    original = claim.claim_and_send

    def claim_and_send(one: Any, *arguments: Any) -> Any:
        ports = replace(one.ports, ledger=MessageFirst(one.ports))
        return original(replace(one, ports=ports), *arguments)

    patch.setattr(tick, "claim_and_send", claim_and_send)


def forget_the_carry(patch: pytest.MonkeyPatch) -> None:
    original = MemoryLedger.plan_run

    def plan_run(self: Any, key: Any, *, owner: str, plan: Any) -> bool:
        return original(self, key, owner=owner, plan=replace(plan, carry=Carry()))

    patch.setattr(MemoryLedger, "plan_run", plan_run)


def lend_nothing(patch: pytest.MonkeyPatch) -> None:
    original = decide.split

    def split(**arguments: Any) -> decide.LaneSplit:
        waiting = arguments["waiting"]
        plenty = replace(waiting, live=10**6, recovery=10**6)
        made = original(**(arguments | {"waiting": plenty}))
        return replace(made, live=min(made.live, waiting.live), recovery=min(made.recovery, waiting.recovery))

    patch.setattr(decide, "split", split)


def ignore_the_lock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryRuns, "take", lambda self, key, **_: Taken(planned=False))
    patch.setattr(MemoryRuns, "_owns", lambda *_: True)
    original = MemoryRuns.plan

    def plan(self: Any, key: Any, *, owner: str, plan: Any) -> bool:
        original(self, key, owner=owner, plan=plan)
        return True

    patch.setattr(MemoryRuns, "plan", plan)


def forget_recent_admissions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(snapshot.Gathered, "unseen_rows", property(lambda self: 0))


def spend_at_the_close(patch: pytest.MonkeyPatch) -> None:
    def plan(self: Any, key: Any, *, owner: str, plan: Any) -> bool:
        control = self.control(key.job_class)
        made = bool(original(self, key, owner=owner, plan=plan))
        self.put(replace(self.control(key.job_class), carry=control.carry, planned_at_ms=control.planned_at_ms))
        self.unspent = plan
        return made

    def close(self: Any, key: Any, *, owner: str, close: Any) -> bool:
        made = bool(original_close(self, key, owner=owner, close=close))
        spent = self.unspent
        self.put(replace(self.control(key.job_class), carry=spent.carry, planned_at_ms=spent.planned_at_ms))
        return made

    original, original_close = MemoryRuns.plan, MemoryRuns.close
    patch.setattr(MemoryRuns, "plan", plan)
    patch.setattr(MemoryRuns, "close", close)


def disown_own_writes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryLedger, "_is_ours", lambda *_: False)


def no_sweep(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tick, "sweep", lambda *_, **__: 0)


def sweep_raises_the_epoch(patch: pytest.MonkeyPatch) -> None:
    def resend(nominee: Any, *, job_class: str, now_ms: int) -> Move:
        epoch = nominee.epoch + 1
        return Move(
            name="resend",
            job_id=nominee.job_id,
            fence=IndexFence(key=nominee.key),
            changes={"epoch": epoch, "copy": 0, "sent_at_ms": now_ms},
            place=work_index.inflight(nominee.job_id, job_class, sent_at_ms=now_ms, epoch=epoch, copy=0),
            nonce=None,
        )

    patch.setattr(lifecycle, "resend", resend)


def sweep_repeats_the_copy(patch: pytest.MonkeyPatch) -> None:
    """Under the same dedup id: the queue remembers the first message for five minutes and drops the re-send."""

    def resend(nominee: Any, *, job_class: str, now_ms: int) -> Move:
        copy = work_index.copy_of(nominee.key)
        return Move(
            name="resend",
            job_id=nominee.job_id,
            fence=IndexFence(key=nominee.key),
            changes={"sent_at_ms": now_ms},
            place=work_index.inflight(nominee.job_id, job_class, sent_at_ms=now_ms, epoch=nominee.epoch, copy=copy),
            nonce=None,
        )

    patch.setattr(lifecycle, "resend", resend)


def commit_without_a_fence(patch: pytest.MonkeyPatch) -> None:
    original = ledger._holds

    def holds(fence: Any, row: Any) -> bool:
        return original(fence, row) if isinstance(fence, IndexFence) else row.job.state is fence.state

    patch.setattr(ledger, "_holds", holds)
    patch.setattr(MemoryLedger, "_output_taken", lambda *_: False)


def endless_lease(patch: pytest.MonkeyPatch) -> None:
    def take(invocation: Invocation, _: Any) -> Lease:
        return Lease(clock=invocation.ports.clock, deadline_ms=2**62)

    patch.setattr(message, "take_lease", take)


def a_refusal_is_a_failure(patch: pytest.MonkeyPatch) -> None:
    def release(job: Any, *, reason: str, eligible_ms: int, nonce: str, **_: Any) -> Move:
        return lifecycle.fail(job, reason=reason, eligible_ms=eligible_ms, nonce=nonce)

    patch.setattr(lifecycle, "release", release)


def never_withdraw(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryLedger, "withdraw", lambda self, job_class: self._runs.allowances.read(job_class))


def forget_what_was_spent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(snapshot.Gathered, "recent", property(lambda self: self.control.recent))


def spend_what_is_not_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryAllowances, "take", lambda self, seen, **_: True)


def pause_keeps_the_allowance(patch: pytest.MonkeyPatch) -> None:
    def set_pause(self: Any, job_class: str, flag: Any) -> None:
        self._runs.put(replace(self._runs.control(job_class), pause=flag))

    patch.setattr(MemoryLedger, "set_pause", set_pause)


def grant_to_a_paused_class(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TickClose, "without_grant", property(lambda self: self))


def keep_the_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryAllowances, "account", lambda *_, **__: None)


@dataclass(frozen=True, slots=True)
class Mutation:
    patch: Patch
    scenario: str
    check: str


MUTATIONS = [
    Mutation(no_epoch_check, "old_copy", "one worker per job"),
    Mutation(a_refusal_is_a_failure, "old_copy", "a refusal burns no attempt"),
    Mutation(believe_the_queue, "failing_entries", "confirmed messages are in the queue"),
    Mutation(send_once, "failing_entries", "a passing failure is retried in the tick"),
    Mutation(message_first, "clean_drain", "no row needed the sweep"),
    Mutation(forget_the_carry, "small_rate", "three rows in ten ticks"),
    Mutation(lend_nothing, "one_lane", "an unused share is lent"),
    Mutation(ignore_the_lock, "rival_pacers", "no run over its budget"),
    Mutation(ignore_the_lock, "rival_pacers", "max inflight holds"),
    Mutation(forget_recent_admissions, "late_pacer", "max inflight holds"),
    Mutation(spend_at_the_close, "spent_minute", "no minute is earned twice"),
    Mutation(disown_own_writes, "lost_answers", "no row needed the sweep"),
    Mutation(no_sweep, "dead_pacer", "nothing is lost"),
    Mutation(no_sweep, "vanished_message", "healed within b and a tick"),
    Mutation(sweep_repeats_the_copy, "vanished_message", "healed within b and a tick"),
    Mutation(sweep_raises_the_epoch, "touched_worker", "no chunk runs twice"),
    Mutation(commit_without_a_fence, "zombie_worker", "no cursor moves back"),
    Mutation(endless_lease, "long_jobs", "no worker is killed"),
    Mutation(never_withdraw, "late_submitters", "max inflight holds"),
    Mutation(forget_what_was_spent, "late_submitters", "max inflight holds"),
    Mutation(spend_what_is_not_there, "late_submitters", "no run over its budget"),
    Mutation(pause_keeps_the_allowance, "stopped_submitters", "a pause ends the allowance"),
    Mutation(grant_to_a_paused_class, "stopped_submitters", "nothing is granted after a pause"),
    Mutation(keep_the_record, "dead_planner", "unspent rows come back once"),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: f"{one.patch.__name__}-{one.check.replace(' ', '_')}")
def test_a_mutation_fails_the_check_that_names_what_it_took_out(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation.patch(monkeypatch)
    assert mutation.check in SCENARIOS[mutation.scenario]()
