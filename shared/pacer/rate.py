"""One learned rate per upstream, decided once per UTC minute from that minute's counters (protocol: rate, fact F36).

The loop is AIMD with a memory: additive increase, multiplicative decrease (Chiu and Jain, 1989), where an allowance
that was not used is no evidence (Netflix's concurrency-limits), and where the way back to a rate that was refused is
halved step by step (BIC-TCP; Xu, Harfoush and Rhee, 2004).

Three rates are remembered:

    rate_per_s     in force: what pacers plan with and permits are spaced by
    good_per_s     the highest that was fully used and clean
    refused_per_s  the lowest that was refused, or None

One clean, fully used minute raises the rate: below the good rate by two thirds of what is missing, beyond it by a step
that grows with every clean minute and goes at most half of the way to the refused rate. Going beyond is a probe.

One refused minute has one of five answers, in this order:

    TOLERATED   the rate was lowered within this minute: its refusals are the old rate's
    TRIMMED     few refusals at the ceiling: the upstream counts strictly, its limit did not fall; 1 % less
    WITHDRAWN   a probe went too far: back to just under the good rate, without a decrease
    TOLERATED   few refusals, fewer than the threshold: noise
    DECREASED   the limit fell: to just under what it accepted, never below `decrease_factor` of what was refused

The last is what is ours (`measured`): a refused minute has measured the limit. What it accepted is a lower bound of the
limit, since every refusal's Retry-After holds all permits for a while. The policy `halving` multiplies instead.

Counters come late, most of all from workers in the middle of a long job. Refusals are answered at once; that an
allowance was not used is believed of counters that had time to come, so such a minute is looked at once more. Every
minute is judged by the rate that was in force in it: five refused minutes of one rate, which a tick of 300 s finds at
once, decrease it once, and five clean ones raise it once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from shared.domain.settings import RatePolicy, UpstreamSettings
from shared.domain.stats import WINDOW_MS, window_of
from shared.domain.upstream import Decision, Learned, bounds_per_s, rate_in_force

NOISE_SHARE: Final = 0.001
"""Up to this share of the calls refused or held, a window is clean: 1 in 1,000, and none of fewer calls."""


class WindowCounts(Struct, frozen=True, kw_only=True):
    """All classes' calls to one upstream in one closed UTC minute that begins at `start_ms`.

    `calls` includes the refused (429) and the held (503, 529). `binding` overrides the judgement whether the allowance
    was used, for whoever knows better than the counters; None: it was if the calls are 90 % of it.
    """

    start_ms: int
    calls: int
    refusals: int = 0
    holds: int = 0
    binding: bool | None = None

    def __post_init__(self) -> None:
        for name, count in (("calls", self.calls), ("refusals", self.refusals), ("holds", self.holds)):
            if count < 0:
                raise ValueError(f"{name} must not be negative, got {count}")
        if self.start_ms % WINDOW_MS:
            raise ValueError(f"start_ms must be a whole minute, got {self.start_ms}")

    @property
    def clean(self) -> bool:
        return self.refusals + self.holds <= NOISE_SHARE * self.calls

    @property
    def refused(self) -> bool:
        return self.refusals > NOISE_SHARE * self.calls

    @property
    def refused_share(self) -> float:
        """At most 1: calls count when made, refusals when answered, so that a window may hold more of these."""
        return min(1.0, self.refusals / max(1, self.calls))

    @property
    def accepted_per_s(self) -> float:
        """At most: one call more than was counted, which is how exact a window is; it matters at 3 calls a minute."""
        return (max(0, self.calls - self.refusals - self.holds) + 1) * 1000 / WINDOW_MS


def limit_estimate(window: WindowCounts, ran_per_s: float) -> float:
    """Calls per second that the limit seems to allow, from a window in which the rate `ran_per_s` was refused.

    The calls that are missing from the allowance were held by refusals; in half of the time that they take the
    upstream is taken to have saved up for later, in the other half to have let its limit go to waste.
    """
    active_s = min(window.calls / ran_per_s, WINDOW_MS / 1000)
    return window.accepted_per_s * 2 / (1 + active_s * 1000 / WINDOW_MS)


FULL_SHARE: Final = 0.9
"""A window is fully used from this share of its allowance on."""

LATE_MS: Final = 45_000
"""How long after a window's end its calls may still be counted: workers flush every 30 s, between two chunks."""

