"""What several commands ask of their caller, and how all of them answer: as words, or with --json as figures."""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final, NoReturn

import click
from msgspec import Struct, to_builtins

from ops.access import Access
from ops.wording import plain
from shared.domain.keys import did_you_mean
from shared.domain.settings import ClassSettings, Settings
from shared.errors import InvalidInput
from shared.ports import Ports

FAILED: Final = 1
WRONG_INPUT: Final = 2
NO_ANSWER: Final = 3
INTERRUPTED: Final = 130
"""Exit codes, of every command: `python -m ops --help` says what they mean."""

_LARGEST_FILE: Final = 4 * 1024 * 1024
"""A payload of 1 MiB, written as wastefully as JSON allows, and ids."""


def class_named(settings: Settings, name: str) -> ClassSettings:
    """The class, or a sentence with the ones there are."""
    job_class = settings.classes.get(name)
    if job_class is None:
        known = sorted(settings.classes)
        expected = f"one of {', '.join(known)}{did_you_mean(name, known)}"
        raise InvalidInput("CLASS", got="an unknown class", expected=expected)
    return job_class


def caller(access: Access, by: str | None) -> str:
    """Who acts, for the record (I10): "alice (arn:aws:sts::...)", or the ARN alone.

    What AWS says stands there in any case: --by adds a person's name, where several work under one role, and replaces
    nothing. Where AWS says nothing it is the user of the operating system, and the record says so.
    """
    name = plain(by.strip()) if by is not None else ""
    if by is not None and not name:
        raise InvalidInput("--by", got="nothing", expected="your name, or no --by")
    identity = access.caller_arn() or f"{_system_user()}, no AWS identity"
    return f"{name} ({identity})" if name else identity


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "a user without a name"


def answer(as_json: bool, figures: Mapping[str, Any], lines: Iterable[str], *, err: bool = False) -> None:
    """Print one of the two; structs among the figures become objects."""
    text = json.dumps(to_builtins(figures), ensure_ascii=False) if as_json else "\n".join(lines)
    click.echo(text, err=err)


class Change(Struct, frozen=True, kw_only=True):
    """What the options of every changing command say: a change is signed, and can be rehearsed.

    `reason` is None only where a command also shows and nobody gave one.
    """

    access: Access
    reason: str | None
    by: str | None
    dry_run: bool
    as_json: bool

    @property
    def ports(self) -> Ports:
        return self.access.ports()

    @property
    def who(self) -> str:
        return caller(self.access, self.by)

    @property
    def why(self) -> str:
        return self.reason or ""

    def class_named(self, name: str) -> ClassSettings:
        return class_named(self.access.settings(), name)

    def answer(self, figures: Mapping[str, Any], lines: Iterable[str]) -> None:
        rehearsed = ["Dry run, nothing was changed."] if self.dry_run else []
        answer(self.as_json, figures, [*rehearsed, *lines])


def signed(command: Callable[..., None], *, required: bool = True) -> Callable[..., None]:
    """The options of a change, handed to the command as one `Change`."""

    @click.option("--reason", required=required, help="Why, for whoever comes later.")
    @click.option("--by", help="Your name, recorded with your AWS identity.")
    @click.option("--dry-run", is_flag=True, help="Say what it would do, and change nothing.")
    @click.option("--json", "as_json", is_flag=True, help="Print what was changed as JSON.")
    @click.pass_obj
    @wraps(command)
    def with_change(
        access: Access, /, *, reason: str | None, by: str | None, dry_run: bool, as_json: bool, **given: Any
    ) -> None:
        command(Change(access=access, reason=reason, by=by, dry_run=dry_run, as_json=as_json), **given)

    return with_change


signed_if_changing = partial(signed, required=False)
"""The same, for a command that also shows."""


# -- files


def read_text(path: str, name: str, *, expected: str) -> str:
    """A small file, or standard input for `-`. `name` is what the command line calls it."""
    try:
        raw = sys.stdin.buffer.read(_LARGEST_FILE + 1) if path == "-" else Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        got = (getattr(error, "strerror", None) or "no file name").lower()
        raise InvalidInput(name, got=got, expected=f"a file with {expected}") from None
    if len(raw) > _LARGEST_FILE:
        raise InvalidInput(name, got="more than 4 MB", expected=expected)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput(name, got="bytes that are not UTF-8", expected=expected) from None


def check_out(out: Path | None) -> None:
    """That --out FILE can be written is found out before the run, which may take minutes.

    Leaves everything as it was. A pipe or a device is not opened: its reader would take that for the end.
    """
    if out is None:
        return
    try:
        there = out.is_symlink() or out.exists()
        if there and not (out.is_file() or out.is_dir()):
            return
        with out.open("ab"):
            pass
        if not there:
            out.unlink()
    except (OSError, ValueError) as error:
        _refuse(error)


def write_out(out: Path | None, result: Mapping[str, Any]) -> None:
    if out is None:
        return
    try:
        out.write_text(json.dumps(result), encoding="utf-8")
    except OSError as error:
        _refuse(error)


def _refuse(error: Exception) -> NoReturn:
    got = getattr(error, "strerror", None) or "no file name"  # a NUL in the name
    raise InvalidInput("--out", got=got, expected="a file that can be written") from None
