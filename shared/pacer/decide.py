"""The one decision of a tick, pure: how many rows it may admit and why, and what else follows from what was read.

`plan_tick` is the heart: a budget, its split between the lanes, and every number explained (protocol: the tick, step
4). `decide` puts the stage of a recovery, the abort rules and the forecast beside it.

The split has a memory for the fractions (I8, fact F35). All arithmetic is in integer nano-rows (1e-9 row) and exact
fractions: 0.3 rows a tick are 3 in 10, 0.29 x 100 is 29. Each lane has a position in its current row, between 0 and 1.
Every row that is split moves a lane on by its share, and a lane whose position reaches a whole row gets that row. The
two positions sum to one, so exactly one lane is due per row: largest remainder, asked at the end of the row. Asked at
its beginning, a lane that had just been served could end up 1.5 rows ahead at budgets below one row; this way no lane
is ever more than one row ahead or behind. `Carry` is that position seen from now: what each lane has earned and not
had.

What a plan was made from is kept with the tick's line, so that `explain` can make the same plan again: by name,
without defaults and what the line holds anyway, some 300 bytes a tick. A field that a newer version added reads as its
default; one that is gone, or a plan by a version that kept nothing, explains nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from fractions import Fraction
from math import ceil
from typing import Any, Final

from msgspec import NODEFAULT, Struct, field, structs
from msgspec.structs import replace

from shared.domain.control import Carry, Stage, TickLine, override_sources, rate_bound, slots_in_force
from shared.domain.job import LaneCounts
from shared.domain.numbers import NANO, exact
from shared.pacer.abort import Abort, judge, windows_to_judge
from shared.pacer.forecast import Eta, drain_eta
from shared.pacer.measures import expected_rows
from shared.pacer.recovery import stage_of
from shared.pacer.snapshot import Gathered


class LaneSplit(Struct, frozen=True, kw_only=True):
    """Rows to admit per lane, and the memory for the next tick. `carry` sums to the fraction of a row left over."""

    live: int
    recovery: int
    carry: Carry


def earned_and_kept(earned_nrows: int, carry: Carry) -> tuple[int, int]:
    """Whole rows that may be split, and the fraction beyond them in nano-rows: what was earned plus what was carried.

    A carry that does not sum to a fraction of one row (control was edited) counts as the nearest that does.
    """
    return divmod(earned_nrows + _fraction_of(carry), NANO)


def split(
    *, earned_nrows: int, carry: Carry, live_share: float | Fraction, ceiling_rows: int, waiting: LaneCounts
) -> LaneSplit:
    """Split what was earned, at most `ceiling_rows`, between the lanes that wait.

    The rows split are B = max(0, min(floor(earned + carry), ceiling)); earnings above a ceiling are dropped, the
    fraction of a row is kept. A lane that wants less than its part lends the rest in this tick and is owed nothing for
    it: its carry becomes 0 and the other's takes the fraction. Rows that neither wants are dropped. Hence
    live + recovery = min(B, waiting), and over any ticks in which both lanes wait each gets its share to within a row.

    ValueError if `earned_nrows` is negative or `live_share` is not in 0..1.
    """
    share = exact(live_share, name="live_share")
    if share > 1:
        raise ValueError(f"live_share must be at most 1, got {live_share}")
    if earned_nrows < 0:
        raise ValueError(f"earned_nrows must not be negative, got {earned_nrows}")
    whole, fraction = earned_and_kept(earned_nrows, carry)
    budget = max(0, min(whole, ceiling_rows))
    reached = _position(carry, share) + int(share * budget * NANO)
    live_part = min(reached // NANO, budget)
    left = reached - live_part * NANO - _ahead(share, fraction)
    return _lend(budget, live_part, waiting, share, kept=Carry(live=left, recovery=fraction - left))


def _lend(budget: int, live_part: int, waiting: LaneCounts, share: Fraction, *, kept: Carry) -> LaneSplit:
    """Only a lane that gives up a whole row loses its memory, or a lane that is idle now and then would be forgiven
    its debts for nothing, and could take every row at budgets below one row a tick."""
    recovery_part = budget - live_part
    live = min(waiting.live, max(live_part, budget - waiting.recovery))
    recovery = min(waiting.recovery, budget - live)
    fraction = kept.live + kept.recovery
    live_lends, recovery_lends = waiting.live < live_part, waiting.recovery < recovery_part
    if live_lends and recovery_lends:
        kept = Carry(live=int(share * fraction), recovery=fraction - int(share * fraction))
    elif live_lends:
        kept = Carry(live=0, recovery=fraction)
    elif recovery_lends:
        kept = Carry(live=fraction, recovery=0)
    return LaneSplit(live=live, recovery=recovery, carry=kept)


def _fraction_of(carry: Carry) -> int:
    return min(max(0, carry.live + carry.recovery), NANO - 1)


def _ahead(share: Fraction, fraction: int) -> int:
    """Nano-rows that the live lane will earn until the row now begun is whole."""
    return int(share * (NANO - fraction))


def _position(carry: Carry, share: Fraction) -> int:
    """Where the live lane stands in its row, 0..NANO. The bounds matter only after the share was changed."""
    return min(max(0, carry.live + _ahead(share, _fraction_of(carry))), NANO)


SHORTEST_SERVICE_S: Final = 0.001
"""A service time below this is not believed: the slots would bound nothing."""


class RateBinding(StrEnum):
    """Which of its bounds the rate is equal to."""

    UPSTREAM = "upstream"
    SLOTS = "slots"
    OVERRIDE = "override"
    STAGED = "staged"


class Binding(StrEnum):
    """What kept the tick from admitting more."""

    EDGE = "edge"
    LEVEL = "level"
    MAX_INFLIGHT = "max_inflight"
    WAITING = "waiting"
    PAUSED = "paused"
    RESUMED = "resumed"


class Snapshot(Struct, frozen=True, kw_only=True):
    """What a tick knows when it decides. Plain values; durations in seconds, rates in rows or calls per second.

    `ready_matches` None: not counted, the concurrency alone bounds the slots. `upstream_rate_per_s` None: a class
    without an upstream. `planned_at_ms` is when the last tick was planned, None before the first, which earns one
    interval. `waiting` counts eligible rows only. `in_flight` is what the index shows,
    `unseen` what it may not show yet: only the cap counts that, or rows that it does show would count twice. `paused`
    means that control does not admit, `planned` that an earlier owner of this run planned it already. `returned` rows
    of the last live allowance admitted nobody, `expected_live` ones are to be kept for what comes before the next tick.
    `staged_share` is the part of the rate that a staged recovery lets through, None outside of one.
    `sources` says of a field where its value came from, for `explain`: {"service_s": "p50 of 15 windows"}.
    """

    interval_s: float
    lateness_s: float
    live_share: float
    max_inflight: int
    concurrency: int
    service_s: float
    ready_matches: int | None = None
    upstream_rate_per_s: float | None = None
    upstream_share: float = 1.0
    calls_per_job: float = 1.0
    override_rate_per_s: float | None = None
    staged_share: float | None = None
    planned_at_ms: int | None = None
    carry: Carry = field(default_factory=Carry)
    waiting: LaneCounts = field(default_factory=LaneCounts)
    in_flight: int = 0
    unseen: int = 0
    returned: int = 0
    expected_live: int = 0
    paused: bool = False
    planned: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)


class Factor(Struct, frozen=True, kw_only=True):
    """One number of the decision. An input has its Snapshot field's name; a result's `source` is its formula."""

    name: str
    value: float | None
    source: str


class TickPlan(Struct, frozen=True, kw_only=True):
    """What the tick may do. `live` and `recovery` rows are to be claimed, `granted` ones to be left to submitters:
    together min(`budget`, rows waiting + rows expected).

    `edge_rows`, `level_rows` and `cap_rows` are the three terms whose minimum, at least 0, is the budget; the last two
    are negative where more is in flight than they allow. `carry` and `planned_at_ms` are what control must remember,
    `snapshot` is what all this was decided from.
    """

    rate_per_s: float
    rate_binding: RateBinding
    elapsed_s: float
    budget: int
    live: int
    recovery: int
    granted: int
    carry: Carry
    planned_at_ms: int
    edge_rows: int
    level_rows: int
    cap_rows: int
    binding: Binding
    factors: tuple[Factor, ...]
    snapshot: Snapshot


class _Terms(Struct, frozen=True, kw_only=True):
    """The formula's parts, exact."""

    rate: Fraction
    rate_binding: RateBinding
    elapsed: Fraction
    earned_nrows: int
    edge: int
    level: int
    cap: int