MARGIN: Final = 0.98
"""Just under: what a withdrawn probe and a measured decrease leave of the good and of the accepted rate."""

SMALL_PROBE: Final = 1.1
"""A refused rate of at most this many times the good one was a probe, whatever its window measured: where the upstream
keeps a burst of one call, at 1 % above the limit every second call is refused, and half of the limit seems there."""

BELIEVED_SHARE: Final = 0.85
"""A larger one was a probe if its window accepted at least this share of the good rate; otherwise the limit fell."""

DEAR_PROBE: Final = 2.0
"""A probe in which this many times the threshold was refused waits a minute before the next one, or more."""

LONGEST_WAIT_WINDOWS: Final = 2
"""Minutes that a dear probe waits at most."""

COSTLY_SHARE: Final = 0.92
"""Refusals in two windows running that leave less than this share of the allowance accepted decrease, however few."""

NEAR_CEILING: Final = 0.98
"""Share of the ceiling from which on a few refusals are the upstream's way of counting: a window that counts 80 calls
allows 80 evenly spaced ones only to the millisecond, and there is nothing to find beyond."""

TRIM: Final = 0.01
"""What such refusals take off the rate, which then goes half of the way back to the refused one, minute by minute."""

ACCELERATION: Final = 2.4
"""How much longer each clean probe's step is than the one before."""

LARGEST_STEP: Final = 1.0
"""The longest step of a probe, as a share of the rate."""

CLIMB_SHARE: Final = 2 / 3
"""Of what is missing to just under the good rate, so much comes back with each clean minute."""

RECOVERY_WINDOWS: Final = 20
"""Clean, fully used windows from the floor to 90 % of the ceiling at the default settings, whatever is remembered."""


def first(upstream: UpstreamSettings) -> Learned:
    """Before anything is known: the declared limit, taken for good."""
    ceiling = bounds_per_s(upstream)[1]
    return Learned(rate_per_s=ceiling, good_per_s=ceiling)


def rate_during(learned: Learned, start_ms: int) -> float:
    """The mean rate in force over the window, as far as the last change is remembered."""
    if learned.previous_per_s is None:
        return learned.rate_per_s
    old_share = min(max(0, learned.changed_ms - start_ms), WINDOW_MS) / WINDOW_MS
    return old_share * learned.previous_per_s + (1 - old_share) * learned.rate_per_s


LOOK_BACK_WINDOWS: Final = 10
"""Closed windows that are judged at most: what happened before a longer absence says little of the limit now."""


def undecided(learned: Learned | None, now_ms: int) -> list[int]:
    """The closed windows that no decision was made on yet, newest first."""
    running_ms = window_of(now_ms)
    closed = [running_ms - number * WINDOW_MS for number in range(1, LOOK_BACK_WINDOWS + 1)]
    return [start_ms for start_ms in closed if learned is None or start_ms > learned.window_ms]


def learn_all(learned: Learned, windows: Iterable[WindowCounts], *, upstream: UpstreamSettings, now_ms: int) -> Learned:
    """Apply closed windows in the order of their time; those decided before, and a running one, change nothing."""
    for window in sorted(windows, key=lambda each: each.start_ms):
        learned = learn(learned, window, upstream=upstream, now_ms=now_ms)
    return learned


def learn(learned: Learned, window: WindowCounts, *, upstream: UpstreamSettings, now_ms: int) -> Learned:
    """The decision on one window, which comes into force at `now_ms`. Calling it again with the same window is safe.

    A window without calls, one decided before or an older one, and one that is not over change nothing at all; nor does
    one that seems not to be used while counters may still come, so that the next tick decides on it.
    Otherwise the first that applies: refused -> decrease, withdraw or tolerate; held (503, 529) -> no change; allowance
    not used or rate not tried yet -> no change; else climb or probe. ValueError naming a setting that is no number.
    """
    if window.calls == 0 or window.start_ms <= learned.window_ms or window.start_ms + WINDOW_MS > now_ms:
        return learned
    floor, ceiling = bounds_per_s(upstream)
    inside = replace(
        learned,
        rate_per_s=rate_in_force(learned, upstream),
        good_per_s=min(learned.good_per_s, ceiling),
        window_ms=window.start_ms,
    )
    decided = _decide(inside, window, rate_during(inside, window.start_ms), upstream)
    fresh = window.binding is None and now_ms < window.start_ms + WINDOW_MS + LATE_MS
    if decided.decision is Decision.UNUSED and fresh:
        return learned
    rate = min(max(floor, decided.rate_per_s), ceiling)
    if rate != learned.rate_per_s:
        before = learned.previous_per_s if learned.changed_ms == now_ms else learned.rate_per_s
        decided = replace(decided, previous_per_s=before, changed_ms=now_ms)
    return replace(decided, rate_per_s=rate, good_per_s=min(max(floor, decided.good_per_s), ceiling))


