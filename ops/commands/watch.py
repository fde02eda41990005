"""`watch CLASS`: a drain as it goes. A live view on a terminal, one line a look elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import click
from msgspec import to_builtins
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ops.access import Access
from ops.commands.options import class_named
from ops.commands.status import as_figures, details, state_in_words
from ops.wording import duration, moment
from shared.domain.control import TickLine
from shared.domain.settings import ClassSettings
from shared.operate.status import Watched, watched
from shared.ports import Ports

_BOUND: Final = {"edge": "earned", "level": "usable", "max_inflight": "max_inflight", "waiting": "what waits"}
"""What a budget was bound by, in a column's width."""
_BARS: Final = "▁▂▃▄▅▆▇█"
_SHOWN_TICKS: Final = 8
"""Of about 15 that control remembers: what fits under the figures."""

_Show: TypeAlias = Callable[[Watched], None]


@click.command(short_help="Watch a drain.")
@click.argument("job_class", metavar="CLASS")
@click.option("--every", "every_s", type=click.FloatRange(min=0.5), default=2.0, show_default=True, help="Seconds.")
@click.option("--times", type=click.IntRange(min=1), help="End after so many looks; by default at ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a look.")
@click.pass_obj
def watch(access: Access, *, job_class: str, every_s: float, times: int | None, as_json: bool) -> None:
    """Show when the drain of CLASS will be over, and what its last ticks did, until ctrl-C.

    A look is one read of what the last tick saw, so it costs the same on any ledger; figures change once a tick. Where
    the output is no terminal it is one line a look.

    \b
    Examples
      python -m ops watch replay_summary
      python -m ops watch replay_summary --every 60 --json >> drain.jsonl
    """
    settings = class_named(access.settings(), job_class)
    ports = access.ports()
    with _view(as_json=as_json) as show:
        try:
            _look_again(ports, settings, show, every_s=every_s, times=times)
        except KeyboardInterrupt:
            return  # how a watch ends


def _look_again(ports: Ports, settings: ClassSettings, show: _Show, *, every_s: float, times: int | None) -> None:
    looks = 0
    while True:
        show(watched(ports, settings))
        looks += 1
        if looks == times:
            return
        ports.clock.sleep(every_s)


@contextmanager
def _view(*, as_json: bool) -> Iterator[_Show]:
    if as_json:
        yield lambda look: click.echo(json.dumps(to_builtins(_figures(look)), ensure_ascii=False))
    elif not sys.stdout.isatty():
        yield lambda look: click.echo(line(look))
    else:
        with Live(console=Console(), auto_refresh=False, screen=False) as live:
            yield lambda look: live.update(drawn(look), refresh=True)


def _figures(look: Watched) -> dict[str, Any]:
    return {"at_ms": look.at_ms, **as_figures(look.status), "ticks": look.ticks}


def line(look: Watched) -> str:
    """One look in one line."""
    status, parts = look.status, [f"{moment(look.at_ms)}  {look.status.job_class}  {state_in_words(look.status)}"]
    rows, tick = status.rows, status.last_tick
    if rows is not None:
        parts.append(f"pending {rows.pending:,} (live {rows.waiting.live:,}, recovery {rows.waiting.recovery:,},")
        parts[-1] += f" in flight {rows.in_flight:,}, dead {rows.dead:,})"
    if tick is not None:
        parts.append(f"admitted {tick.admitted:,} of {tick.budget:,} at {tick.rate_per_s:.2f} jobs/s")
    if status.ticks_missing:
        parts.append("ticks are missing")
    return "  ".join(parts)


def drawn(look: Watched) -> Panel:
    """One look as a panel: when it is over, then what waits, then the last ticks, the newest at the bottom."""
    status = look.status
    style = "bold red" if status.ticks_missing or status.state in ("growing", "stalled") else "bold"
    head = Text(state_in_words(status), style=style)
    facts = Table.grid(padding=(0, 2))
    for name, text in details(status):
        facts.add_row(Text(name, style="red" if name == "warning" else "dim"), Text(text))
    if len(look.ticks) > 1:
        facts.add_row(Text("pending", style="dim"), Text(_spark([tick.pending for tick in look.ticks])))
    title = Text(f"{status.job_class} at {moment(look.at_ms)}")
    return Panel(Group(head, Text(""), facts, Text(""), _ticks(look.ticks)), title=title, title_align="left")


def _ticks(ticks: tuple[TickLine, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("tick", "waiting", "in flight", "budget", "admitted", "jobs/s", "swept", "ETA", "bound by"):
        table.add_column(name, justify="left" if name in ("tick", "bound by") else "right")
    for tick in ticks[-_SHOWN_TICKS:]:
        table.add_row(
            f"{datetime.fromtimestamp(tick.at_ms / 1000, tz=UTC):%H:%M}",
            f"{tick.waiting.total:,}",
            f"{tick.in_flight:,}",
            f"{tick.budget:,}",
            f"{tick.admitted:,}",
            f"{tick.rate_per_s:.2f}",
            f"{tick.swept:,}",
            "-" if tick.eta_s is None else duration(tick.eta_s),
            _BOUND.get(tick.binding, tick.binding),
        )
    return table


def _spark(values: list[int]) -> str:
    """The history of a number in one line; its lowest bar is zero."""
    top = max(values, default=0)
    return "".join(_BARS[round(value / top * (len(_BARS) - 1)) if top else 0] for value in values)
