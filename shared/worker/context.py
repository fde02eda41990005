"""What a worker holds while it works a message: what it knows of its class, the lease, and what a chunk may use.

What is known of the class is read at the start and every few seconds. The lease on the message ends before the queue
thinks so (rule 4). The context is what a kind gets for one chunk: permits, the upstream, objects, its earlier outputs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from threading import Lock
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from shared.domain import stats
from shared.domain.job import Job
from shared.domain.messages import HASHED_PREFIX, Delivery, group_id
from shared.domain.settings import LEASE_MARGIN_S, ClassSettings, UpstreamSettings
from shared.domain.upstream import NoRoom, rate_in_force
from shared.errors import BadPayload, LedgerUnavailable, PermitUnavailable
from shared.kind import Kind
from shared.ports import Clock, Jitter, Ports
from shared.worker.tally import Tally

FRESH_MS: Final = 5_000
"""How old what is known of the class may be: a halt reaches every worker by its next chunk after this time."""

PERMIT_VOID_MS: Final = 1_000
"""A permit that is not used this soon after its slot is void: late calls would pile onto other slots (I7)."""

LEAST_CALL_MS: Final = 1_000
"""A chunk that has work behind it waits for a further permit until this much of its lease is left for the call."""


class ClassView:
    """The class as this invocation knows it: is it halted, how long do chunks take, how fast may it call.

    Groups that run in parallel share one. The lock is never held across a port call.
    """

    def __init__(self, ports: Ports, settings: ClassSettings, upstream: UpstreamSettings | None) -> None:
        self._ports = ports
        self._settings = settings
        self._lock = Lock()
        self._read_ms = -FRESH_MS
        self._halted = False
        self._p95_chunk_s = settings.declared_chunk_s
        self._declared = self._upstream = upstream
        self.reads = 0
        """How often control was read, which is paid by its size."""

    def halted(self) -> bool:
        """Workers give their jobs back at the next chunk."""
        self._refresh()
        return self._halted

    def p95_chunk_s(self) -> float:
        """As the last tick measured it; the declared time until then."""
        self._refresh()
        return self._p95_chunk_s

    def upstream(self) -> UpstreamSettings | None:
        """The upstream with the rate in force: the one number that pacer and permits share."""
        self._refresh()
        return self._upstream

    def load(self) -> None:
        """Read everything. Called before the first group begins: groups that start together must not meet defaults."""
        self._read_ms = self._ports.clock.now_ms()
        self.reads += 1
        control = self._ports.ledger.read_control(self._settings.name)
        self._halted = control.halt is not None
        if control.measures is not None:
            self._p95_chunk_s = control.measures.long_chunk_s.value
        if self._declared is not None:
            learned = self._ports.ledger.read_learned(self._declared.name)
            self._upstream = replace(self._declared, learned_per_s=rate_in_force(learned, self._declared))

    def _refresh(self) -> None:
        now_ms = self._ports.clock.now_ms()
        with self._lock:
            due = now_ms - self._read_ms >= FRESH_MS
            if due:
                self._read_ms = now_ms
        if due:
            try:
                self.load()
            except LedgerUnavailable:
                return  # what was read last still serves: a finished chunk must not be lost for this


class Invocation(Struct, frozen=True, kw_only=True):
    """What all messages of one worker invocation share. `end_ms` is when its process is killed."""

    ports: Ports
    kind: Kind
    settings: ClassSettings
    upstream: UpstreamSettings | None
    nonce: str
    end_ms: int
    jitter: Jitter
    tally: Tally
    class_view: ClassView


class Lease(Struct, frozen=True, kw_only=True):
    """Valid until `deadline_ms` on the worker's clock."""

    clock: Clock
    deadline_ms: int

    @property
    def remaining_s(self) -> float:
        return (self.deadline_ms - self.clock.now_ms()) / 1000