def _decide(learned: Learned, window: WindowCounts, ran_per_s: float, upstream: UpstreamSettings) -> Learned:
    if window.refused:
        return _refused(learned, window, ran_per_s, upstream)
    if not window.clean:
        return replace(learned, refused_windows=0, decision=Decision.HELD)
    full = window.calls >= FULL_SHARE * ran_per_s * WINDOW_MS / 1000 if window.binding is None else window.binding
    if not full:
        return replace(learned, refused_windows=0, decision=Decision.UNUSED)
    proven = replace(learned, refused_windows=0, good_per_s=max(learned.good_per_s, ran_per_s))
    if learned.refused_per_s is not None and ran_per_s >= learned.refused_per_s:
        # Passed, perhaps on what a bucket had saved up: the steps beyond begin small again.
        proven = replace(proven, refused_per_s=None, probes=min(0, proven.probes))
    if learned.changed_ms > window.start_ms + WINDOW_MS // 2:
        return replace(proven, decision=Decision.UNTRIED)
    return _raised(proven, upstream)


class _Refusal(Struct, frozen=True, kw_only=True):
    """What a refused window says. `ran_per_s` was in force in it, `measured_per_s` the limit that it amounts to."""

    ran_per_s: float
    measured_per_s: float
    again: bool
    """The window before was refused too."""
    inside: bool
    """The rate was lowered during this window."""
    overloaded: bool
    """More was refused than the threshold allows, and not one call by chance."""
    costly: bool
    probe: bool
    at_ceiling: bool

    @property
    def few(self) -> bool:
        """So little was refused, or so much accepted for a first time, that the limit has not fallen."""
        accepted_most = self.measured_per_s >= COSTLY_SHARE * self.ran_per_s
        return not self.costly and (not self.overloaded or (not self.again and accepted_most))


def _refused(learned: Learned, window: WindowCounts, ran_per_s: float, upstream: UpstreamSettings) -> Learned:
    """The five answers of the page's head, in their order."""
    refusal = _refusal_of(learned, window, ran_per_s, upstream)
    measured_per_s, halving = refusal.measured_per_s, upstream.rate_policy is RatePolicy.HALVING
    marked = replace(learned, probes=0, refused_windows=learned.refused_windows + 1)
    if refusal.inside and (halving or measured_per_s >= BELIEVED_SHARE * learned.rate_per_s):
        return replace(marked, decision=Decision.TOLERATED)
    if refusal.at_ceiling and refusal.few and not halving:
        trimmed_per_s = (1 - TRIM) * ran_per_s
        marked = replace(marked, good_per_s=min(learned.good_per_s, trimmed_per_s))
        return _lowered(marked, trimmed_per_s, refused_per_s=ran_per_s, decision=Decision.TRIMMED)
    if refusal.probe and not (refusal.overloaded and halving):
        marked = replace(marked, probes=-_wait_windows(window, upstream) if refusal.overloaded else 0)
        return _lowered(marked, MARGIN * learned.good_per_s, refused_per_s=ran_per_s, decision=Decision.WITHDRAWN)
    if not (refusal.overloaded or refusal.costly):
        # Twice running: the limit is here now, and not where an older refusal was.
        wall_per_s = ran_per_s if refusal.again else learned.refused_per_s
        return replace(marked, refused_per_s=wall_per_s, decision=Decision.TOLERATED)
    target_per_s = upstream.decrease_factor * ran_per_s
    if not halving:
        target_per_s = max(target_per_s, MARGIN * min(ran_per_s, measured_per_s))
    if not refusal.probe:
        marked = replace(marked, good_per_s=min(learned.good_per_s, measured_per_s))
    return _lowered(marked, target_per_s, refused_per_s=ran_per_s, decision=Decision.DECREASED)