def plan_tick(snapshot: Snapshot, now_ms: int) -> TickPlan:
    """Decide a tick's budget and its split between the lanes.

        rate   = min(upstream rate x share / calls per job, slots / service time, override) x staged share
        slots  = min(ready matches, concurrency)
        budget = max(0, min(rate x elapsed + carry + returned,
                            rate x (interval + lateness + service time) - in flight,
                            max_inflight - in flight - unseen))

    The first term, the edge, is what was earned since the last plan: it rounds down and carries the fraction. The
    second, the level, is what the pool can use until a late next tick, with the jobs that then still run: it rounds
    up, and stops a second tick or one after a long outage. A pause gives 0 and freezes the carry, but not the time:
    nothing is earned while paused. A resumed run gives 0 and leaves the memory that its first owner stored as it is.

    The live rows expected before the next tick share in the split as if they waited, behind those that do: what the
    live lane gets beyond the rows that wait is granted. Rows granted and not spent are earned already, so they come
    back whole, and beside what is earned since: a lane that kept rows for nobody has lent them until this tick.

    ValueError naming the field if a number is negative or not finite, or a share is above 1.
    """
    terms = _terms(snapshot, now_ms)
    budget, live, recovery, granted, carry = 0, 0, 0, 0, snapshot.carry
    if not (snapshot.planned or snapshot.paused):
        budget = max(0, min(terms.edge, terms.level, terms.cap))
        parts = split(
            earned_nrows=terms.earned_nrows,
            carry=snapshot.carry,
            live_share=snapshot.live_share,
            ceiling_rows=min(terms.level, terms.cap),
            waiting=replace(snapshot.waiting, live=snapshot.waiting.live + snapshot.expected_live),
        )
        live, recovery, carry = min(parts.live, snapshot.waiting.live), parts.recovery, parts.carry
        granted = parts.live - live
    return TickPlan(
        rate_per_s=float(terms.rate),
        rate_binding=terms.rate_binding,
        elapsed_s=float(terms.elapsed),
        budget=budget,
        live=live,
        recovery=recovery,
        granted=granted,
        carry=carry,
        planned_at_ms=snapshot.planned_at_ms if snapshot.planned and snapshot.planned_at_ms is not None else now_ms,
        edge_rows=terms.edge,
        level_rows=terms.level,
        cap_rows=terms.cap,
        binding=_binding(snapshot, terms, budget, claimed=live + recovery),
        factors=tuple(_factors(snapshot, terms, budget)),
        snapshot=snapshot,
    )