def take_lease(invocation: Invocation, delivery: Delivery) -> Lease | None:
    """min(the invocation's end, first receive + visibility) - margin. A redelivery extends its visibility first.

    None: the extension failed, so nobody knows for how long the message is ours, and nothing may be done with it.
    """
    ports, visibility_s = invocation.ports, invocation.settings.visibility_s
    held_from_ms = delivery.first_received_ms
    if delivery.receive_count > 1:
        held_from_ms = ports.clock.now_ms()
        if not ports.queue.extend(delivery, seconds=visibility_s):
            return None
    ends_ms = min(invocation.end_ms, held_from_ms + visibility_s * 1000)
    return Lease(clock=ports.clock, deadline_ms=ends_ms - LEASE_MARGIN_S * 1000)


class WorkerContext:
    """Implements `ChunkContext` for one chunk of one job."""

    def __init__(self, invocation: Invocation, upstream: UpstreamSettings | None, lease: Lease, job: Job) -> None:
        self._ports = ports = invocation.ports
        self._upstream = upstream
        self._lease = lease
        self._job = job
        self._calls = 0
        self._slots_ms: list[float] = []
        self._waited = False
        self.options: Mapping[str, str] = invocation.settings.options
        self.count = invocation.tally.add
        self.read_blob = ports.blobs.read
        self.put_blob_once = ports.blobs.put_once
        self.answered_calls = 0
        """Those that gave what was asked for: an upstream bills them, whatever becomes of the chunk."""

    @property
    def remaining_s(self) -> float:
        return self._lease.remaining_s

    @property
    def idempotency_key(self) -> str:
        return _identity(self._job.job_id, self._job.cursor)

    def outputs(self) -> list[Any]:
        return [json.loads(output.body) for output in self._ports.ledger.outputs(self._job.job_id)]

    def reserve_permits(self, calls: int, *, latest_ms: int) -> None:
        """Reserve permits at once and wait for the first slot. Raises `PermitUnavailable` if it is after `latest_ms`.

        Nothing is reserved then: a slot kept for a job that goes back to the table would be lost to everyone.
        """
        if self._upstream is None or calls == 0:
            return
        now_ms = self._ports.clock.now_ms()
        self.count(stats.RESERVATIONS)
        answer = self._ports.limiter.reserve(self._upstream, calls=calls, now_ms=now_ms, latest_ms=latest_ms)
        if isinstance(answer, NoRoom):
            raise PermitUnavailable(int(answer.free_at_ms))
        self._slots_ms = [answer.start_ms + number * answer.spacing_ms for number in range(calls)]
        self._waited = False
        self._sleep_until(self._slots_ms[0])

    def call_upstream(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._upstream is None:
            raise BadPayload("the class has no upstream")
        self._await_slot(self._upstream)
        key = _identity(self._job.job_id, self._job.cursor, str(self._calls))
        self._calls += 1
        self.count(stats.CALLS)
        timeout_s = min(self._upstream.timeout_s, max(0.1, self._lease.remaining_s))
        answer = self._ports.upstream.call(self._upstream, body, idempotency_key=key, timeout_s=timeout_s)
        self.answered_calls += 1
        return answer

    def _await_slot(self, upstream: UpstreamSettings) -> None:
        """Sleep until the next permit's slot; reserve another if there is none, or if it is void."""
        while True:
            if not self._slots_ms:
                self.reserve_permits(1, latest_ms=self._lease.deadline_ms - LEAST_CALL_MS)
            slot_ms = self._slots_ms.pop(0)
            self._sleep_until(slot_ms)
            if self._ports.clock.now_ms() - slot_ms > PERMIT_VOID_MS:
                continue
            if not self._waited or self._ports.limiter.held_until_ms(upstream) <= self._ports.clock.now_ms():
                return
            self._slots_ms.clear()  # somebody was refused while we waited: the hold is for us too

    def _sleep_until(self, slot_ms: float) -> None:
        wait_ms = slot_ms - self._ports.clock.now_ms()
        if wait_ms > 0:
            self._waited = True
            self._ports.clock.sleep(wait_ms / 1000)


def _identity(job_id: str, *parts: str) -> str:
    """`<job_id>:<cursor>...`, hashed where that would be ambiguous (an id with a colon) or no header could carry it."""
    text = ":".join((job_id, *parts))
    return group_id(text) if ":" not in job_id else group_id(f"{HASHED_PREFIX}{len(job_id)}:{text}")
