"""One picture and one page of a run: the verdict and six numbers on top, six panels below, nothing to fetch."""

from __future__ import annotations

import html
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ops.report.panels import GREY, INK, RED, Panels
from ops.report.result_file import RunResult

_GOOD: Final = "#00734f"
_ROWS, _COLUMNS = 3, 2


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


def _shown(value: float | None, say: Any) -> str:
    return "-" if value is None else str(say(value))


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 3 * 3600 else f"{seconds / 3600:,.3g} h"


def draw(result: RunResult, *, heading: bool) -> Figure:
    """`heading`: the verdict and the numbers are in the picture too, as a PNG stands alone."""
    figure = Figure(figsize=(13, 9.6 if heading else 8.6), dpi=110, facecolor="white")
    panels = Panels(result)
    grid = figure.subplots(_ROWS, _COLUMNS)
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
    found = tiles(result)
    for number, (name, value) in enumerate(found):
        left = 0.06 + 0.925 * number / len(found)
        figure.text(left, 0.918, value, fontsize=12, fontweight="bold", color=INK, va="center")
        figure.text(left, 0.9, name, fontsize=8.5, color=GREY, va="center")


def name_of(result: RunResult) -> str:
    policy, seed = result.figures.get("policy"), result.figures.get("seed")
    return ", ".join(str(part) for part in (result.name, policy, f"seed {seed}" if seed is not None else None) if part)


def write_png(result: RunResult, path: Path) -> None:
    figure = draw(result, heading=True)
    FigureCanvasAgg(figure)
    figure.savefig(path, format="png", metadata={"Software": None})


def write_page(result: RunResult, path: Path) -> None:
    path.write_text("".join(_page(result)), encoding="utf-8")


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


def _page(result: RunResult) -> Iterator[str]:
    yield head(name_of(result))
    yield from section(result)
    yield "</html>\n"


def head(title: str) -> str:
    name = html.escape(title)
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title><style>{_STYLE}</style>'


def section(result: RunResult, *, salt: str = "sluice") -> Iterator[str]:
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
        return ", ".join(f"{key} {_cell(each)}" for key, each in value.items()) or "none"
    if isinstance(value, list):
        return "; ".join(_cell(each) for each in value) or "none"
    return f"{value:,.6g}" if isinstance(value, float) else "-" if value is None else str(value)
