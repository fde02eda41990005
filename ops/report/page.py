"""One picture and one page of a result: the verdict and six numbers on top, six panels below, nothing to fetch.

Several policies on one seed begin with their rates against the true limit in one picture, and their figures in one
table; then each has its own part.
"""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Final

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ops.report.panels import BLUE, GREEN, GREY, INK, ORANGE, RED, Panels, draw_limit, finish, span
from ops.report.result_file import RunResult

_GOOD: Final = "#00734f"
"""The verdict's color when everything held; it is red otherwise."""

_COLORS: Final = (BLUE, ORANGE, GREEN, INK)
"""Of the policies side by side, in their order."""


def verdict(result: RunResult) -> tuple[str, bool]:
    """What came of the run, in one line, and whether it was good."""
    done, jobs = result.number("done"), result.number("jobs")
    drain_s, ideal_s = result.number("drain_s"), result.number("ideal_drain_s")
    what = f"{done:,.0f} of {jobs:,.0f} jobs done" if done is not None and jobs is not None else "drained"
    when = ", not drained" if drain_s is None else f" in {_time(drain_s)}"
    best = f" (at best {_time(ideal_s)})" if drain_s is not None and ideal_s else ""
    broken = result.broken
    held = "; ".join(broken[:3]) if broken else "every invariant held"
    return f"{what}{when}{best}: {held}", not broken and drain_s is not None


def tiles(result: RunResult) -> list[tuple[str, str]]:
    """(name, value): the figures that a drain is judged by."""
    return [
        ("of the limit used", _shown(result.number("utilisation"), lambda value: f"{value:.1%}")),
        ("refused per 1,000 calls", _shown(result.number("refusals_per_1000"), lambda value: f"{value:.3g}")),
        ("ETA error, median", _shown(result.number("eta_error_median"), lambda value: f"{value * 100:.2g}%")),
        ("live wait, p95", _shown(result.number("live_wait_p95_s"), _time)),
        ("ticks over budget", _shown(result.number("over_budget_ticks"), lambda value: f"{value:.0f}")),
        (
            f"per million jobs{_waste(result)}",
            _shown(result.number("cost_per_job_usd"), lambda usd: f"${usd * 1e6:,.0f}"),
        ),
    ]


def _waste(result: RunResult) -> str:
    """Of the cost per job, what bought nothing: refused calls, repeats, stale messages."""
    per_job, waste = result.number("cost_per_job_usd"), result.number("waste_per_job_usd")
    return f", {waste / per_job:.2%} wasted" if per_job and waste is not None else ""


def _shown(value: float | None, say: Callable[[float], str]) -> str:
    return "-" if value is None else say(value)


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 3 * 3600 else f"{seconds / 3600:,.3g} h"


def draw(result: RunResult, *, heading: bool) -> Figure:
    """`heading`: the verdict and the numbers are in the picture too, as a PNG stands alone."""
    figure = Figure(figsize=(13, 9.6 if heading else 8.6), dpi=110, facecolor="white")
    panels = Panels(result)
    grid = figure.subplots(3, 2)
    for axes, panel in zip(grid.flat, panels.all, strict=True):
        panel(axes)
    for axes in grid[-1]:
        axes.set_xlabel(f"{panels.unit} since the start", fontsize=8.5, color=INK)
    figure.subplots_adjust(
        left=0.06, right=0.985, bottom=0.06, top=0.845 if heading else 0.96, hspace=0.38, wspace=0.14
    )
    if heading:
        _head(figure, result)
    return figure


def _head(figure: Figure, result: RunResult) -> None:
    text, good = verdict(result)
    figure.text(0.06, 0.972, name_of(result), fontsize=10, color=GREY, va="center")
    figure.text(0.06, 0.948, text, fontsize=14, fontweight="bold", color=_GOOD if good else RED, va="center")
    numbers = tiles(result)
    for number, (name, value) in enumerate(numbers):
        left = 0.06 + 0.925 * number / len(numbers)
        figure.text(left, 0.918, value, fontsize=12, fontweight="bold", color=INK, va="center")
        figure.text(left, 0.9, name, fontsize=8.5, color=GREY, va="center")


def name_of(result: RunResult) -> str:
    policy, seed = result.figures.get("policy"), result.figures.get("seed")
    return ", ".join(str(part) for part in (result.name, policy, f"seed {seed}" if seed is not None else None) if part)


def policy_of(result: RunResult) -> str:
    return str(result.figures.get("policy", result.name))


def _title(results: Sequence[RunResult]) -> str:
    """What they have in common."""
    seed = results[0].number("seed")
    return results[0].name if seed is None else f"{results[0].name}, seed {seed:.0f}"


