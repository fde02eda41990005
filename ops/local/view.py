"""What an operator watches during a drain: a live table on a terminal, one line every few seconds elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Protocol, Self, TextIO

from msgspec import Struct
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shared.pacer.forecast import DrainState, Eta

PLAIN_EVERY_S: Final = 10.0


class Sight(Struct, frozen=True, kw_only=True):
    """One look at the drain. `at_s` counts from the demo's start; `rate_per_s` is finished jobs."""

    at_s: float
    submitted: int
    waiting_live: int
    waiting_recovery: int
    later: int
    in_flight: int
    dead: int
    rate_per_s: float
    calls: int
    refused: int
    paused: bool
    eta: Eta

    @property
    def pending(self) -> int:
        return self.waiting_live + self.waiting_recovery + self.later + self.in_flight

    @property
    def done(self) -> int:
        """What is nowhere else any more: it may read one row too many while a row moves between two lists."""
        return self.submitted - self.pending - self.dead


class View(Protocol):
    """Where the demo speaks. `note` is for events, `show` for the latest look."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def note(self, text: str) -> None: ...

    def show(self, sight: Sight) -> None: ...


def view_for(stream: TextIO) -> View:
    return LiveView(Console(file=stream)) if stream.isatty() else PlainView(stream)


class PlainView:
    """Lines, for a log file or a pipe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown_at_s = -PLAIN_EVERY_S

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def show(self, sight: Sight) -> None:
        if sight.at_s - self._shown_at_s < PLAIN_EVERY_S:
            return
        self._shown_at_s = sight.at_s
        self.note(line(sight))


class LiveView:
    """A table that is redrawn in place; notes scroll by above it."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        self._live.console.print(Text(text))

    def show(self, sight: Sight) -> None:
        self._live.update(table(sight), refresh=True)


def line(sight: Sight) -> str:
    """One look in one line."""
    return (
        f"{clock(sight.at_s)}  waiting live {sight.waiting_live:>3} recovery {sight.waiting_recovery:>3}"
        f"  in flight {sight.in_flight:>3}  done {sight.done:>3}/{sight.submitted}  {sight.rate_per_s:4.1f} jobs/s"
        f"  refusals {sight.refused}/{sight.calls} calls  ETA {eta_text(sight.eta)}"
    )


def table(sight: Sight) -> Group:
    """One look as a table with a bar under it."""
    grid = Table(title=f"drain at {clock(sight.at_s)}" + (" (paused)" if sight.paused else ""), title_justify="left")
    columns = {
        "waiting live": str(sight.waiting_live),
        "waiting recovery": str(sight.waiting_recovery),
        "later": str(sight.later),
        "in flight": str(sight.in_flight),
        "done": f"{sight.done} of {sight.submitted}",
        "dead": str(sight.dead),
        "jobs/s": f"{sight.rate_per_s:.1f}",
        "refusals": f"{sight.refused} of {sight.calls} calls",
        "drain ETA": eta_text(sight.eta),
    }
    for name in columns:
        grid.add_column(name, justify="right")
    grid.add_row(*columns.values())
    return Group(grid, ProgressBar(total=max(1, sight.submitted), completed=max(0, sight.done), width=100))


def eta_text(eta: Eta) -> str:
    """A time only where there is one to say (I11)."""
    if eta.seconds is not None:
        return clock(eta.seconds)
    return "will not drain" if eta.state.will_not_drain else WORDS.get(eta.state, eta.state.value)


WORDS: Final = {DrainState.MEASURING: "measuring", DrainState.PAUSED: "paused"}


def clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
