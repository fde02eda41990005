"""What several commands ask of their caller: which class, who they are, why, and whether to do it at all."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ops.access import Access
from ops.wording import plain
from shared.domain.config_rules import did_you_mean
from shared.domain.settings import ClassSettings, Settings
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


def caller(access: Access, asked: str | None) -> str:
    """Who acts, for the record (I10): "alice (arn:aws:sts::...)", or the ARN alone.

    What AWS says stands there in any case: --by adds a person's name, where several work under one role, and replaces
    nothing. Where AWS says nothing it is the user of the operating system, and the record says so.
    """
    name = plain(asked.strip()) if asked is not None else ""
    if asked is not None and not name:
        raise InvalidInput("--by", got="nothing", expected="your name, or no --by")
    identity = access.caller_arn() or f"{_system_user()}, no AWS identity"
    return f"{name} ({identity})" if name else identity


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "a user without a name"


def signed(command: Command) -> Command:
    """The options of every command that changes something: it is signed, and can be rehearsed."""
    return _with(command, required=True)


def signed_if_changing(command: Command) -> Command:
    """The same, for a command that also shows: `reason` is None where nobody gave one."""
    return _with(command, required=False)


def _with(command: Command, *, required: bool) -> Command:
    options = (
        click.option("--reason", required=required, help="Why, for whoever comes later."),
        click.option("--by", help="Your name, recorded with your AWS identity."),
        click.option("--dry-run", is_flag=True, help="Say what it would do, and change nothing."),
        click.option("--json", "as_json", is_flag=True, help="Print what was changed as JSON."),
    )
    for option in reversed(options):
        command = option(command)
    return command
