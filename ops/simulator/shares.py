"""Two classes on one upstream, with shares of 0.7 and 0.3: kept while both have work, lent while one has none.

`large` has rows all the time. In the first run `small` has too; in the second it gets some at `WOKEN_S`, as much as its
share serves in ten minutes. Every row is an hour old: recovery, so that no lane changes in the middle of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct, to_builtins

from ops.simulator.hosts import ScheduleFaults
from ops.simulator.measure import per_1000
from ops.simulator.scenario import Expectation
from ops.simulator.sluice_world import SimSluice
from ops.simulator.upstream import UpstreamTruth
from ops.simulator.world import START_MS
from shared.domain.job import NewJob
from shared.domain.settings import ClassSettings, Settings, UpstreamSettings

LIMIT_PER_S: Final = 10.0

SHARES: Final = {"large": 0.7, "small": 0.3}

SLOTS: Final = 40
"""Enough that each lane of either class works off its share."""

WOKEN_S: Final = 504

_BUSY_S: Final = 1020

_SMALL_BUSY_S: Final = 1080
"""Until here `small` has rows in the second run, too."""

_TICK_S: Final = 60

_FILLED_S: Final = 180

_FIVE_MINUTES_S: Final = 300

_LENT_S: Final = 120

_TOLERANCE: Final = 0.03

_STEP_S: Final = 10
"""Windows are judged wherever they begin: every ten seconds one does."""

EXPECT: Final = (
    Expectation(figure="points_off", compare="<=", number=2),
    Expectation(figure="used", compare=">=", number=0.95),
    Expectation(figure="lent", compare=">=", number=0.97),
    Expectation(figure="ticks_to_give_back", compare="<=", number=2),
    Expectation(figure="refusals_per_1000", compare="<=", number=2),
)


class Pair:
    """The world of the two classes, run by hand."""

    def __init__(self, seed: int, **options: Any) -> None:
        classes = {
            name: ClassSettings(
                name=name, kind="sim", upstream="api", upstream_share=share, slots=SLOTS, declared_service_s=0.6
            )
            for name, share in SHARES.items()
        }
        upstream = UpstreamSettings(name="api", endpoint="http://api", limit_per_s=LIMIT_PER_S)
        self.sluice = SimSluice(
            Settings(upstreams={"api": upstream}, classes=classes),
            seed,
            keep_trace=False,
            truths={"api": UpstreamTruth(limit_per_s=LIMIT_PER_S, bucket_calls=20)},
            **options,
        )

    def submit(self, name: str, rows: int) -> None:
        now_ms = self.sluice.world.now_ms
        self.sluice.submit(
            [
                NewJob(
                    job_id=f"{name}-{now_ms}-{number}",
                    job_class=name,
                    match_id=f"{name}-{number}",
                    payload='{"chunk_ms": 400}',
                    due_ms=now_ms - 3_600_000,
                )
                for number in range(rows)
            ]
        )

    def until(self, second: float) -> None:
        self.sluice.world.run(START_MS + round(second * 1000))

    def calls(self, first_s: float, length_s: float) -> Counter[str]:
        """Calls of each class that arrived in so many seconds from `first_s` on."""
        low, high = START_MS + first_s * 1000, START_MS + (first_s + length_s) * 1000
        return Counter(call.key.partition("-")[0] for call in self.sluice.upstream.calls if low <= call.at_ms < high)

    def share_of_small(self, first_s: float, length_s: float) -> float:
        found = self.calls(first_s, length_s)
        return found["small"] / max(1, sum(found.values()))


class ShareFigures(Struct, frozen=True, kw_only=True):
    """`points_off`: percentage points between a class's share and what it had of the calls, over the worst 5 minutes in
    which both have work. `used`: the part of the limit that the two used there, at least.

    `lent`: the part of the limit that `large` used over any 2 minutes while `small` is idle, at least.
    `ticks_to_give_back`: the first tick after the coming of `small`'s rows whose minute gives it its share, to within 3
    points. `refusals_per_1000`: of all calls of both runs.
    """

    seed: int
    points_off: float
    used: float
    lent: float
    ticks_to_give_back: int | None
    refusals_per_1000: float

    @property
    def missed(self) -> list[str]:
        """What is promised of shares and does not hold; empty for a good seed."""
        values = to_builtins(self)
        return [f"{each}: got {values[each.figure]}" for each in EXPECT if not each.holds(values[each.figure])]


def both_busy(seed: int, *, late_ms: int) -> Pair:
    pair = Pair(seed, schedule_faults=ScheduleFaults(late_ms=(0, late_ms)))
    pair.submit("large", 9_000)
    pair.submit("small", 4_000)
    pair.until(_BUSY_S)
    return pair


def one_idle(seed: int, *, late_ms: int) -> Pair:
    pair = Pair(seed, schedule_faults=ScheduleFaults(late_ms=(0, late_ms)))
    pair.submit("large", 14_000)
    pair.until(WOKEN_S)
    pair.submit("small", 1_800)
    pair.until(1500)
    return pair


def measure(seed: int, *, late_ms: int = 3_000) -> ShareFigures:
    """Both runs of one seed. The first three minutes, in which the pool fills, are left out."""
    busy, idle = both_busy(seed, late_ms=late_ms), one_idle(seed, late_ms=late_ms)
    second_tick_s = WOKEN_S - WOKEN_S % _TICK_S + 2 * _TICK_S
    last_s = _SMALL_BUSY_S - _FIVE_MINUTES_S
    spans = [
        *(busy.calls(first_s, _FIVE_MINUTES_S) for first_s in range(_FILLED_S, _BUSY_S - _FIVE_MINUTES_S, _STEP_S)),
        *(idle.calls(first_s, _FIVE_MINUTES_S) for first_s in range(second_tick_s, last_s, _STEP_S)),
    ]
    lent = [idle.calls(first_s, _LENT_S)["large"] for first_s in range(_FILLED_S, WOKEN_S - _LENT_S, _STEP_S)]
    calls = len(busy.sluice.upstream.calls) + len(idle.sluice.upstream.calls)
    refusals = busy.sluice.upstream.refusals + idle.sluice.upstream.refusals
    return ShareFigures(
        seed=seed,
        points_off=max(100 * abs(found["small"] / found.total() - SHARES["small"]) for found in spans),
        used=min(found.total() for found in spans) / (_FIVE_MINUTES_S * LIMIT_PER_S),
        lent=min(lent) / (_LENT_S * LIMIT_PER_S),
        ticks_to_give_back=next(_given_back(idle), None),
        refusals_per_1000=per_1000(refusals, calls),
    )


def _given_back(idle: Pair) -> Iterator[int]:
    """The numbers of the ticks after the rows came whose minute gives `small` its share."""
    first_tick_s = WOKEN_S - WOKEN_S % _TICK_S + _TICK_S
    for number in range(1, 8):
        share = idle.share_of_small(first_tick_s + (number - 1) * _TICK_S, _TICK_S)
        if share >= SHARES["small"] - _TOLERANCE:
            yield number
