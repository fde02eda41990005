"""What the use cases need of the world. Each method says what is atomic about it.

Adapters: `shared.aws` (DynamoDB, SQS, S3, CloudWatch) and `shared.memory` (for the simulator). One contract suite runs
over all of them. In the simulator every call of a port is a point of interleaving and a point of crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from shared.domain.control import (
    Allowance,
    Control,
    RateOverride,
    Run,
    RunKey,
    SlotsOverride,
    TakeResult,
    TickClose,
    TickMemory,
)
from shared.domain.job import Created, Flag, Job, Lane, Output
from shared.domain.lifecycle import Move, MoveResult
from shared.domain.messages import BatchAnswer, Delivery, Outgoing
from shared.domain.ordering import Match, MatchStep, StepResult
from shared.domain.settings import UpstreamSettings
from shared.domain.stats import StatsWindow
from shared.domain.upstream import Learned, Reservation
from shared.domain.work_index import IndexPage

Item = TypeVar("Item")
Result = TypeVar("Result")


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch, UTC."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block the calling thread; 0 or less returns at once."""
        ...


class Parallel(Protocol):
    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Run `work` on every item concurrently; results in order. The first error is raised once all have ended."""
        ...


RESERVED: Final = frozenset(
    {
        *("args", "asctime", "created", "exc_info", "exc_text", "filename", "funcName", "levelname", "levelno"),
        *("lineno", "message", "module", "msecs", "msg", "name", "pathname", "process", "processName"),
        *("relativeCreated", "stack_info", "taskName", "thread", "threadName"),
        *("event", "exception", "exception_name", "level", "location", "sampling_rate", "service", "stack_trace"),
        *("timestamp", "xray_trace_id"),
    }
)
"""Names that a log line's fields must not have: the line itself, its record or the logger's own keys have them. For
some Python's logging raises, others silently replace what the line says of itself. Both adapters refuse all of them, so
that a name that production cannot write never passes in a simulation."""


def check_fields(names: Iterable[str]) -> None:
    """ValueError naming the fields that no line may have."""
    if bad := sorted(RESERVED.intersection(names)):
        raise ValueError(f"log fields that every line has already: {', '.join(bad)}")


class Log(Protocol):
    def event(self, name: str, **fields: int | float | str | bool | None) -> None:
        """One structured line with a stable name: counts, classes and reason codes only (I12).

        ValueError for a field that every line has already.
        """
        ...


class Metrics(Protocol):
    def emit(self, job_class: str, values: Mapping[str, float]) -> None:
        """Publish one set of values under the one dimension `JobClass`. ValueError for a value that is not finite."""
        ...


class Ledger(Protocol):
    """The one table. Reads of rows and control are consistent; reads of the index are not (fact F17).

    Every method raises `LedgerUnavailable` when the store does not answer or throttles: nothing is known of the write.
    """

    # -- rows

    def create(self, jobs: Sequence[Job]) -> list[Created]:
        """Create each row only if its id is absent. Each job is atomic, the sequence is not; answers in order."""
        ...

    def read_job(self, job_id: str) -> Job | None: ...

    def outputs(self, job_id: str) -> list[Output]:
        """A job's outputs, in byte order of their cursors; all pages."""
        ...

    def move(self, move: Move) -> MoveResult:
        """One conditional write (one transaction with the output). Our own write whose answer was lost is `Won`."""
        ...

    # -- ordered matches

    def read_match(self, job_class: str, match_id: str) -> Match:
        """The order of a match; one that nobody has entered is empty."""
        ...

    def job_id_at(self, match: Match, seq: int) -> str | None:
        """The job that stands at a place of the match, or None."""
        ...

    def step_match(self, step: MatchStep, *, spends: Allowance | None = None) -> StepResult:
        """The order, every move's row and output, the entering row, and one row of the grant that it `spends`: one
        transaction.

        `Lost` and `OutputTaken` speak of the first move; everything else that was not as read is `MatchChanged`.
        """
        ...

    # -- the index

    def count(self, partition: str, *, low: str, high: str) -> int:
        """Rows at low <= position < high; all pages."""
        ...

    def page(self, partition: str, *, low: str, high: str, limit: int, resume: str | None = None) -> IndexPage:
        """One page of rows at low <= position < high, in order."""
        ...

    # -- runs, lock, control

    def admit_run(self, key: RunKey, *, source: str, now_ms: int) -> bool:
        """Put the run row if it is absent: the one point of dedup (I6). True where this call created it."""
        ...

    def take_run(self, key: RunKey, *, owner: str, now_ms: int, until_ms: int) -> TakeResult:
        """Lock the class until `until_ms` and own the run, in one transaction (rule 5). An expired lock is free."""
        ...

    def plan_run(self, key: RunKey, *, owner: str, plan: TickMemory) -> bool:
        """Mark an open run planned, write what planning spent to control, take the record of the last allowance away:
        one transaction, if `owner` owns run and lock.

        False if the lock or the run is someone else's, or the run is not open any more.
        """
        ...

    def skip_run(self, key: RunKey, *, reason: str) -> bool:
        """Close an open run that no tick has owned as skipped."""
        ...

    def close_run(self, key: RunKey, *, owner: str, close: TickClose) -> bool:
        """Close the run, add the tick to control, release the lock and grant the new allowance: one transaction, if
        `owner` still owns both. Paused or halted by now: `close.without_grant`."""
        ...

    def drop_lock(self, key: RunKey, *, owner: str) -> None:
        """Let go of the class lock without closing the run, if `owner` holds it for this run: the run stays resumable.

        For a tick that ends in an orderly way before its first claim. Later nothing but the lock's own end frees it.
        """
        ...

    def read_run(self, key: RunKey) -> Run | None: ...

    def open_runs(self, job_class: str, *, minutes_ms: Sequence[int]) -> list[Run]:
        """The runs of these minutes that nobody has closed, oldest first: never owned, or owned by the dead too."""
        ...

    def read_control(self, job_class: str) -> Control: ...

    def set_pause(self, job_class: str, flag: Flag | None) -> None:
        """Set or clear the pause flag; nothing else of control changes. A pause or halt ends the live allowance in the
        same transaction (I10)."""
        ...

    def pause_unless_paused(self, job_class: str, flag: Flag) -> bool:
        """Set the pause flag if there is none: Sluice's own pause never replaces an operator's, who, when and why."""
        ...

    def set_halt(self, job_class: str, flag: Flag | None) -> None: ...

    def resume(self, job_class: str, flag: Flag) -> None:
        """End pause and halt, and keep who wanted that: one write. What the allowance was does not come back."""
        ...

    def switch_webhook(self, job_class: str, flag: Flag, *, closed: bool) -> None:
        """Let the webhook admit runs of the class or not; the flag says who wanted that."""
        ...

    def set_rate(self, job_class: str, override: RateOverride) -> None:
        """Set the operator's bound of the rate; nothing else of control changes."""
        ...

    def set_slots(self, job_class: str, override: SlotsOverride, *, before: SlotsOverride | None) -> bool:
        """Replace the operator's slots if they still are as in `before`: of two operators one wins."""
        ...

    # -- the live allowance

    def read_allowance(self, job_class: str) -> Allowance: ...

    def withdraw(self, job_class: str) -> Allowance:
        """End the grant: nothing more of it is spent. Its record stays until a plan takes it away."""
        ...

    def spend(self, allowance: Allowance, jobs: Sequence[Job]) -> bool:
        """Create the rows and take as many from this very grant: one transaction, or nothing and False. Then too few
        were left, an id exists, or others were at it."""
        ...

    def miss(self, job_class: str, *, rows: int) -> None:
        """Add to the record rows that found nothing left. At most once, as statistics are."""
        ...

    # -- the learned rate

    def read_learned(self, upstream: str) -> Learned | None: ...

    def store_learned(self, upstream: str, learned: Learned, *, before: Learned | None) -> bool:
        """Replace what is stored if nobody has decided on a window since `before` was read (one decrease a window)."""
        ...

    # -- stats

    def add_stats(self, job_class: str, *, window_ms: int, shard: int, counters: Mapping[str, int]) -> None:
        """Add to the counters of one window's shard. At most once: a lost answer is not tried again."""
        ...

    def read_stats(self, job_class: str, *, windows_ms: Sequence[int]) -> list[StatsWindow]:
        """The windows asked for, shards summed, in the order asked; a window nobody wrote to is empty."""
        ...