def _terms(snapshot: Snapshot, now_ms: int) -> _Terms:
    rate, rate_binding = _rate(snapshot)
    elapsed = exact(snapshot.interval_s, name="interval_s")
    if snapshot.planned_at_ms is not None:
        elapsed = Fraction(max(0, now_ms - snapshot.planned_at_ms), 1000)
    horizon = (
        exact(snapshot.interval_s, name="interval_s")
        + exact(snapshot.lateness_s, name="lateness_s")
        + exact(snapshot.service_s, name="service_s")
    )
    earned_nrows = int(rate * elapsed * NANO) + snapshot.returned * NANO
    return _Terms(
        rate=rate,
        rate_binding=rate_binding,
        elapsed=elapsed,
        earned_nrows=earned_nrows,
        edge=earned_and_kept(earned_nrows, snapshot.carry)[0],
        level=ceil(rate * horizon) - snapshot.in_flight,
        cap=snapshot.max_inflight - snapshot.in_flight - snapshot.unseen,
    )


def _rate(snapshot: Snapshot) -> tuple[Fraction, RateBinding]:
    """The smallest of the bounds there are; of equal ones the first. The slots always are one, and a staged recovery
    lets only a part of it through."""
    bounds: list[tuple[Fraction, RateBinding]] = []
    calls_per_job = exact(snapshot.calls_per_job, name="calls_per_job")
    if snapshot.upstream_rate_per_s is not None and calls_per_job > 0:
        upstream_rate = exact(snapshot.upstream_rate_per_s, name="upstream_rate_per_s")
        share = exact(snapshot.upstream_share, name="upstream_share")
        if share > 1:
            raise ValueError(f"upstream_share must be at most 1, got {snapshot.upstream_share}")
        bounds.append((upstream_rate * share / calls_per_job, RateBinding.UPSTREAM))
    service = max(exact(snapshot.service_s, name="service_s"), exact(SHORTEST_SERVICE_S, name="service_s"))
    bounds.append((_slots(snapshot) / service, RateBinding.SLOTS))
    if snapshot.override_rate_per_s is not None:
        bounds.append((exact(snapshot.override_rate_per_s, name="override_rate_per_s"), RateBinding.OVERRIDE))
    smallest = min(bounds, key=lambda bound: bound[0])
    if snapshot.staged_share is None:
        return smallest
    share = exact(snapshot.staged_share, name="staged_share")
    if share > 1:
        raise ValueError(f"staged_share must be at most 1, got {snapshot.staged_share}")
    return smallest[0] * share, RateBinding.STAGED


