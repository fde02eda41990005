"""The limits of the system, published: limiter type x jitter x lateness x service tail, failures included."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from msgspec import Struct

from ops.simulator.drive import run_paced
from ops.simulator.result import Result
from ops.simulator.scenario import Expectation, Host, Scenario, Source, Ticks, Truth, Work
from ops.simulator.upstream import LimiterKind

JITTERS_MS: Final = (0, 50, 200)

LATE_MS: Final = (0, 30_000)

TAILS: Final = (0.0, 0.05)

LIMIT_PER_S: Final = 10.0

EXPECT: Final = (
    Expectation(figure="lost", compare="==", number=0),
    Expectation(figure="over_budget_ticks", compare="==", number=0),
    Expectation(figure="utilisation", compare=">=", number=0.95),
    Expectation(figure="refusals_per_1000", compare="<=", number=5),
    Expectation(figure="eta_error_median", compare="<=", number=0.05),
    Expectation(figure="eta_error_p95", compare="<=", number=0.15),
    Expectation(figure="live_wait_p95_s", compare="<=", number=90),
)


class Cell(Struct, frozen=True, kw_only=True):
    """One combination. A window's length is one second, without any burst: the strictest that its kind can be."""

    limiter: LimiterKind
    jitter_ms: int
    late_ms: int
    tail: float

    @property
    def scenario(self) -> Scenario:
        return Scenario(
            name=f"{self.limiter.value}/{self.jitter_ms} ms/{self.late_ms // 1000} s/{self.tail:g}",
            about="one cell of the matrix",
            job_class={"slots": 24, "max_inflight": 2000, "live_window_s": 120},
            upstream={"limit_per_s": LIMIT_PER_S},
            truth=Truth(limiter=self.limiter, latency_ms=(200, 400)),
            work=Work(chunk_ms=(300, 700), tail_share=self.tail, tail_ms=(5000, 15_000)),
            host=Host(call_jitter_ms=self.jitter_ms),
            ticks=Ticks(late_ms=(0, self.late_ms)),
            sources=(
                Source(count=9000, age_s=7200, jobs_per_match=4),
                Source(per_s=0.5, jobs_per_match=2, live=True),
            ),
            expect=EXPECT,
            max_hours=3.0,
        )


def cells() -> list[Cell]:
    return [
        Cell(limiter=limiter, jitter_ms=jitter_ms, late_ms=late_ms, tail=tail)
        for limiter, jitter_ms, late_ms, tail in product(LimiterKind, JITTERS_MS, LATE_MS, TAILS)
    ]


def run_matrix(seed: int) -> Iterator[tuple[Cell, Result]]:
    for cell in cells():
        yield cell, run_paced(cell.scenario, seed)


HEADINGS: Final = ("limiter", "jitter", "late", "tail", "utilisation", "refused/1000", "ETA p50", "ETA p95", "live p95")


def row_of(cell: Cell, result: Result) -> tuple[str, ...]:
    figures = result.figures

    def shown(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    return (
        cell.limiter.value,
        f"{cell.jitter_ms} ms",
        f"{cell.late_ms // 1000} s",
        f"{cell.tail:.0%}",
        shown(figures.utilisation, ".3f"),
        shown(figures.refusals_per_1000, ".1f"),
        shown(figures.eta_error_median, ".1%"),
        shown(figures.eta_error_p95, ".1%"),
        f"{shown(figures.live_wait_p95_s, '.0f')} s",
    )
