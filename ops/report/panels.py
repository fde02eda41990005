"""The panels of the report, each one question about a drain, drawn by matplotlib without a display."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ops.report.result_file import RunResult, Tick

BLUE, ORANGE, GREEN, RED, GREY, INK = "#0072b2", "#e69f00", "#009e73", "#c8321e", "#9aa3ab", "#22282e"
"""Told apart with every kind of colour vision (after Okabe and Ito)."""

_FEW: Final = 40
"""Up to so many ticks every single one can be seen, so it gets a mark."""


def span(seconds: float) -> tuple[float, str]:
    """The unit that a person would say so long a time in, and its seconds."""
    if seconds >= 3 * 86_400:
        return 86_400.0, "days"
    if seconds >= 3 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if seconds >= 180 else (1.0, "seconds")


class Panels:
    """One result's panels. The horizontal axis is the same everywhere: time since the run's beginning."""

    def __init__(self, result: RunResult) -> None:
        self.ticks: Sequence[Tick] = result.ticks
        self._result = result
        self._unit_s, self.unit = span(result.ticks[-1].t_s)
        self.times = [tick.t_s / self._unit_s for tick in self.ticks]
        self._interval_s = _typical_interval_s(self.ticks)
        self._width = 0.85 * self._interval_s / self._unit_s

    @property
    def all(self) -> tuple[Callable[[Axes], None], ...]:
        """From what an operator asks first to what an engineer asks last, row by row."""
        return (self.pending, self.eta, self.admitted, self.rate, self.live_wait, self.refusals)

    # -- the panels

    def pending(self, axes: Axes) -> None:
        parts = {
            "live": ([tick.waiting_live for tick in self.ticks], BLUE),
            "recovery": ([tick.waiting_recovery for tick in self.ticks], ORANGE),
            "in flight": ([tick.in_flight for tick in self.ticks], GREEN),
            "not due yet": ([tick.later for tick in self.ticks], GREY),
            "behind": ([tick.behind for tick in self.ticks], "#cfd4d9"),
        }
        shown = {name: part for name, part in parts.items() if any(part[0])}
        if shown:
            values, colors = [part[0] for part in shown.values()], [part[1] for part in shown.values()]
            axes.stackplot(self.times, values, labels=list(shown), colors=colors, alpha=0.85, linewidth=0)
        self._finish(axes, "What is left", "jobs", legend=bool(shown))

    def eta(self, axes: Axes) -> None:
        true = [tick.eta_true_s for tick in self.ticks]
        longest_s = max((seconds for seconds in true if seconds is not None), default=0.0)
        unit_s, unit = span(longest_s)
        top_s = 1.6 * longest_s or 1.0  # a drain that hardly moves says any number, and would flatten all the others
        said = [None if tick.eta_said_s is None else min(tick.eta_said_s, top_s) for tick in self.ticks]
        beyond = [time for time, seconds in zip(self.times, said, strict=True) if seconds == top_s]
        within = [None if seconds == top_s else seconds for seconds in said]
        axes.plot(self.times, _scaled(true, unit_s), color=GREY, linewidth=3, label="came true")
        axes.plot(self.times, _scaled(within, unit_s), color=BLUE, linewidth=1.5, marker=".", label="said")
        if beyond:
            axes.plot(beyond, [0.97 * top_s / unit_s] * len(beyond), "^", color=BLUE, markersize=5, label="said longer")
        self._silence(axes)
        self._finish(axes, "When it will be over", f"{unit} to go")
        axes.set_ylim(0, top_s / unit_s)

    def admitted(self, axes: Axes) -> None:
        axes.bar(self.times, [tick.admitted for tick in self.ticks], width=self._width, color=BLUE, label="admitted")
        budgets = [tick.budget for tick in self.ticks]
        axes.step(self.times, budgets, where="mid", color=INK, linewidth=1.3, label="budget")
        over = [(time, tick) for time, tick in zip(self.times, self.ticks, strict=True) if tick.admitted > tick.budget]
        if over:
            times, rows = [time for time, _ in over], [tick.admitted for _, tick in over]
            axes.bar(times, rows, width=self._width, color=RED, label="over budget")
        self._finish(axes, "Admitted against budget", "jobs a tick")

    def rate(self, axes: Axes) -> None:
        limits = [tick.true_limit_per_s for tick in self.ticks]
        if limits.count(None) < len(limits):
            draw_limit(axes, self.times, limits)
        learned = [tick.learned_per_s for tick in self.ticks]
        if learned.count(None) < len(learned):
            axes.plot(self.times, _scaled(learned, 1.0), color=BLUE, linewidth=3.5, alpha=0.45, label="learned")
        axes.plot(self.times, [tick.rate_per_s for tick in self.ticks], color=INK, linewidth=1.6, label="pacer")
        pairs = list(pairwise(self.ticks))
        middles = [(before.t_s + after.t_s) / 2 / self._unit_s for before, after in pairs]
        lengths_s = [max(1e-9, after.t_s - before.t_s) for before, after in pairs]
        made = [after.calls / length_s for (_, after), length_s in zip(pairs, lengths_s, strict=True)]
        refused = [after.refusals / length_s for (_, after), length_s in zip(pairs, lengths_s, strict=True)]
        accepted = [calls - refusals for calls, refusals in zip(made, refused, strict=True)]
        axes.fill_between(middles, accepted, color=GREEN, alpha=0.35, linewidth=0, label="accepted")
        if any(refused):
            axes.fill_between(middles, accepted, made, color=RED, alpha=0.25, linewidth=0, label="refused")
        self._finish(axes, "Rate and limit", "calls a second")

    def live_wait(self, axes: Axes) -> None:
        waits = [tick.live_wait_s for tick in self.ticks]
        known = [wait_s for wait_s in waits if wait_s is not None]
        p95 = self._result.number("live_wait_p95_s")
        unit_s, unit = span(max([*known, p95 or 0.0]))
        if known:
            mark = "o" if len(self.ticks) <= _FEW else ""
            waits_s = _scaled(waits, unit_s)
            axes.plot(self.times, waits_s, color=BLUE, linewidth=1.4, marker=mark, label="p95 of the tick")
        if p95 is not None:
            axes.axhline(p95 / unit_s, color=INK, linewidth=1.2, linestyle=":", label="p95 of the run")
        if not known and p95 is None:
            _say(axes, "no live jobs")
        self._finish(axes, "How long live jobs wait", unit, legend=bool(known) or p95 is not None)

    def refusals(self, axes: Axes) -> None:
        counts = [tick.refusals for tick in self.ticks]
        if any(counts):
            axes.bar(self.times, counts, width=self._width, color=RED)
        else:
            _say(axes, "none")
        self._finish(axes, "Refused calls", "calls a tick", legend=False)
        if not any(counts):
            axes.set_yticks([0])

    # -- parts

    def _silence(self, axes: Axes) -> None:
        """Ticks that named no time though rows were left: measuring, or it would not drain."""
        quiet = [
            time
            for time, tick in zip(self.times, self.ticks, strict=True)
            if tick.eta_said_s is None and not tick.paused and (tick.eta_true_s or 0) > 0
        ]
        if quiet:
            axes.plot(quiet, [0] * len(quiet), "|", color=RED, markersize=7, label="nothing said", clip_on=False)

    def _finish(self, axes: Axes, title: str, unit: str, *, legend: bool = True) -> None:
        half = self._interval_s / self._unit_s / 2
        axes.set_xlim(self.times[0] - half, self.times[-1] + half)
        for begin, end in self._pauses():
            axes.axvspan(begin, end, color=GREY, alpha=0.18, linewidth=0)
            where = axes.get_xaxis_transform()
            axes.text((begin + end) / 2, 0.93, "paused", transform=where, ha="center", va="top", fontsize=9, color=GREY)
        finish(axes, title, unit, legend=legend)

    def _pauses(self) -> list[tuple[float, float]]:
        """Stretches of paused ticks, from the first one's time to the first tick that worked again."""
        stretches: list[tuple[float, float]] = []
        for number, (time, tick) in enumerate(zip(self.times, self.ticks, strict=True)):
            if tick.paused:
                end = self.times[number + 1] if number + 1 < len(self.times) else time
                joined = number > 0 and self.ticks[number - 1].paused
                stretches.append((stretches.pop()[0] if joined else time, end))
        return stretches


