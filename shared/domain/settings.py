"""The validated settings as plain values: what `shared.domain.configuration` makes of `sluice.toml`.

A field is what a key is read into, and its default is the key's. `shared.domain.keys` says of each key what it accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import ceil, isfinite
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from shared.domain.job import Lane

VISIBILITY_MARGIN_S: Final = 10
"""Queue visibility beyond the function timeout: small, because a crash locks its match for all of it (fact F7)."""

SWEEP_MARGIN_S: Final = 20
"""A row is re-sent only after its message's visibility plus this (B in rule 3)."""

LOCK_MARGIN_S: Final = 10
"""How long the class lock outlasts the pacer's own end, and how long before that end it stops claiming (rule 4)."""

LEASE_MARGIN_S: Final = 2
"""Ends a worker's lease before the queue's visibility does: their clocks differ a little (rule 4)."""

MIN_LANE_SLOTS: Final = 2

MAX_LANE_SLOTS: Final = 1000
"""The smallest and the largest MaximumConcurrency that SQS event source mappings accept."""


class Consequence(StrEnum):
    """What an upstream's answer means for the job and for the shared rate (protocol: rate)."""

    REFUSE = "refuse"
    HOLD = "hold"
    EXHAUSTED = "exhausted"
    REJECT = "reject"


class RatePolicy(StrEnum):
    """How far a refused window lowers the learned rate: by the factor, or to just under what was accepted in it."""

    MEASURED = "measured"
    HALVING = "halving"


class UpstreamApi(StrEnum):
    """How an upstream is spoken to: one POST of JSON, or Amazon Bedrock's Converse."""

    HTTP = "http"
    CONVERSE = "bedrock-converse"


class UpstreamSettings(Struct, frozen=True, kw_only=True):
    """A rate-limited dependency, shared by one or more job classes.

    Of `endpoint` and `model` there is the one that `api` needs: Converse asks the model, in the stack's own region, for
    answers of `max_tokens` at most.
    `errors` maps an HTTP status to its consequence; other 4xx are the job's failure, other 5xx and transport errors
    are `UpstreamFailed`. `burst_calls` is how many calls may start at once; 1 means evenly spaced. The learned rate
    moves between `floor_share` of the limit and the limit (`pacer.rate`): no decrease below `decrease_factor` of the
    rate refused, `increase_step` (a share of the rate) as the first step beyond what is known to be good.
    `usd_per_million_*_tokens` is what it charges; None: not known, and then no cost has it in it.
    """

    name: str
    endpoint: str = ""
    limit_per_s: float
    api: UpstreamApi = UpstreamApi.HTTP
    model: str = ""
    max_tokens: int = 1024
    burst_calls: int = 1
    refusal_threshold: float = 0.02
    rate_policy: RatePolicy = RatePolicy.MEASURED
    decrease_factor: float = 0.5
    increase_step: float = 0.035
    floor_share: float = 0.02
    timeout_s: float = 10.0
    usd_per_million_input_tokens: float | None = None
    usd_per_million_output_tokens: float | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    """The share of each class that calls it; empty: only the class at hand does."""
    errors: Mapping[int, Consequence] = field(
        default_factory=lambda: {429: Consequence.REFUSE, 503: Consequence.HOLD, 529: Consequence.HOLD}
    )
    learned_per_s: float | None = None
    """The rate in force, for whoever has read it. None: the limit."""

    @property
    def permits_per_s(self) -> float:
        return self.limit_per_s if self.learned_per_s is None else self.learned_per_s


class RetrySettings(Struct, frozen=True, kw_only=True):
    """How a job's own failures, its process's crashes and its message's deaths are bounded, each on its own (I9)."""

    max_attempts: int = 5
    base_delay_s: float = 30.0
    max_delay_s: float = 3600.0
    max_crashes: int = 3
    max_transport_deaths: int = 5


