"""Work one message: check it against its row, run chunks under the lease, commit each, and end in exactly one way."""

from __future__ import annotations

import json
from typing import Any, Final

from msgspec.structs import replace

from shared.domain import lifecycle, messages, stats
from shared.domain.job import MAX_PAYLOAD_BYTES, SLUICE, Flag, Job, Output
from shared.domain.lifecycle import Lost, Move, OutputTaken, Won
from shared.domain.messages import Delivery
from shared.errors import BadChunk, LeaseEnded, LedgerUnavailable, NoProgress, QuotaExhausted, Refused
from shared.kind import Chunk
from shared.ports import Ports
from shared.steps.sending import send_jobs
from shared.steps.turns import end_and_pass_on
from shared.worker.context import Invocation, Lease, WorkerContext, take_lease
from shared.worker.retry import ending_of
from shared.worker.tally import Tally

MAX_CURSOR_BYTES: Final = 1000
"""A cursor is part of its output's sort key, which DynamoDB bounds at 1,024 bytes (fact F50)."""

MAX_OUTPUT_BYTES: Final = 256 * 1024
"""Below DynamoDB's 400 KB an item; larger results belong in the object store, with their key as the output."""


def work_message(invocation: Invocation, delivery: Delivery, *, fresh: bool) -> bool:
    """Returns whether the message is done with (acknowledge it) or must come back (report it as failed).

    `fresh`: this is the first message of its group in the invocation. The row's cursor is the truth, the message's is
    only part of its identity.
    """
    lease = take_lease(invocation, delivery)
    if lease is None:
        return False
    try:
        job = invocation.ports.ledger.read_job(delivery.message.job_id)
        if job is None or not messages.is_current(job, delivery.message):
            invocation.tally.add(stats.STALE)
            return True
        return MessageWork(invocation, lease).work(job, delivery, fresh=fresh)
    except (LedgerUnavailable, LeaseEnded):
        return False


