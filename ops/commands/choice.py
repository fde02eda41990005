"""What several commands ask of their caller: which class, and who they are."""

from __future__ import annotations

import getpass

from shared.config_rules import did_you_mean
from shared.core.settings import ClassSettings, Settings
from shared.errors import InvalidInput


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