def _slots(snapshot: Snapshot) -> int:
    ready = snapshot.concurrency if snapshot.ready_matches is None else snapshot.ready_matches
    return max(0, min(ready, snapshot.concurrency))


def _binding(snapshot: Snapshot, terms: _Terms, budget: int, *, claimed: int) -> Binding:
    """Of equal terms the edge is named, then the level. With nothing waiting, nothing else can be said to bind."""
    if snapshot.planned:
        return Binding.RESUMED
    if snapshot.paused:
        return Binding.PAUSED
    if claimed == snapshot.waiting.total < budget or snapshot.waiting.total == 0:
        return Binding.WAITING
    if terms.edge <= min(terms.level, terms.cap):
        return Binding.EDGE
    return Binding.LEVEL if terms.level <= terms.cap else Binding.MAX_INFLIGHT


_CONFIGURED: Final = ("interval_s", "lateness_s", "live_share", "max_inflight", "concurrency", "upstream_share")

_OBSERVED: Final = (
    *("service_s", "ready_matches", "upstream_rate_per_s", "calls_per_job", "override_rate_per_s", "staged_share"),
)


def _factors(snapshot: Snapshot, terms: _Terms, budget: int) -> Iterator[Factor]:
    """Inputs first, then the results, each after those that it is made of."""

    def given(name: str, value: float | None, source: str) -> Factor:
        return Factor(name=name, value=value, source=snapshot.sources.get(name, source))

    for name in _CONFIGURED:
        yield given(name, getattr(snapshot, name), "configured")
    for name in _OBSERVED:
        value: float | None = getattr(snapshot, name)
        yield given(name, value, "does not apply" if value is None else "observed")
    yield given("in_flight", snapshot.in_flight, "index")
    yield given("unseen", snapshot.unseen, "recent admissions and moves that the index may not show")
    yield given("returned", snapshot.returned, "what nobody spent of the last live allowance")
    yield given("expected_live", snapshot.expected_live, "arrivals since the last plans, and a margin")
    yield given("waiting_live", snapshot.waiting.live, "index")
    yield given("waiting_recovery", snapshot.waiting.recovery, "index")
    yield given("carry_live_nrows", snapshot.carry.live, "control")
    yield given("carry_recovery_nrows", snapshot.carry.recovery, "control")
    first = snapshot.planned_at_ms is None
    yield given("elapsed_s", float(terms.elapsed), "one interval: the first tick" if first else "since the last plan")
    results: tuple[tuple[str, float, str], ...] = (
        ("slots", _slots(snapshot), "min(ready_matches, concurrency)"),
        ("rate_per_s", float(terms.rate), f"bound by {terms.rate_binding}"),
        ("edge_rows", terms.edge, "floor(rate_per_s x elapsed_s + carry) + returned"),
        ("level_rows", terms.level, "ceil(rate_per_s x (interval_s + lateness_s + service_s)) - in_flight"),
        ("cap_rows", terms.cap, "max_inflight - in_flight - unseen"),
        ("budget", budget, _budget_source(snapshot)),
    )
    for name, result, formula in results:
        yield Factor(name=name, value=result, source=formula)


def _budget_source(snapshot: Snapshot) -> str:
    if snapshot.planned:
        return "0: an earlier owner planned this run"
    if snapshot.paused:
        return "0: paused"
    return "max(0, min(edge_rows, level_rows, cap_rows))"


_ON_THE_LINE: Final = frozenset({"waiting", "in_flight", "paused"})
"""Fields that the line holds anyway."""

_RENAMED: Final = {"resumed": "planned"}
"""What facts of a version before call a field, and what it is called now."""


class Explained(Struct, frozen=True, kw_only=True):
    """A tick's line, and the plan that its facts give again."""

    line: TickLine
    snapshot: Snapshot
    plan: TickPlan


def pack(snapshot: Snapshot) -> str:
    """The snapshot as compact JSON."""
    kept = {
        each.name: _plain(getattr(snapshot, each.name))
        for each in structs.fields(Snapshot)
        if each.name not in _ON_THE_LINE and getattr(snapshot, each.name) != _default(each)
    }
    return json.dumps(kept, separators=(",", ":"), allow_nan=False)


