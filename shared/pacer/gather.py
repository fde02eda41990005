"""The first steps of a tick: settle the learned rate, then read everything that the decision needs, and only read."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from shared.domain import stats
from shared.domain.control import Allowance, Control, RunKey
from shared.domain.settings import LOCK_MARGIN_S, ClassSettings, UpstreamSettings
from shared.domain.stats import StatsWindow
from shared.domain.upstream import Learned, rate_in_force
from shared.pacer.abort import minutes_to_judge
from shared.pacer.cost import minutes_to_price, prices_with
from shared.pacer.measures import measure
from shared.pacer.rate import UpstreamSight, WindowCounts, first, learn_all, undecided
from shared.pacer.snapshot import Gathered, closed_minutes
from shared.ports import Ports
from shared.steps.counting import count_rows, read_inflight

CLAIM_MARGIN_MS = LOCK_MARGIN_S * 1000
"""How long before its end the pacer stops planning and claiming (rule 4): time to send, sweep and close."""


class Tick(Struct, frozen=True, kw_only=True):
    """What every step of a tick is given. `owner` is the invocation's nonce; at `deadline_ms` its process is killed.

    `sweeps_only`: an earlier owner planned this run already, or the class's schedule only repairs (rules 3 and 5).
    """

    ports: Ports
    settings: ClassSettings
    upstream: UpstreamSettings | None
    key: RunKey
    source: str
    owner: str
    deadline_ms: int
    sweeps_only: bool = False

    @property
    def stop_ms(self) -> int:
        return self.deadline_ms - CLAIM_MARGIN_MS


class Settled(Struct, frozen=True, kw_only=True):
    """The learned rate as it stands after this tick, and all classes' calls in the last closed minute."""

    learned: Learned
    calls: int


def settle_rate(tick: Tick) -> Settled | None:
    """Decide on the windows that closed since the last decision, whichever class's tick comes first (one a window).

    Compare and set: the loser reads what the winner decided. None: the class calls no upstream.
    """
    ports, upstream = tick.ports, tick.upstream
    if upstream is None:
        return None
    names = list(upstream.shares) or [tick.settings.name]
    before = ports.ledger.read_learned(upstream.name)
    now_ms = ports.clock.now_ms()
    last_ms = stats.window_of(now_ms) - stats.WINDOW_MS
    minutes_ms = undecided(before, now_ms) or [last_ms]
    counted = ports.parallel.map(lambda name: ports.ledger.read_stats(name, windows_ms=minutes_ms), names)
    sums = _sums(counted, minutes_ms)
    after = learn_all(before or first(upstream), sums, upstream=upstream, now_ms=now_ms)
    if after != before and after.window_ms >= 0 and not ports.ledger.store_learned(upstream.name, after, before=before):
        after = ports.ledger.read_learned(upstream.name) or after
    return Settled(learned=after, calls=sum(window.calls for window in sums if window.start_ms == last_ms))


def gather(tick: Tick, allowance: Allowance, settled: Settled | None) -> Gathered:
    """Read, and nothing else. The allowance was withdrawn before: rows that it admits later no count would have seen.

    Control is read first: a pause that is committed after it waits until this tick has let go of the lock.
    """
    ports, settings = tick.ports, tick.settings
    control = ports.ledger.read_control(settings.name)
    now_ms = ports.clock.now_ms()
    counts = count_rows(ports, settings, now_ms)
    inflight = read_inflight(ports, settings)
    minutes = _minutes(tick, control, now_ms)
    return Gathered(
        settings=settings,
        control=control,
        allowance=allowance,
        upstream=_sight(tick, control, settled),
        measures=measure([minutes[start_ms] for start_ms in closed_minutes(now_ms)], settings, last=control.measures),
        counts=counts,
        inflight=tuple(inflight),
        minutes=minutes,
        now_ms=now_ms,
        prices=prices_with(tick.upstream),
    )


def _minutes(tick: Tick, control: Control, now_ms: int) -> dict[int, StatsWindow]:
    """The counters that measures, abort rules and the cost are made from, in one read."""
    wanted = {*closed_minutes(now_ms), *(minutes_to_price(control, now_ms) or ())}
    if control.admits and not tick.sweeps_only:
        wanted |= minutes_to_judge(tick.settings, control, now_ms)
    windows = tick.ports.ledger.read_stats(tick.settings.name, windows_ms=sorted(wanted, reverse=True))
    return {window.start_ms: window for window in windows}


def _sums(counted: Sequence[Sequence[StatsWindow]], minutes_ms: Sequence[int]) -> list[WindowCounts]:
    """All classes' counters of each minute; `counted` is one list of minutes per class."""
    return [
        WindowCounts(
            start_ms=start_ms,
            calls=stats.total(of_minute, stats.CALLS),
            refusals=stats.total(of_minute, stats.REFUSALS),
            holds=stats.total(of_minute, stats.HOLDS),
        )
        for start_ms, of_minute in zip(minutes_ms, zip(*counted, strict=True), strict=True)
    ]


def _sight(tick: Tick, control: Control, settled: Settled | None) -> UpstreamSight | None:
    upstream = tick.upstream
    if upstream is None or settled is None:
        return None
    had_work = bool(control.history) and control.history[-1].workable > 0
    return UpstreamSight(
        rate_per_s=rate_in_force(settled.learned, upstream),
        share=_share(tick, upstream, borrows=had_work),
        source=f"learned: {settled.learned.decision}",
        calls=settled.calls,
        allowed_calls=upstream.limit_per_s * stats.WINDOW_MS / 1000 + upstream.burst_calls,
    )


def _share(tick: Tick, upstream: UpstreamSettings, *, borrows: bool) -> float:
    """A class with nothing pending at its last tick lends its share to the others, in proportion to theirs.

    Whoever has just got work does not borrow yet: of two that wake in one minute each would take the other for idle,
    and together they would admit twice what the upstream allows.
    """
    settings = tick.settings
    if not borrows:
        return settings.upstream_share
    shares = upstream.shares or {settings.name: settings.upstream_share}
    others = [name for name in shares if name != settings.name]
    busy = {settings.name: settings.upstream_share}
    busy |= {name: shares[name] for name, rows in zip(others, _workable(tick.ports, others), strict=True) if rows}
    lent = sum(shares.values()) - sum(busy.values())
    return min(1.0, settings.upstream_share * (1 + lent / sum(busy.values())))


def _workable(ports: Ports, names: Sequence[str]) -> list[int]:
    """Rows that each class had to work on at its last tick; 0 while it does not admit."""

    def workable(name: str) -> int:
        control = ports.ledger.read_control(name)
        return control.history[-1].workable if control.history and control.admits else 0

    return ports.parallel.map(workable, names)
