"""`--out FILE`: a result as JSON. That it can be written is found out before the run, which may take minutes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from shared.errors import InvalidInput


def check_out(out: Path | None) -> None:
    """Leaves everything as it was. A pipe or a device is not opened: its reader would take that for the end."""
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


def write_out(out: Path | None, found: Mapping[str, Any]) -> None:
    if out is None:
        return
    try:
        out.write_text(json.dumps(found), encoding="utf-8")
    except OSError as error:
        _refuse(error)


def _refuse(error: Exception) -> NoReturn:
    got = getattr(error, "strerror", None) or "no file name"  # a NUL in the name
    raise InvalidInput("--out", got=got, expected="a file that can be written") from None