class MessageWork:
    """The chunks of one message. Every method that ends the message returns whether it is done with."""

    def __init__(self, invocation: Invocation, lease: Lease) -> None:
        self.invocation = invocation
        self._ports = invocation.ports
        self._settings = invocation.settings
        self._tally = invocation.tally
        self._nonce = invocation.nonce
        self._lease = lease
        self._marked = False
        self._again = False
        self._attempt: Attempt | None = None
        self._large_payload: str | None = None

    def work(self, job: Job, delivery: Delivery, *, fresh: bool) -> bool:
        if delivery.receive_count > 1:
            self._again = True
            self._tally.add(stats.REDELIVERIES)
            marked = self._mark(job, delivery)
            if marked is None:
                return True
            job = marked
        try:
            return self._chunks(job, fresh=fresh)
        except (LedgerUnavailable, LeaseEnded):
            self._waste()
            if self._marked:
                self._ports.ledger.move(lifecycle.unmark(job, nonce=self._nonce))
            raise

    def _mark(self, job: Job, delivery: Delivery) -> Job | None:
        """Leave a start mark on a redelivered row: found unchanged, it proves that this chunk crashed its process.

        None: the message has ended here, by the death of its job or a lost race.
        """
        at = {"copy": delivery.message.copy, "receives": delivery.receive_count}
        crashed = lifecycle.crash_proven(job, **at)
        if crashed:
            self._tally.add(stats.CRASHES)
            if job.crashes + 1 >= self._settings.retry.max_crashes:
                self.end(lifecycle.die(job, reason="crash", now_ms=self._now(), nonce=self._nonce), stats.DEATHS)
                return None
        result = self._ports.ledger.move(lifecycle.mark(job, **at, nonce=self._nonce, crashed=crashed))
        self._marked = isinstance(result, Won)
        return result.job if isinstance(result, Won) else None

    # -- chunk, commit, check clock

    def _chunks(self, job: Job, *, fresh: bool) -> bool:
        while True:
            if self.invocation.class_view.halted():
                move = lifecycle.release(job, reason="halted", eligible_ms=self._now(), nonce=self._nonce)
                return self.end(move, stats.RELEASES)
            if not fresh and self._time_is_up():
                move = lifecycle.hand_back(job, now_ms=self._now(), nonce=self._nonce)
                return self.end(move, stats.HAND_BACKS, sends=True)
            self._check_lease()
            try:
                chunk = self._process(job, fresh=fresh)
                output = _output_of(job, chunk)
            except (LedgerUnavailable, LeaseEnded):
                raise
            except Exception as error:  # noqa: BLE001 - a job's code may raise anything, and that is its row's business
                return self._failed(job, error)
            fresh = False
            after = self._commit(job, chunk, output)
            if self._attempt is not None:
                self._attempt.committed(output, last=chunk.next_cursor is None)
            if isinstance(after, bool):
                return after
            job = after

    def _process(self, job: Job, *, fresh: bool) -> Chunk:
        invocation, tally = self.invocation, self._tally
        job = self._with_payload(job)
        context = WorkerContext(invocation, invocation.class_view.upstream(), self._lease, job)
        context.reserve_permits(invocation.kind.calls_per_chunk, latest_ms=self._latest_start_ms(fresh=fresh))
        self._check_lease()
        tally.add(stats.STARTS if job.cursor == "" else stats.RESUMES)
        self._attempt = attempt = Attempt(self._ports, tally, context, again=self._again)
        self._again = False
        chunk = invocation.kind.process_chunk(job, job.cursor, context)
        tally.chunk(attempt.took_ms)
        tally.flush_if_due()
        return chunk

    def _with_payload(self, job: Job) -> Job:
        """The job as its kind sees it: with its payload, wherever that is stored. Read once for all of its chunks."""
        if not job.payload_key:
            return job
        if self._large_payload is None:
            body = self._ports.blobs.read(job.payload_key, start=0, length=MAX_PAYLOAD_BYTES)
            self._large_payload = body.decode("utf-8")
        return replace(job, payload=self._large_payload)

    def _commit(self, job: Job, chunk: Chunk, output: Output | None) -> Job | bool:
        """The job to go on with, or whether the message is done with."""
        nonce, cursor = self._nonce, chunk.next_cursor
        if cursor is None:
            return self._finish(job, output)
        if not self._time_is_up():
            result = self._ports.ledger.move(lifecycle.commit(job, next_cursor=cursor, output=output, nonce=nonce))
            return result.job if isinstance(result, Won) else self._not_won(job, result)
        if job.hop >= self._settings.max_hops:
            self._tally.add(stats.HOP_CAPS)
            move = lifecycle.release(
                job, reason="hop_cap", eligible_ms=self._now(), nonce=nonce, next_cursor=cursor, output=output
            )
            return self.end(move, stats.RELEASES, job)
        move = lifecycle.continue_later(job, next_cursor=cursor, output=output, now_ms=self._now(), nonce=nonce)
        return self.end(move, stats.CONTINUATIONS, job, sends=True)

    def _finish(self, job: Job, output: Output | None) -> bool:
        move = lifecycle.finish(job, output=output, nonce=self._nonce)
        if not self._settings.ordered:
            return self.end(move, stats.COMPLETIONS, job)
        result = end_and_pass_on(self._ports, self._settings, move, job, nonce=self._nonce)
        if isinstance(result, (Lost, OutputTaken)):
            return self._not_won(job, result)
        self._tally.add(stats.COMPLETIONS)
        if isinstance(result, Job):
            self._tally.add(stats.HANDOVERS)
            send_jobs(self._ports, [result])  # unsent, it is in flight all the same, and the sweep heals it
        return True

    # -- the clock

    def _now(self) -> int:
        return self._ports.clock.now_ms()

    def _need_s(self) -> float:
        """What the next chunk may take: the class's p95, never below what this invocation has seen, and the margin."""
        longest_s = max(self.invocation.class_view.p95_chunk_s(), self._tally.longest_chunk_ms / 1000)
        return longest_s + self._settings.chunk_margin_s

    def _check_lease(self) -> None:
        """Also after a wait: a process that stood still may hold a message that is someone else's by now (fact F18)."""
        if self._lease.remaining_s <= 0:
            raise LeaseEnded

    def _time_is_up(self) -> bool:
        return self._lease.remaining_s < self._need_s()

    def _latest_start_ms(self, *, fresh: bool) -> int:
        """A wait for permits may use all that the chunk does not need; a first chunk may use half of it in any case."""
        need_s = min(self._need_s(), self._lease.remaining_s / 2) if fresh else self._need_s()
        return self._lease.deadline_ms - int(need_s * 1000)

    # -- endings

    def end(self, move: Move, counter: str, job: Job | None = None, *, sends: bool = False) -> bool:
        """Make the move that ends this message; a lost race ends it too. With `job`, a taken output is its failure.

        `sends`: the row goes on under its next epoch, which is committed before its message is sent (rule 1). If the
        send fails, this message comes back as stale, and the sweep heals the row.
        """
        result = self._ports.ledger.move(move)
        if not isinstance(result, Won):
            return self._not_won(job, result)
        self._tally.add(counter)
        return not sends or send_jobs(self._ports, [result.job]) == 1

    def _failed(self, job: Job, error: Exception) -> bool:
        invocation, settings = self.invocation, self._settings
        self._waste()
        tell_everyone(error, invocation)
        jitter = invocation.jitter()
        move, counter = ending_of(error, job, settings, now_ms=self._now(), jitter=jitter, nonce=self._nonce)
        reason = move.changes["last_error"]
        self._ports.log.event("chunk_ended", job_class=settings.name, move=move.name, reason=reason)
        return self.end(move, counter)

    def _not_won(self, job: Job | None, result: Lost | OutputTaken) -> bool:
        """Rule 2: a loser stops. An output that exists while the cursor still matches is a cycle in the job's code."""
        if job is not None and isinstance(result, OutputTaken):
            return self._failed(job, NoProgress())
        self._waste()
        self._tally.add(stats.LOST_RACES)
        return True

    def _waste(self) -> None:
        if self._attempt is not None:
            self._attempt.wasted()