class WorkQueue(Protocol):
    def send_batch(self, job_class: str, lane: Lane, batch: Sequence[Outgoing]) -> BatchAnswer:
        """One SendMessageBatch of at most 10 entries. Raises `QueueUnavailable`: any of them may have been accepted."""
        ...

    def delete(self, delivery: Delivery) -> None:
        """Acknowledge. An expired receipt is ignored."""
        ...

    def extend(self, delivery: Delivery, *, seconds: int) -> bool:
        """Make the message invisible for `seconds` from now. False if the queue refused."""
        ...


class Limiter(Protocol):
    def reserve(self, upstream: UpstreamSettings, *, calls: int, now_ms: int, latest_ms: int) -> Reservation:
        """Reserve `calls` consecutive permits whose first starts by `latest_ms`, or nothing. Atomic across workers."""
        ...

    def hold(self, upstream: UpstreamSettings, *, until_ms: int) -> None:
        """No permit starts before `until_ms`, for anyone. Never shortens an earlier hold."""
        ...

    def held_until_ms(self, upstream: UpstreamSettings) -> int:
        """The end of the last hold, 0 before the first. Permits that were reserved before it must respect it too."""
        ...


class Upstream(Protocol):
    def call(
        self, upstream: UpstreamSettings, body: Mapping[str, Any], *, idempotency_key: str, timeout_s: float
    ) -> Mapping[str, Any]:
        """One call, no retries. Raises Refused, UpstreamHeld, QuotaExhausted, UpstreamRejected or UpstreamFailed."""
        ...


class Blobs(Protocol):
    """The object store. Raises `StorageUnavailable`, and `ObjectMissing` for a key that does not exist."""

    def read(self, key: str, *, start: int, length: int) -> bytes:
        """At most `length` bytes from `start`; fewer, or none, at the end of the object."""
        ...

    def put_once(self, key: str, body: bytes, *, content_type: str) -> bool:
        """Create the object if the key is free. False where it exists already."""
        ...


class Trigger(Protocol):
    def start(self, key: RunKey) -> None:
        """Ask the pacer for this run's tick; do not wait for it. Raises `TriggerUnavailable`: it may come or not."""
        ...


class Ports(Struct, frozen=True, kw_only=True):
    """The world, as one value that the host wires."""

    clock: Clock
    parallel: Parallel
    log: Log
    metrics: Metrics
    ledger: Ledger
    queue: WorkQueue
    limiter: Limiter
    upstream: Upstream
    blobs: Blobs


Jitter: TypeAlias = Callable[[], float]
"""A number in [0, 1), new at every call: spreads the wake-ups of jobs that were refused together."""
