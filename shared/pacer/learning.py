"""What a tick learns of its upstream: the rate in force, decided once a window for all classes, and its share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shared.domain import stats
from shared.domain.settings import ClassSettings, UpstreamSettings
from shared.domain.stats import StatsWindow
from shared.domain.upstream import Learned, rate_in_force
from shared.pacer.rate import UpstreamSight, WindowCounts, first, learn_all
from shared.ports import Ports

LOOK_BACK_WINDOWS: Final = 10
"""Closed windows that are judged at most: what happened before a longer absence says little of the limit now."""


def see_upstream(
    ports: Ports, settings: ClassSettings, upstream: UpstreamSettings, *, had_work: bool, now_ms: int
) -> UpstreamSight:
    """Decide on the windows that closed since the last decision, whichever class's tick comes first (one a window).

    `had_work`: rows were pending at the class's own last tick already.
    """
    names = list(upstream.shares) or [settings.name]
    before = ports.ledger.read_learned(upstream.name)
    last_ms = stats.window_of(now_ms) - stats.WINDOW_MS
    windows_ms = _undecided(before, now_ms) or [last_ms]
    counted = ports.parallel.map(lambda name: ports.ledger.read_stats(name, windows_ms=windows_ms), names)
    sums = _sums(counted, windows_ms)
    after = learn_all(before or first(upstream), sums, upstream=upstream, now_ms=now_ms)
    if after != before and after.window_ms >= 0 and not ports.ledger.store_learned(upstream.name, after, before=before):
        after = ports.ledger.read_learned(upstream.name) or after
    return UpstreamSight(
        rate_per_s=rate_in_force(after, upstream),
        share=_share(ports, settings, upstream, borrows=had_work),
        source=f"learned: {after.decision}",
        calls=sum(window.calls for window in sums if window.start_ms == last_ms),
        allowed_calls=upstream.limit_per_s * stats.WINDOW_MS / 1000 + upstream.burst_calls,
    )


def _undecided(learned: Learned | None, now_ms: int) -> list[int]:
    running_ms = stats.window_of(now_ms)
    closed = [running_ms - number * stats.WINDOW_MS for number in range(1, LOOK_BACK_WINDOWS + 1)]
    return [start_ms for start_ms in closed if learned is None or start_ms > learned.window_ms]


def _sums(counted: Sequence[Sequence[StatsWindow]], windows_ms: Sequence[int]) -> list[WindowCounts]:
    return [
        WindowCounts(
            start_ms=start_ms,
            calls=stats.total((each[number] for each in counted), stats.CALLS),
            refusals=stats.total((each[number] for each in counted), stats.REFUSALS),
            holds=stats.total((each[number] for each in counted), stats.HOLDS),
        )
        for number, start_ms in enumerate(windows_ms)
    ]


def _share(ports: Ports, settings: ClassSettings, upstream: UpstreamSettings, *, borrows: bool) -> float:
    """A class with nothing pending at its last tick lends its share to the others, in proportion to theirs.

    Whoever has just got work does not borrow yet: of two that wake in one minute each would take the other for idle,
    and together they would admit twice what the upstream allows.
    """
    if not borrows:
        return settings.upstream_share
    shares = upstream.shares or {settings.name: settings.upstream_share}
    others = [name for name in shares if name != settings.name]
    busy = {settings.name: settings.upstream_share}
    busy |= {name: shares[name] for name, pending in zip(others, _pending(ports, others), strict=True) if pending}
    lent = sum(shares.values()) - sum(busy.values())
    return min(1.0, settings.upstream_share * (1 + lent / sum(busy.values())))


def _pending(ports: Ports, names: Sequence[str]) -> list[int]:
    def pending(name: str) -> int:
        control = ports.ledger.read_control(name)
        return control.history[-1].workable if control.history and control.admits else 0

    return ports.parallel.map(pending, names)