class Attempt:
    """One attempt at a chunk, for the cost: what of it was for nothing if the chunk is not committed.

    Begins when it is made and ends once, by `committed` or `wasted`; what comes after that says nothing more.
    `again`: the message is a redelivery, so the calls may be repeats of a process that was killed.
    """

    def __init__(self, ports: Ports, tally: Tally, context: WorkerContext, *, again: bool) -> None:
        self._ports = ports
        self._tally = tally
        self._context = context
        self._again = again
        self._begun_ms = ports.clock.now_ms()
        self._ended = False

    @property
    def took_ms(self) -> int:
        return self._ports.clock.now_ms() - self._begun_ms

    def committed(self, output: Output | None, *, last: bool) -> None:
        if not self._ended and output is not None:
            self._tally.add(stats.LAST_OUTPUTS if last else stats.OUTPUTS)
        if not self._ended and self._again:
            self._tally.add(stats.WASTED_CALLS, self._context.answered_calls)
        self._ended = True

    def wasted(self) -> None:
        if not self._ended:
            self._tally.add(stats.WASTED_MS, self.took_ms)
            self._tally.add(stats.WASTED_CALLS, self._context.answered_calls)
        self._ended = True


def tell_everyone(error: Exception, invocation: Invocation) -> None:
    """What an error means beyond its job: a refusal holds the shared permits, an exhausted quota pauses the class."""
    ports, upstream = invocation.ports, invocation.upstream
    if isinstance(error, Refused) and error.retry_after_s is not None and upstream is not None:
        ports.limiter.hold(upstream, until_ms=ports.clock.now_ms() + round(error.retry_after_s * 1000))
    if isinstance(error, QuotaExhausted):
        flag = Flag(by=SLUICE, why="the upstream's quota is used up", at_ms=ports.clock.now_ms())
        if ports.ledger.pause_unless_paused(invocation.settings.name, flag):
            invocation.tally.add(stats.QUOTA_PAUSES)


def _output_of(job: Job, chunk: object) -> Output | None:
    """Check what a chunk returned. Raises `NoProgress` or `BadChunk`, which are the job's failure."""
    if not isinstance(chunk, Chunk):
        raise BadChunk("expected a Chunk")
    cursor: object = chunk.next_cursor
    if cursor == job.cursor:
        raise NoProgress()
    if cursor is not None and not (isinstance(cursor, str) and 1 <= _size(cursor) <= MAX_CURSOR_BYTES):
        raise BadChunk(f"cursor: expected a string of 1 to {MAX_CURSOR_BYTES} bytes")
    if chunk.output is None:
        return None
    body = _json(chunk.output)
    if _size(body) > MAX_OUTPUT_BYTES:
        raise BadChunk(f"output: expected at most {MAX_OUTPUT_BYTES} bytes of JSON")
    return Output(cursor=job.cursor, body=body)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        raise BadChunk("output: expected a JSON value") from None


def _size(text: str) -> int:
    try:
        return len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise BadChunk("a string with a lone surrogate, expected well-formed Unicode") from None