class AbortRules(Struct, frozen=True, kw_only=True):
    """When a drain stops by itself (`pacer.abort`). None switches a rule off.

    `age_windows` how many windows running the oldest age may rise while the backlog does not fall; `excess_share` how
    far calls may exceed the allowance; `retry_share` how much of the recovery margin (starts less arrivals) growing
    retries may take; `dead_share` of the rows that ended; `spend_usd` over the windows judged, the upstream's tokens
    included where it says their price, off unless it is set.
    """

    age_windows: int | None = 2
    excess_share: float | None = 0.05
    retry_share: float | None = 1.0
    dead_share: float | None = 0.2
    spend_usd: float | None = None

    def __post_init__(self) -> None:
        for name in ("age_windows", "excess_share", "retry_share", "dead_share", "spend_usd"):
            value = getattr(self, name)
            if value is not None and (not isfinite(value) or value < 0):
                raise ValueError(f"{name} must be finite and not negative, got {value}")
        if self.age_windows == 0:
            raise ValueError("age_windows must be at least 1, got 0")

    @classmethod
    def off(cls) -> AbortRules:
        return cls(age_windows=None, excess_share=None, retry_share=None, dead_share=None, spend_usd=None)


class Schedule(StrEnum):
    """What a class's own schedule does: admit a run at each tick, or only repair what another trigger has admitted."""

    RUNS = "runs"
    REPAIR = "repair"


class WebhookSettings(Struct, frozen=True, kw_only=True):
    """How the public webhook judges a request's age, how many the stage lets through, how often its secret rotates."""

    max_age_s: int = 120
    max_ahead_s: int = 30
    requests_per_s: int = 20
    burst: int = 100
    rotation_days: int = 30


class ClassSettings(Struct, frozen=True, kw_only=True):
    """One job class: the unit of pacing. Durations in seconds, `declared_*` serve until they are measured;
    with `measured` off they always do, for a class whose jobs are too unlike one another for an average.
    With `staged_recovery` off a class is back at its full rate with the first tick after a pause or an outage.

    `webhook` opens the class to the public webhook; with `schedule` REPAIR nothing else admits its runs.
    `eta_objective_s` and `age_objective_s` are what alarms hold the drain and its oldest eligible row to.
    `options` is what only the class's kind understands: it belongs to the deployment, where a payload is a producer's.
    """

    name: str
    kind: str
    upstream: str | None = None
    upstream_share: float = 1.0
    tick_interval_s: int = 60
    schedule: Schedule = Schedule.RUNS
    webhook: bool = False
    lateness_s: float = 15.0
    live_window_s: int = 300
    live_share: float = 0.3
    max_inflight: int = 1000
    slots: int = 10
    batch_size: int = 1
    function_timeout_s: int = 120
    memory_mb: int = 512
    chunk_margin_s: float = 10.0
    max_hops: int = 50
    priorities: int = 1
    ordered: bool = False
    measured: bool = True
    staged_recovery: bool = True
    declared_calls_per_job: float = 1.0
    declared_service_s: float = 1.0
    declared_chunk_s: float = 1.0
    eta_objective_s: float = 14_400.0
    age_objective_s: float = 3_600.0
    retry: RetrySettings = field(default_factory=RetrySettings)
    abort: AbortRules = field(default_factory=AbortRules)
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def visibility_s(self) -> int:
        return self.function_timeout_s + VISIBILITY_MARGIN_S

    @property
    def sweep_after_s(self) -> int:
        """B of rule 3."""
        return self.visibility_s + SWEEP_MARGIN_S

    @property
    def max_receives(self) -> int:
        """Throttles and crashes together must not reach the DLQ before the row has judged them (fact F10)."""
        return max(5, self.retry.max_crashes + 3)

    def lane_slots(self, lane: Lane) -> int:
        """The lane's MaximumConcurrency. The two sum to `slots` and neither is below what SQS accepts."""
        live = min(max(MIN_LANE_SLOTS, round(self.slots * self.live_share)), self.slots - MIN_LANE_SLOTS)
        return live if lane is Lane.LIVE else self.slots - live


