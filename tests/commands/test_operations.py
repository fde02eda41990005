"""docs/operations.md names no command and no option that the command line does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from ops.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def spans() -> list[str]:
    """What stands between backticks, and the command lines of its blocks."""
    prose = re.sub(r"^```$.*?^```$", "", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`]+)`", " ".join(prose.split()))


def commands() -> Iterator[tuple[str, click.Command]]:
    """Each span that is a command line of ours, with the command that it runs."""
    for span in spans():
        words = span.split()
        command: click.Command | None = main.commands.get(words[0])
        if isinstance(command, click.Group) and len(words) > 1:
            command = command.commands.get(words[1])
            assert command is not None, span
        if command is not None:
            yield span, command


def test_every_option_that_the_page_types_exists() -> None:
    found = list(commands())

    assert len(found) > 40
    for span, command in found:
        known = {option for parameter in command.params for option in parameter.opts}
        typed = {word for word in span.split() if word.startswith("--")}
        assert typed <= known, span


def test_what_an_alarm_says_to_type_is_a_command() -> None:
    lines = re.findall(r"^- \*\*Command:\*\*.*?`(\w+)", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert len(lines) > 20
    assert set(lines) <= {*main.commands, "aws"}
