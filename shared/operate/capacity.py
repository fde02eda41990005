"""Whether a backlog drains, when, and what would change it: min(R, W/S) - A (protocol: capacity).

R is the upstream's limit in jobs (limit x share / calls per job), W/S the pool's (slots / service time), A the
arrivals; all in jobs per second, in exact fractions. The arithmetic is that of a tick's rate (`pacer.decide`), so that
plan and drain agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from fractions import Fraction
from math import ceil
from typing import Final

from msgspec import Struct

from shared.domain.numbers import exact
from shared.pacer.decide import SHORTEST_SERVICE_S

LONGEST_DRAIN_S: Final = 10 * 365 * 86_400
"""Ten years: a drain that takes longer is said not to drain, rather than given a date."""

LARGEST_SHOWN: Final = Fraction(10**15)
"""A rate beyond it, which not every float could hold, is shown as this."""

DAY_S: Final = 86_400
"""A pool in which nothing has had to wait for so long is taken never to saturate."""


class Bound(StrEnum):
    """What the capacity is equal to. `matches`: fewer matches are ready than there are slots, and each runs one job."""

    UPSTREAM = "upstream"
    SLOTS = "slots"
    MATCHES = "matches"


class MatchSample(Struct, frozen=True, kw_only=True):
    """Waiting rows that were looked at, the matches that they are of, and how many of them the largest match holds."""

    rows: int
    matches: int
    largest: int


class Shape(Struct, frozen=True, kw_only=True):
    """What tells whether a paced drain is the right tool; each is judged only where it is given.

    `ready_matches` run in parallel at most. `longest_chunk_s` against `chunk_room_s`, what the function's timeout
    leaves; `chunk_source` says where the first is from. `undeferred_s` is how long no row has had to wait for a later
    tick.
    """

    ready_matches: int | None = None
    sample: MatchSample | None = None
    longest_chunk_s: float | None = None
    chunk_source: str = "given"
    chunk_room_s: float | None = None
    undeferred_s: float | None = None


class CapacityPlan(Struct, frozen=True, kw_only=True):
    """`drain_s` and `ticks` are None where it never drains; `net_rate_per_s` is then zero or negative (or next to it).

    Rates in jobs per second; `upstream_rate_per_s` None without an upstream. `sentences`: the verdict, then what would
    change it; `warnings`: why this may be the wrong tool.
    """

    drains: bool
    net_rate_per_s: float
    drain_s: float | None
    binding: Bound
    ticks: int | None
    upstream_rate_per_s: float | None
    slots_rate_per_s: float
    sentences: tuple[str, ...]
    warnings: tuple[str, ...]


class _Rates(Struct, frozen=True, kw_only=True):
    """Jobs per second: what the upstream and the pool allow, and what arrives. `service` is in seconds a job."""

    upstream: Fraction | None
    slots: Fraction
    arrivals: Fraction
    service: Fraction
    binding: Bound

    @property
    def capacity(self) -> Fraction:
        return self.slots if self.upstream is None else min(self.upstream, self.slots)

    @property
    def net(self) -> Fraction:
        return self.capacity - self.arrivals


NO_SHAPE: Final = Shape()


def plan(
    *,
    pending: int,
    arrivals_per_s: float,
    slots: int,
    service_s: float,
    limit_per_s: float | None = None,
    share: float = 1.0,
    calls_per_job: float = 1.0,
    interval_s: float = 60.0,
    shape: Shape = NO_SHAPE,
) -> CapacityPlan:
    """min(limit x share / calls per job, slots / service time) - arrivals, and pending over it.

    2,400 waiting, 10 arrivals, a limit of 40 and 50 slots of 1 s drain in 80 s; with 35 arrivals in 480 s; with 40
    never. `limit_per_s` None: no upstream. Nothing waiting drains at once unless arrivals exceed the capacity.

    ValueError naming the argument: negative or not finite; `limit_per_s`, `calls_per_job`, `interval_s` 0; share not in
    0..1, 0 excluded.
    """
    if pending < 0 or slots < 0:
        raise ValueError(f"pending and slots must not be negative, got {pending} and {slots}")
    if share > 1:
        raise ValueError(f"share must be at most 1, got {share}")
    interval = _above_zero(interval_s, name="interval_s")
    part = _above_zero(share, name="share") / _above_zero(calls_per_job, name="calls_per_job")
    upstream = None if limit_per_s is None else _above_zero(limit_per_s, name="limit_per_s") * part
    rates = _rates(arrivals_per_s, upstream, slots, service_s, shape.ready_matches)
    drain = Fraction(0) if pending == 0 and rates.net >= 0 else None
    if pending > 0 and rates.net > 0:
        drain = pending / rates.net
    if drain is not None and drain > LONGEST_DRAIN_S:
        drain = None
    return CapacityPlan(
        drains=drain is not None,
        net_rate_per_s=_float(rates.net),
        drain_s=None if drain is None else float(drain),
        binding=rates.binding,
        ticks=None if drain is None else ceil(drain / interval),
        upstream_rate_per_s=None if rates.upstream is None else _float(rates.upstream),
        slots_rate_per_s=_float(rates.slots),
        sentences=(_verdict(pending, rates, drain), *_levers(rates)),
        warnings=tuple(_warnings(shape, slots, service_s)),
    )


def _rates(
    arrivals_per_s: float, upstream: Fraction | None, slots: int, service_s: float, ready_matches: int | None
) -> _Rates:
    few = ready_matches is not None and ready_matches < slots
    running = ready_matches if few and ready_matches is not None else slots
    service = max(exact(service_s, name="service_s"), exact(SHORTEST_SERVICE_S, name="service_s"))
    pool = max(0, running) / service
    pool_bound = Bound.MATCHES if few else Bound.SLOTS
    return _Rates(
        upstream=upstream,
        slots=pool,
        arrivals=exact(arrivals_per_s, name="arrivals_per_s"),
        service=service,
        binding=Bound.UPSTREAM if upstream is not None and upstream <= pool else pool_bound,
    )


def _above_zero(value: float, *, name: str) -> Fraction:
    number = exact(value, name=name)
    if number == 0:
        raise ValueError(f"{name} must be above 0, got {value}")
    return number


def _verdict(pending: int, rates: _Rates, drain: Fraction | None) -> str:
    if drain is not None and pending == 0:
        return "Nothing waits, and the arrivals are within the capacity."
    if drain is not None:
        return f"{pending} jobs drain in {_figure(drain)} s at {_figure(rates.net)}/s net of arrivals."
    if rates.net > 0:
        return f"It would take more than ten years at {_figure(rates.net)}/s net of arrivals: it will not drain."
    allow = {Bound.UPSTREAM: "the upstream allows", Bound.SLOTS: "the slots do", Bound.MATCHES: "the ready matches do"}
    arrivals, capacity = _figure(rates.arrivals), _figure(rates.capacity)
    return f"It will not drain: {arrivals} jobs/s arrive, {allow[rates.binding]} {capacity}."


def _levers(rates: _Rates) -> Iterator[str]:
    """What raising each bound does, up to where the other one binds."""
    if rates.binding is Bound.MATCHES:
        yield "Only more ready matches help: each runs one job at a time, so more slots or a higher limit do nothing."
    elif rates.upstream is None:
        yield "More slots or a shorter service time raise the rate; no upstream bounds it."
    elif rates.binding is Bound.SLOTS:
        enough = ceil(rates.upstream * rates.service)
        until = f"up to {enough} slots ({_figure(rates.upstream)} jobs/s), where the upstream binds"
        yield f"More slots raise the rate {until}; raising the upstream's limit does nothing."
    elif rates.upstream == rates.slots:
        yield "Upstream and slots bind at the same rate: raising one alone does nothing."
    else:
        yield "Raising slots does nothing: the upstream binds."
        until = f"up to {_figure(rates.slots)} jobs/s, where the slots bind"
        yield f"A higher limit, a larger share or fewer calls per job raise the rate {until}."
    if rates.net <= 0:
        yield f"Or fewer than {_figure(rates.capacity)} jobs/s may arrive."


def _warnings(shape: Shape, slots: int, service_s: float) -> Iterator[str]:
    """Why this may be the wrong tool: a sentence each, with the number and what to do instead."""
    chunk_s, room_s, sample = shape.longest_chunk_s, shape.chunk_room_s, shape.sample
    if chunk_s is not None and room_s is not None and chunk_s >= room_s:
        yield (
            f"The wrong tool for a job that cannot be cut: a chunk takes {chunk_s:g} s ({shape.chunk_source}) and the"
            f" function's timeout leaves it {room_s:g} s. Make the chunks smaller, or run the job where nothing times"
            " out."
        )
    if sample is not None and sample.largest > 1 and sample.largest * 2 > sample.rows and sample.matches < slots:
        yield (
            f"The wrong tool for one match that holds everything: {sample.largest} of the {sample.rows} waiting rows"
            f" that were looked at (the oldest of each list) are of one match, which runs them one after another, for"
            f" {sample.largest * service_s:g} s at least; {sample.matches} of {slots} slots have something to do. A"
            " finer match id helps, more slots or a higher limit do not."
        )
    if shape.undeferred_s is not None and shape.undeferred_s >= DAY_S:
        hours = shape.undeferred_s / 3600
        yield (
            f"The wrong tool for a pool that never saturates: in {hours:g} hours no row has had to wait for a later"
            " tick. A plain queue with this worker would do, without pacer and ledger."
        )


def _figure(value: Fraction) -> str:
    return f"{_float(value):.6g}"


def _float(value: Fraction) -> float:
    return float(min(max(-LARGEST_SHOWN, value), LARGEST_SHOWN))