class MatchEndedSettings(Struct, frozen=True, kw_only=True):
    """Which event a match's end is, and the classes of the jobs that it leaves behind ("" for none)."""

    bus: str = "default"
    source: str = ""
    replay_class: str = ""
    screenshot_class: str = ""


class GuildReportsSettings(Struct, frozen=True, kw_only=True):
    """Every Monday `at` ("HH:MM", UTC) a report of the week before, for each guild of the table."""

    job_class: str
    guilds_table: str
    at: str = "03:00"


class SessionSweepSettings(Struct, frozen=True, kw_only=True):
    """Every day `at` ("HH:MM", UTC) one sweep."""

    job_class: str
    at: str = "04:00"


class ProducerSettings(Struct, frozen=True, kw_only=True):
    """What submits jobs by itself. None: it is not deployed."""

    match_ended: MatchEndedSettings | None = None
    guild_reports: GuildReportsSettings | None = None
    session_sweep: SessionSweepSettings | None = None


class Settings(Struct, frozen=True, kw_only=True):
    """Everything `sluice.toml` says."""

    namespace: str = "Sluice"
    pacer_timeout_s: int = 45
    pacer_memory_mb: int = 512
    customer_managed_key: bool = False
    upstreams: Mapping[str, UpstreamSettings] = field(default_factory=dict)
    classes: Mapping[str, ClassSettings] = field(default_factory=dict)
    webhook: WebhookSettings = field(default_factory=WebhookSettings)
    producers: ProducerSettings = field(default_factory=ProducerSettings)

    @property
    def webhook_classes(self) -> frozenset[str]:
        """The classes that the webhook may admit runs of. None of them: no webhook is deployed."""
        return frozenset(name for name, each in self.classes.items() if each.webhook)

    def upstream_of(self, job_class: ClassSettings) -> UpstreamSettings | None:
        """The class's upstream, with the shares of all classes that call it."""
        if job_class.upstream is None:
            return None
        shares = {
            each.name: each.upstream_share for each in self.classes.values() if each.upstream == job_class.upstream
        }
        return replace(self.upstreams[job_class.upstream], shares=shares)


CALLS_PER_SHARD: Final = 500.0
"""Permits a second of one item at most. Half of what it takes in writes: a question that finds no room is one, too."""


def shards_for(limit_per_s: float, *, calls_per_shard: float = CALLS_PER_SHARD) -> int:
    """How many items the permits of an upstream with this declared limit lie in: one item takes about 1,000 writes/s.

    Each of N items (shards) is a GCRA of its own (`worker.permits`) with 1/N of the rate and its part of the burst,
    which is at least one call. Over all of them a window holds what it would hold with one: the limit and the declared
    burst. A worker goes round the items from a random one, without asking the others. Turns and not draws: with these
    some item always falls idle while others have lines.

    N follows from the declared limit and burst alone, so the learned rate moves without moving permits. A deployment
    may change it. Items keep their keys and arrival times then, and while workers of both deployments run, an item that
    both know starts calls at the faster of their two rates. From n items for a limit L to m for M, all items together
    start

        max(L, M) calls a second, and less than `CALLS_PER_SHARD` more, for as long as workers of the old deployment run

    and nothing more at all where the items that both know are no faster in the smaller deployment (400 to 800 calls/s:
    1 to 2 items of 400). A hold by an old worker reaches the items that it knows.
    """
    return max(1, ceil(limit_per_s / calls_per_shard))


def shards_of(upstream: UpstreamSettings, *, calls_per_shard: float = CALLS_PER_SHARD) -> int:
    """How many items its permits lie in: what the limit needs, and no more than the burst has calls for.

    Where the burst is smaller the items are hotter and the allowance holds all the same; `sluice.toml` may not say so.
    """
    return min(upstream.burst_calls, shards_for(upstream.limit_per_s, calls_per_shard=calls_per_shard))
