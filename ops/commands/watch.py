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
from ops.commands.choice import class_named
from ops.commands.status import as_figures, details, state_in_words
from ops.wording import duration, moment
from shared.domain.control import TickLine
from shared.domain.settings import ClassSettings
from shared.operate.status import Watched, watched
from shared.ports import Ports

_BOUND: Final = {"edge": "earned", "level": "usable", "max_inflight": "max_inflight", "waiting": "what waits"}
_BARS: Final = "▁▂▃▄▅▆▇█"
_SHOWN_TICKS: Final = 8

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
            _look(ports, settings, show, every_s=every_s, times=times)
        except KeyboardInterrupt:
            return  # how a watch ends


def _look(ports: Ports, settings: ClassSettings, show: _Show, *, every_s: float, times: int | None) -> None:
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
        yield lambda seen: click.echo(json.dumps(_figures(seen), ensure_ascii=False))
    elif not sys.stdout.isatty():
        yield lambda seen: click.echo(line(seen))
    else:
        with Live(console=Console(), auto_refresh=False, screen=False) as live:
            yield lambda seen: live.update(drawn(seen), refresh=True)


def _figures(seen: Watched) -> dict[str, Any]:
    return {"at_ms": seen.at_ms, **as_figures(seen.status), "ticks": [to_builtins(each) for each in seen.ticks]}


def line(seen: Watched) -> str:
    """One look in one line."""
    status, parts = seen.status, [f"{moment(seen.at_ms)}  {seen.status.job_class}  {state_in_words(seen.status)}"]
    rows, tick = status.rows, status.last_tick
    if rows is not None:
        parts.append(f"pending {rows.pending:,} (live {rows.waiting.live:,}, recovery {rows.waiting.recovery:,},")
        parts[-1] += f" in flight {rows.in_flight:,}, dead {rows.dead:,})"
    if tick is not None:
        parts.append(f"admitted {tick.admitted:,} of {tick.budget:,} at {tick.rate_per_s:.2f} jobs/s")
    if status.ticks_missing:
        parts.append("ticks are missing")
    return "  ".join(parts)


def drawn(seen: Watched) -> Panel:
    """One look as a panel: when it is over, then what waits, then the last ticks, the newest at the bottom."""
    status = seen.status
    style = "bold red" if status.ticks_missing or status.state in ("growing", "stalled") else "bold"
    head = Text(state_in_words(status), style=style)
    facts = Table.grid(padding=(0, 2))
    for name, text in details(status):
        facts.add_row(Text(name, style="red" if name == "warning" else "dim"), Text(text))
    if len(seen.ticks) > 1:
        facts.add_row(Text("pending", style="dim"), Text(_spark([each.pending for each in seen.ticks])))
    title = Text(f"{status.job_class} at {moment(seen.at_ms)}")
    return Panel(Group(head, Text(""), facts, Text(""), _ticks(seen.ticks)), title=title, title_align="left")


def _ticks(ticks: tuple[TickLine, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("tick", "waiting", "in flight", "budget", "admitted", "jobs/s", "swept", "ETA", "bound by"):
        table.add_column(name, justify="left" if name in ("tick", "bound by") else "right")
    for each in ticks[-_SHOWN_TICKS:]:
        table.add_row(
            f"{datetime.fromtimestamp(each.at_ms / 1000, tz=UTC):%H:%M}",
            f"{each.waiting.total:,}",
            f"{each.in_flight:,}",
            f"{each.budget:,}",
            f"{each.admitted:,}",
            f"{each.rate_per_s:.2f}",
            f"{each.swept:,}",
            "-" if each.eta_s is None else duration(each.eta_s),
            _BOUND.get(each.binding, each.binding),
        )
    return table


def _spark(values: list[int]) -> str:
    """The history of a number in one line; its lowest bar is zero."""
    top = max(values, default=0)
    return "".join(_BARS[round(value / top * (len(_BARS) - 1)) if top else 0] for value in values)
