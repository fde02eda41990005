"""The bar of a long submission: rate and time left on a terminal, no control characters anywhere else."""

from __future__ import annotations

import io
import re

from rich.console import Console

from ops.long_run import Bar, Meter, meter_for


def drawn(size_bytes: int | None) -> str:
    screen = io.StringIO()
    now_s = iter(range(1000))
    bar = Bar(Console(file=screen, force_terminal=True, width=120), get_time=lambda: float(next(now_s)))
    with bar:
        bar.begin("submitting", size_bytes=size_bytes)
        for number in range(1, 20):
            bar.show(bytes_read=number * 500, lines=number * 1_000)
        bar.note("line 3: payload: got [bold]text[/bold] that is not JSON")
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())


def test_a_file_has_a_bar_with_rate_and_time_left() -> None:
    screen = drawn(10_000)

    assert "95%" in screen
    assert "19,000 lines, " in screen
    assert "/s" in screen
    assert "left: 0:00:" in screen


def test_a_note_stays_above_the_bar_and_is_printed_as_it_is() -> None:
    assert "line 3: payload: got [bold]text[/bold] that is not JSON\n" in drawn(10_000)


def test_a_pipe_has_a_rate_and_no_end() -> None:
    assert "19,000 lines, " in drawn(None)
    assert "left:" not in drawn(None)
    assert "%" not in drawn(None)


def test_what_is_no_terminal_gets_lines_only() -> None:
    stream = io.StringIO()
    with meter_for(stream) as meter:
        assert type(meter) is Meter
        meter.begin("submitting", size_bytes=10)
        meter.show(bytes_read=5, lines=1)
        meter.note("line 3: bad")

    assert stream.getvalue() == "line 3: bad\n"