def draw_all(results: Sequence[RunResult]) -> Figure:
    """The policies that have ticks: the rate that each learned, what was refused, and what is left."""
    drawn = [result for result in results if result.ticks]
    longest_s = max(result.ticks[-1].t_s for result in drawn)
    unit_s, unit = span(longest_s)
    figure = Figure(figsize=(13, 9), dpi=110, facecolor="white")
    rates, refusals, left = figure.subplots(3, 1, height_ratios=(2, 1, 1), sharex=True)
    truth = max(drawn, key=lambda result: result.ticks[-1].t_s).ticks
    draw_limit(rates, [tick.t_s / unit_s for tick in truth], [tick.true_limit_per_s for tick in truth])
    for result, color in zip(drawn, cycle(_COLORS), strict=False):
        name, times = policy_of(result), [tick.t_s / unit_s for tick in result.ticks]
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
    figure.text(0.06, 0.97, _title(results), fontsize=10, color=INK, va="center")
    figure.subplots_adjust(left=0.06, right=0.985, bottom=0.06, top=0.925, hspace=0.24)
    return figure


def write_page(results: Sequence[RunResult], path: Path) -> None:
    """HTML that needs nothing beside it."""
    title = html.escape(name_of(results[0]) if len(results) == 1 else _title(results))
    parts = [f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>']
    if len(results) > 1:
        parts += _side_by_side(results)
    for result in results:
        parts += _section(result, salt="sluice" if len(results) == 1 else policy_of(result))
    path.write_text("".join([*parts, "</html>\n"]), encoding="utf-8")


def write_png(results: Sequence[RunResult], path: Path) -> None:
    figure = draw(results[0], heading=True) if len(results) == 1 else draw_all(results)
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png", metadata={"Software": None})


def svg_of(figure: Figure, *, salt: str = "sluice") -> str:
    """The same figure gives the same bytes: no date, and ids that come from `salt`, which differs within a page."""
    with matplotlib.rc_context({"svg.hashsalt": salt, "svg.fonttype": "path"}):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


_STYLE: Final = """
body{font:15px/1.45 system-ui,sans-serif;color:#22282e;background:#fff;margin:24px auto;max-width:1240px;padding:0 16px}
h1{font-size:22px;margin:2px 0 14px}.good{color:#00734f}.bad{color:#c8321e}.name{color:#6b747c;margin:0}
.tiles{display:flex;flex-wrap:wrap;gap:10px;margin-bottom:8px}
.tiles div{flex:1 1 150px;border:1px solid #e4e7ea;border-radius:6px;padding:8px 12px}
.tiles b{display:block;font-size:19px}.tiles span{color:#6b747c;font-size:13px}
svg{width:100%;height:auto}details{margin:12px 0}td{padding:1px 18px 1px 0;vertical-align:top}
"""


def _side_by_side(results: Sequence[RunResult]) -> Iterator[str]:
    yield "<table><tr><td></td>"
    yield "".join(f"<td><b>{html.escape(policy_of(result))}</b></td>" for result in results)
    for row in zip(*(tiles(result) for result in results), strict=True):
        cells = "".join(f"<td>{html.escape(value)}</td>" for _, value in row)
        yield f"</tr><tr><td>{html.escape(row[0][0].partition(',')[0])}</td>{cells}"
    charts = svg_of(draw_all(results))
    yield f'</tr></table><div role="img" aria-label="the policies side by side">{charts}</div>'


def _section(result: RunResult, *, salt: str) -> Iterator[str]:
    """One run: its verdict, its numbers, and its charts if it has ticks."""
    text, good = verdict(result)
    yield f'<p class="name">{html.escape(name_of(result))}</p>'
    yield f'<h1 class="{"good" if good else "bad"}">{html.escape(text)}</h1><div class="tiles">'
    for label, value in tiles(result):
        yield f"<div><b>{html.escape(value)}</b><span>{html.escape(label)}</span></div>"
    yield "</div>"
    if result.ticks:
        charts = svg_of(draw(result, heading=False), salt=salt)
        yield f'<div role="img" aria-label="six charts of the run">{charts}</div>'
    yield "<details><summary>All figures</summary><table>"
    for key, value in result.figures.items():
        yield f"<tr><td>{html.escape(str(key))}</td><td>{html.escape(_cell(value))}</td></tr>"
    yield "</table></details>"


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_cell(part)}" for key, part in value.items()) or "none"
    if isinstance(value, list):
        return "; ".join(map(_cell, value)) or "none"
    return f"{value:,.6g}" if isinstance(value, float) else "-" if value is None else str(value)
