"""What the demo's upstream decides and remembers: a token bucket, and every effect that it has had.

No clock and no I/O: `now_s` is an argument. Callers hold a lock around each call.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

WORST_WINDOW_S: Final = 600.0


class Verdict(StrEnum):
    """What becomes of one call."""

    ACCEPTED = "accepted"
    REPEAT = "repeat"
    CONFLICT = "conflict"
    REFUSED = "refused"


@dataclass(slots=True)
class TokenBucket:
    """`burst` calls at once, `limit_per_s` in the long run. A refused call costs nothing."""

    limit_per_s: float
    burst: float
    level: float
    filled_at_s: float

    def take(self, now_s: float) -> float:
        """0 when a call may go on, else the seconds until one may."""
        self._fill(now_s)
        if self.level >= 1:
            self.level -= 1
            return 0.0
        return (1 - self.level) / self.limit_per_s

    def change(self, *, limit_per_s: float, burst: float, now_s: float) -> None:
        """A new limit from now on; what was earned under the old one is kept, up to the new burst."""
        self._fill(now_s)
        self.limit_per_s, self.burst = limit_per_s, burst
        self.level = min(self.level, burst)

    def _fill(self, now_s: float) -> None:
        elapsed = max(0.0, now_s - self.filled_at_s)
        self.level = min(self.burst, self.level + elapsed * self.limit_per_s)
        self.filled_at_s = max(self.filled_at_s, now_s)


@dataclass(slots=True)
class Effect:
    """One accepted idempotency key: the text and the time it was accepted with, and how often the key came again."""

    text_sha256: str
    at_s: float
    repeats: int = 0


class Tally:
    """Every call, in order, and every effect by its idempotency key."""

    def __init__(self) -> None:
        self.effects: dict[str, Effect] = {}
        self.verdicts: Counter[Verdict] = Counter()
        self._calls: list[tuple[float, bool]] = []

    def judge(self, key: str, text: str, *, bucket: TokenBucket, now_s: float) -> tuple[Verdict, float]:
        """The verdict on one call, recorded, and for a refusal the seconds to wait.

        A repeat has no second effect but is a call like any other to the limit, as with the APIs that we know.
        """
        wait_s = bucket.take(now_s)
        verdict = Verdict.REFUSED if wait_s > 0 else self._record(key, text, now_s)
        self.verdicts[verdict] += 1
        self._calls.append((now_s, verdict is Verdict.REFUSED))
        return verdict, wait_s

    def report(self) -> dict[str, Any]:
        """The figures, without the keys. `texts_answered_twice` finds one piece of work done under two keys."""
        texts = Counter(effect.text_sha256 for effect in self.effects.values())
        return {
            "calls": len(self._calls),
            "accepted": self.verdicts[Verdict.ACCEPTED],
            "repeats": self.verdicts[Verdict.REPEAT],
            "conflicts": self.verdicts[Verdict.CONFLICT],
            "refused": self.verdicts[Verdict.REFUSED],
            "texts_answered_twice": sum(count > 1 for count in texts.values()),
            "calls_per_s_max": busiest(self._calls, window_s=1.0),
            "refusals_per_1000": per_1000(self._calls),
            "refusals_per_1000_worst": worst_per_1000(self._calls, window_s=WORST_WINDOW_S),
        }

    def _record(self, key: str, text: str, now_s: float) -> Verdict:
        text_sha256 = hashlib.sha256(text.encode()).hexdigest()
        known = self.effects.get(key)
        if known is None:
            self.effects[key] = Effect(text_sha256, now_s)
            return Verdict.ACCEPTED
        if known.text_sha256 != text_sha256:
            return Verdict.CONFLICT
        known.repeats += 1
        return Verdict.REPEAT


Calls = list[tuple[float, bool]]
"""(time in seconds, refused) in order of time."""


def per_1000(calls: Calls) -> float:
    """Refused calls of a thousand; 0 when there was none."""
    return 1000 * sum(refused for _, refused in calls) / len(calls) if calls else 0.0


def worst_per_1000(calls: Calls, *, window_s: float) -> float:
    """The highest rate of refusals in any full window that starts or ends with a call; of all calls when none is full.

    A window must be full, or the first call that is refused would count as 1,000 of 1,000.
    """
    if not calls or calls[-1][0] - calls[0][0] < window_s:
        return per_1000(calls)
    first_s, last_s = calls[0][0], calls[-1][0]
    starts = sorted({at for t, _ in calls for at in (t, t - window_s) if first_s <= at <= last_s - window_s})
    worst, low, high, refused = 0.0, 0, 0, 0
    for start in starts:
        while high < len(calls) and calls[high][0] <= start + window_s:
            refused += calls[high][1]
            high += 1
        while calls[low][0] < start:
            refused -= calls[low][1]
            low += 1
        worst = max(worst, 1000 * refused / (high - low) if high > low else 0.0)
    return worst


def busiest(calls: Calls, *, window_s: float) -> int:
    """The most calls that were let through within any window."""
    passed = [at for at, refused in calls if not refused]
    most, low = 0, 0
    for high, at in enumerate(passed):
        while at - passed[low] >= window_s:
            low += 1
        most = max(most, high - low + 1)
    return most


def retry_after(wait_s: float) -> str:
    """The header's value: whole seconds, never less than the wait."""
    return str(max(1, math.ceil(wait_s)))