def draw_limit(axes: Axes, times: Sequence[float], limits: Sequence[float | None]) -> None:
    per_s = _scaled(limits, 1.0)
    axes.step(times, per_s, where="post", color=RED, linewidth=1.6, linestyle="--", zorder=3, label="true limit")


def finish(axes: Axes, title: str, unit: str, *, legend: bool = True) -> None:
    """What every panel has in common."""
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK)
    axes.set_ylabel(unit, fontsize=8.5, color=INK)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#e4e7ea", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8.5, colors=INK, length=3)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:g}"))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    if legend:
        axes.legend(
            loc="lower right",  # beside the title, where no line can run through it
            bbox_to_anchor=(1.005, 0.99),
            borderaxespad=0.0,
            fontsize=8,
            frameon=False,
            ncols=5,
            handlelength=1.2,
            columnspacing=1.1,
        )


def _scaled(values: Sequence[float | None], unit: float) -> list[float]:
    return [float("nan") if value is None else value / unit for value in values]


def _say(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=15, color=GREY)


def _typical_interval_s(ticks: Sequence[Tick]) -> float:
    gaps = sorted(after.t_s - before.t_s for before, after in pairwise(ticks) if after.t_s > before.t_s)
    return gaps[len(gaps) // 2] if gaps else 60.0