def explain(line: TickLine) -> Explained | None:
    """The plan of this tick, made again; None where the line does not say enough."""
    snapshot = _unpack(line)
    if snapshot is None:
        return None
    return Explained(line=line, snapshot=snapshot, plan=plan_tick(snapshot, line.at_ms))


def _unpack(line: TickLine) -> Snapshot | None:
    known = frozenset(Snapshot.__struct_fields__)
    try:
        kept = json.loads(line.facts or "{}")
        given: dict[str, Any] = {name: kept[name] for name in known.intersection(kept)}
        given |= {now: kept[then] for then, now in _RENAMED.items() if then in kept}
        if "carry" in given:
            given["carry"] = Carry(live=given["carry"][0], recovery=given["carry"][1])
        return Snapshot(waiting=line.waiting, in_flight=line.in_flight, paused=line.paused, **given)
    except (ValueError, TypeError, LookupError):
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, Carry):
        return [value.live, value.recovery]
    return value if isinstance(value, (int, float)) or value is None else dict(value)


def _default(each: structs.FieldInfo) -> Any:
    if each.default_factory is not NODEFAULT:
        return each.default_factory()
    return each.default


# -- the one decision of a tick


class Decision(Struct, frozen=True, kw_only=True):
    """All that a tick decides, before it has admitted anything.

    `stage` is where a staged recovery stands, None at full rate. `abort` says why the class must pause itself now; its
    plan then admits nothing. `spend_usd` is what the abort rules looked at, None where they were not asked.
    """

    stage: Stage | None
    abort: Abort | None
    spend_usd: float | None
    plan: TickPlan
    forecast: Eta


def decide(gathered: Gathered, *, plans: bool) -> Decision:
    """Stage, abort, plan and forecast of one tick. `plans` False: this tick only sweeps, and is not judged.

    A paused class is not judged either: an operator's pause is never replaced.
    """
    control = gathered.control
    stage = stage_of(gathered)
    abort, spend_usd = None, None
    if plans and control.admits:
        windows = [] if stage is not None else windows_to_judge(gathered)
        spend_usd = sum(window.spend_usd for window in windows)
        abort = judge(windows, gathered.settings.abort)
    stage = stage if abort is None else None
    paused = not control.admits or abort is not None
    plan = plan_tick(_snapshot_of(gathered, stage, paused=paused, planned=not plans), gathered.now_ms)
    forecast = drain_eta(
        control.history,
        now_ms=gathered.now_ms,
        pending=gathered.pending,
        paused=paused,
        later=gathered.counts.later,
    )
    return Decision(stage=stage, abort=abort, spend_usd=spend_usd, plan=plan, forecast=forecast)


def _snapshot_of(gathered: Gathered, stage: Stage | None, *, paused: bool, planned: bool) -> Snapshot:
    settings, control, upstream, measures = gathered.settings, gathered.control, gathered.upstream, gathered.measures
    return Snapshot(
        interval_s=settings.tick_interval_s,
        lateness_s=settings.lateness_s,
        live_share=settings.live_share,
        max_inflight=settings.max_inflight,
        concurrency=slots_in_force(control.slots, configured=settings.slots),
        upstream_rate_per_s=None if upstream is None else upstream.rate_per_s,
        upstream_share=settings.upstream_share if upstream is None else upstream.share,
        calls_per_job=measures.calls_per_job.value,
        service_s=measures.service_s.value,
        override_rate_per_s=rate_bound(control.rate, now_ms=gathered.now_ms),
        staged_share=None if stage is None else stage.share,
        planned_at_ms=control.planned_at_ms,
        carry=control.carry,
        waiting=gathered.counts.eligible,
        in_flight=len(gathered.inflight),
        unseen=gathered.unseen_rows,
        returned=gathered.allowance.unspent,
        expected_live=expected_rows(gathered.arrived, interval_s=settings.tick_interval_s),
        paused=paused,
        planned=planned,
        sources=_sources(gathered, stage),
    )


def _sources(gathered: Gathered, stage: Stage | None) -> dict[str, str]:
    measures, control = gathered.measures, gathered.control
    sources = {"calls_per_job": measures.calls_per_job.source, "service_s": measures.service_s.source}
    if gathered.upstream is not None:
        sources["upstream_rate_per_s"] = gathered.upstream.source
    if stage is not None:
        sources["staged_share"] = f"staged recovery since {stage.cause}: {stage.share:.0%} of the calculated rate"
    return sources | override_sources(control.rate, control.slots, now_ms=gathered.now_ms)
