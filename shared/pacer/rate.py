"""What one closed minute says of an upstream: its calls, its refusals, and the limit that they amount to.

One learned rate per upstream, decided once per UTC minute from that minute's counters (protocol: rate, fact F36).

AIMD with a memory. The source of the family is Chiu and Jain (1989); of the rule that an allowance which was not used
is no evidence, Netflix's concurrency-limits; of bisecting towards a rate that was refused, BIC-TCP (Xu et al., 2004).
What is ours is `measured`: a refused window has measured the limit, namely what was accepted in it, so the rate goes to
just under that and not to half. What is accepted is a lower bound of the limit, since every refusal's Retry-After holds
all permits for a while; so it is never taken for less than `decrease_factor` of the rate that was refused.

Three rates are remembered. In force (`rate_per_s`), known to be good (`good_per_s`: fully used and clean) and refused
(`refused_per_s`). Below the good one the rate climbs by two thirds of what is missing; beyond it by `increase_step` of
itself, 2.4 times as much with each clean window; short of a refused one by half of the way at most. A step beyond the
good rate is a probe, and one that is refused at all is withdrawn to just under it, without any decrease. A few refusals
at the ceiling itself say how strictly the upstream counts, not that its limit fell: a hundredth is trimmed off.

Counters come late, from workers that are in the middle of a long job most of all. Refusals are answered at once; that
an allowance was not used is believed of counters that had time to come, so such a window is looked at once more.

Every window is judged by the rate that was in force in it. So five refused windows of one rate, which a tick of 300 s
finds at once, decrease it once, and five clean ones raise it once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from shared.domain.settings import RatePolicy, UpstreamSettings
from shared.domain.stats import WINDOW_MS
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

BELIEVED_SHARE: Final = 0.85
"""A refused probe is withdrawn if it was small (at most this many times the good rate), or if its window measured at
least this share of the good rate; otherwise the limit has fallen. The measure alone misleads where the upstream keeps a
burst of one call: at 1 % above the limit every second call is refused, and half of the limit seems to be there."""

DEAR_PROBE: Final = 2.0

LONGEST_WAIT_WINDOWS: Final = 2
"""A withdrawn probe in which twice the threshold or more was refused is repeated a window later, or two."""

COSTLY_SHARE: Final = 0.92
"""Refusals in two windows running that leave less than this share of the allowance accepted decrease, however few."""

NEAR_CEILING: Final = 0.98

TRIM: Final = 0.01
"""From this share of the ceiling on, few refusals trim so much off the rate, which then goes half of the way back to
the one that was refused, and half of what is left: a window that counts 80 calls allows 80 evenly spaced ones only to
the millisecond, and there is nothing to find beyond."""

ACCELERATION: Final = 2.4

LARGEST_STEP: Final = 1.0

CLIMB_SHARE: Final = 2 / 3

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


def _refused(learned: Learned, window: WindowCounts, ran_per_s: float, upstream: UpstreamSettings) -> Learned:
    again = learned.refused_windows > 0
    marked = replace(learned, probes=0, refused_windows=learned.refused_windows + 1)
    measured_per_s = limit_estimate(window, ran_per_s)
    overloaded = window.refused_share > upstream.refusal_threshold and (window.refusals > 1 or again)
    costly = again and window.accepted_per_s < COSTLY_SHARE * ran_per_s
    halving = upstream.rate_policy is RatePolicy.HALVING
    began_inside = learned.rate_per_s < ran_per_s < (learned.previous_per_s or 0.0)
    if began_inside and (halving or measured_per_s >= BELIEVED_SHARE * learned.rate_per_s):
        return replace(marked, decision=Decision.TOLERATED)  # a decrease came in this window: the old rate was refused
    few = not overloaded or (not again and measured_per_s >= COSTLY_SHARE * ran_per_s)
    if few and not (costly or halving) and _near_ceiling(ran_per_s, upstream):
        trimmed_per_s = (1 - TRIM) * ran_per_s
        marked = replace(marked, good_per_s=min(learned.good_per_s, trimmed_per_s))
        return _lowered(marked, trimmed_per_s, refused_per_s=ran_per_s, decision=Decision.TRIMMED)
    is_probe = not began_inside and _is_probe(learned, ran_per_s, measured_per_s)
    if is_probe and not (overloaded and halving):
        just_under = MARGIN * learned.good_per_s
        dear = (
            int(window.refused_share / max(DEAR_PROBE * upstream.refusal_threshold, NOISE_SHARE)) if overloaded else 0
        )
        marked = replace(marked, probes=-min(dear, LONGEST_WAIT_WINDOWS))
        return _lowered(marked, just_under, refused_per_s=ran_per_s, decision=Decision.WITHDRAWN)
    if not (overloaded or costly):  # twice running: the limit is here now, and not where an older refusal was
        wall_per_s = ran_per_s if again else learned.refused_per_s
        return replace(marked, refused_per_s=wall_per_s, decision=Decision.TOLERATED)
    target = upstream.decrease_factor * ran_per_s
    if not halving:
        target = max(target, MARGIN * min(ran_per_s, measured_per_s))
    if not is_probe:
        marked = replace(marked, good_per_s=min(learned.good_per_s, measured_per_s))
    return _lowered(marked, target, refused_per_s=ran_per_s, decision=Decision.DECREASED)


def _near_ceiling(rate_per_s: float, upstream: UpstreamSettings) -> bool:
    return rate_per_s >= NEAR_CEILING * bounds_per_s(upstream)[1]


def _is_probe(learned: Learned, ran_per_s: float, measured_per_s: float) -> bool:
    """Not where that rate has been decreased from already, and this is one more window of it."""
    answered = learned.decision is Decision.DECREASED and ran_per_s >= (learned.refused_per_s or 0.0)
    small = ran_per_s <= SMALL_PROBE * learned.good_per_s
    believed = small or measured_per_s >= BELIEVED_SHARE * learned.good_per_s
    return ran_per_s > learned.good_per_s and believed and not answered


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