def _refusal_of(learned: Learned, window: WindowCounts, ran_per_s: float, upstream: UpstreamSettings) -> _Refusal:
    again = learned.refused_windows > 0
    inside = learned.rate_per_s < ran_per_s < (learned.previous_per_s or 0.0)
    measured_per_s = limit_estimate(window, ran_per_s)
    return _Refusal(
        ran_per_s=ran_per_s,
        measured_per_s=measured_per_s,
        again=again,
        inside=inside,
        overloaded=window.refused_share > upstream.refusal_threshold and (window.refusals > 1 or again),
        costly=again and window.accepted_per_s < COSTLY_SHARE * ran_per_s,
        probe=not inside and _is_probe(learned, ran_per_s, measured_per_s),
        at_ceiling=_near_ceiling(ran_per_s, upstream),
    )


def _near_ceiling(rate_per_s: float, upstream: UpstreamSettings) -> bool:
    return rate_per_s >= NEAR_CEILING * bounds_per_s(upstream)[1]


def _is_probe(learned: Learned, ran_per_s: float, measured_per_s: float) -> bool:
    """Not where that rate has been decreased from already, and this is one more window of it."""
    answered = learned.decision is Decision.DECREASED and ran_per_s >= (learned.refused_per_s or 0.0)
    small = ran_per_s <= SMALL_PROBE * learned.good_per_s
    believed = small or measured_per_s >= BELIEVED_SHARE * learned.good_per_s
    return ran_per_s > learned.good_per_s and believed and not answered


def _wait_windows(window: WindowCounts, upstream: UpstreamSettings) -> int:
    """Minutes that a dear probe waits: the more was refused in it, the longer."""
    dear = window.refused_share / max(DEAR_PROBE * upstream.refusal_threshold, NOISE_SHARE)
    return min(int(dear), LONGEST_WAIT_WINDOWS)


def _lowered(learned: Learned, target_per_s: float, *, refused_per_s: float, decision: Decision) -> Learned:
    """Never a rise: a window that ran at a higher rate may have been answered already."""
    rate = min(learned.rate_per_s, target_per_s)
    return replace(learned, rate_per_s=rate, refused_per_s=refused_per_s, decision=decision)


def _raised(learned: Learned, upstream: UpstreamSettings) -> Learned:
    rate, ceiling = learned.rate_per_s, bounds_per_s(upstream)[1]
    if rate >= ceiling:
        return replace(learned, probes=0, decision=Decision.AT_CEILING)
    smallest, just_under = upstream.increase_step * rate, MARGIN * learned.good_per_s
    if rate < just_under * (1 - upstream.increase_step / 10):
        climbed = rate + max((just_under - rate) * CLIMB_SHARE, smallest)
        return replace(learned, rate_per_s=min(climbed, just_under), probes=0, decision=Decision.CLIMBED)
    if learned.probes < 0:
        return replace(learned, probes=learned.probes + 1, decision=Decision.WAITED)
    step = rate * min(LARGEST_STEP, upstream.increase_step * ACCELERATION ** min(learned.probes, 20))
    if learned.refused_per_s is not None and learned.refused_per_s > rate:
        smallest = 0.0 if _near_ceiling(learned.refused_per_s, upstream) else smallest
        step = min(step, max((learned.refused_per_s - rate) / 2, smallest))
    return replace(learned, rate_per_s=rate + step, probes=learned.probes + 1, decision=Decision.PROBED)


class UpstreamSight(Struct, frozen=True, kw_only=True):
    """`share` is the class's own and what the idle ones lend. `source` says of the rate where it came from.

    `calls` are those of all classes in the last closed minute, `allowed_calls` what I7 allows in it: the declared limit
    and the burst. Not the learned rate, which permits that were reserved before a decrease may exceed for a moment.
    """

    rate_per_s: float
    share: float
    source: str
    calls: int
    allowed_calls: float
