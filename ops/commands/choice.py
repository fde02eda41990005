"""What several commands ask of their caller: which class, who they are, why, and whether to do it at all."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import Any, TypeVar

import click

from shared.config_rules import did_you_mean
from shared.core.settings import ClassSettings, Settings
from shared.errors import InvalidInput

Command = TypeVar("Command", bound=Callable[..., Any])


def class_named(settings: Settings, name: str) -> ClassSettings:
    """The class, or a sentence with the ones there are."""
    found = settings.classes.get(name)
    if found is None:
        known = sorted(settings.classes)
        expected = f"one of {', '.join(known)}{did_you_mean(name, known)}"
        raise InvalidInput("CLASS", got="an unknown class", expected=expected)
    return found


def caller(asked: str | None) -> str:
    """Who acts, for the record (I10): --by, or the user of the operating system."""
    try:
        name = asked if asked is not None else getpass.getuser()
    except (KeyError, OSError):
        name = ""
    if not name.strip():
        raise InvalidInput("--by", got="nothing", expected="who you are: this system has no name for its user")
    return name.strip()


def signed(command: Command) -> Command:
    """The options of every command that changes something: it is signed, and can be rehearsed."""
    options = (
        click.option("--reason", required=True, help="Why, for whoever comes later."),
        click.option("--by", help="Who you are; by default the user of the operating system."),
        click.option("--dry-run", is_flag=True, help="Say what it would do, and change nothing."),
        click.option("--json", "as_json", is_flag=True, help="Print what was changed as JSON."),
    )
    for option in reversed(options):
        command = option(command)
    return command
