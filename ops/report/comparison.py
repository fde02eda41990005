"""Several policies on one seed: their rates against the true limit in one picture, their figures in one table."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Final

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ops.report import page
from ops.report.panels import BLUE, GREEN, INK, ORANGE, RED, finish, span
from ops.report.result_file import RunResult

_COLORS: Final = (BLUE, ORANGE, GREEN, INK)


def write_page(results: Sequence[RunResult], path: Path) -> None:
    """One result is a page of its own."""
    if len(results) == 1:
        page.write_page(results[0], path)
    else:
        path.write_text("".join(_page(results)), encoding="utf-8")


def write_png(results: Sequence[RunResult], path: Path) -> None:
    if len(results) == 1:
        page.write_png(results[0], path)
    else:
        figure = draw(results)
        FigureCanvasAgg(figure)
        figure.savefig(path, format="png", metadata={"Software": None})


def draw(results: Sequence[RunResult]) -> Figure:
    """The policies that have ticks: the rate that each learned, what was refused, and what is left."""
    drawn = [result for result in results if result.ticks]
    longest_s = max(result.ticks[-1].t_s for result in drawn)
    unit_s, unit = span(longest_s)
    figure = Figure(figsize=(13, 9), dpi=110, facecolor="white")
    rates, refusals, left = figure.subplots(3, 1, height_ratios=(2, 1, 1), sharex=True)
    truth = max(drawn, key=lambda result: result.ticks[-1].t_s).ticks
    limits = [tick.true_limit_per_s if tick.true_limit_per_s is not None else float("nan") for tick in truth]
    times = [tick.t_s / unit_s for tick in truth]
    rates.step(times, limits, where="post", color=RED, linewidth=1.6, linestyle="--", zorder=3, label="true limit")
    for result, color in zip(drawn, cycle(_COLORS), strict=False):
        name, times = _policy(result), [tick.t_s / unit_s for tick in result.ticks]
        learned = [tick.rate_per_s if tick.learned_per_s is None else tick.learned_per_s for tick in result.ticks]
        pending = [tick.waiting_live + tick.waiting_recovery + tick.in_flight for tick in result.ticks]
        rates.plot(times, learned, color=color, linewidth=1.8, marker=".", label=name)
        refusals.plot(times, [tick.refusals for tick in result.ticks], color=color, linewidth=1.4, label=name)
        left.plot(times, pending, color=color, linewidth=1.6, label=name)
    finish(rates, "Learned rate against the true limit", "calls a second")
    finish(refusals, "Refused calls", "calls a tick", legend=False)
    finish(left, "What is left", "jobs", legend=False)
    left.set_xlim(0, longest_s / unit_s)
    left.set_xlabel(f"{unit} since the start", fontsize=8.5, color=INK)
    figure.text(0.06, 0.97, _name(results), fontsize=10, color=INK, va="center")
    figure.subplots_adjust(left=0.06, right=0.985, bottom=0.06, top=0.925, hspace=0.24)
    return figure


def _policy(result: RunResult) -> str:
    return str(result.figures.get("policy", result.name))


def _name(results: Sequence[RunResult]) -> str:
    seed = results[0].number("seed")
    return results[0].name if seed is None else f"{results[0].name}, seed {seed:.0f}"


def _page(results: Sequence[RunResult]) -> Iterator[str]:
    yield page.head(_name(results))
    yield "<table><tr><td></td>"
    yield "".join(f"<td><b>{html.escape(_policy(result))}</b></td>" for result in results)
    for row in zip(*(page.tiles(result) for result in results), strict=True):
        cells = "".join(f"<td>{html.escape(value)}</td>" for _, value in row)
        yield f"</tr><tr><td>{html.escape(row[0][0].partition(',')[0])}</td>{cells}"
    charts = page.svg_of(draw(results))
    yield f'</tr></table><div role="img" aria-label="the policies side by side">{charts}</div>'
    for result in results:
        yield from page.section(result, salt=_policy(result))
    yield "</html>\n"
