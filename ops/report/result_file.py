"""The result of a simulation or a replay, as `--out` wrote it: figures, and one entry per tick."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from shared.core.json_text import kind_of
from shared.errors import InvalidInput

_EXPECTED: Final = "a result that `simulate --out` or `replay --out` wrote"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """What one tick saw and did. Times in seconds from the run's beginning, rates in calls per second.

    An `eta_said_s` of None is a tick that said nothing: nothing measured yet, paused, or it will not drain.
    """

    t_s: float
    waiting_live: float = 0.0
    waiting_recovery: float = 0.0
    later: float = 0.0
    behind: float = 0.0
    in_flight: float = 0.0
    budget: float = 0.0
    admitted: float = 0.0
    rate_per_s: float = 0.0
    true_limit_per_s: float | None = None
    refusals: float = 0.0
    calls: float = 0.0
    eta_said_s: float | None = None
    eta_true_s: float | None = None
    live_wait_s: float | None = None
    paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """`figures` are the stable keys and whatever else was there; `ticks` are in the order of time."""

    name: str
    figures: Mapping[str, Any]
    ticks: tuple[Tick, ...]

    def number(self, key: str) -> float | None:
        value = self.figures.get(key)
        return float(value) if isinstance(value, (int, float)) and _is_number(value) else None

    @property
    def broken(self) -> list[str]:
        """What did not hold, in words; empty for a good run."""
        found = self.figures.get("violations") or {}
        violations = [f"{name} broke {count} times" for name, count in found.items()] if isinstance(found, dict) else []
        return [*violations, *(str(each) for each in self.figures.get("failed") or ())]


def read_result(path: Path) -> RunResult:
    """Raises `InvalidInput`: one line that names the key."""
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        reason = (error.strerror or "no file").lower()
        raise InvalidInput("RESULT", got=reason, expected="a file that can be read") from None
    except (ValueError, RecursionError):
        raise InvalidInput("RESULT", got="text that is not JSON", expected=_EXPECTED) from None
    if not isinstance(document, dict):
        raise InvalidInput("RESULT", got=kind_of(document), expected=_EXPECTED)
    series = document.get("series")
    if not isinstance(series, list) or not series:
        got = "nothing" if series is None else "no ticks" if series == [] else kind_of(series)
        raise InvalidInput("series", got=got, expected=f"the ticks of {_EXPECTED}")
    ticks = sorted((_tick(number, entry) for number, entry in enumerate(series)), key=lambda tick: tick.t_s)
    figures = {key: value for key, value in document.items() if key != "series"}
    return RunResult(name=str(figures.get("scenario") or path.stem), figures=figures, ticks=tuple(ticks))


def _tick(number: int, entry: object) -> Tick:
    if not isinstance(entry, dict):
        raise InvalidInput(f"series[{number}]", got=kind_of(entry), expected="an object")
    values: dict[str, Any] = {}
    for each in fields(Tick):
        value = entry.get(each.name)
        if each.name == "paused":
            values["paused"] = value is True
        elif value is None:
            if each.name == "t_s":
                raise InvalidInput(f"series[{number}].t_s", got="nothing", expected="seconds")
        elif not _is_number(value):
            raise InvalidInput(f"series[{number}].{each.name}", got=kind_of(value), expected="a number")
        else:
            values[each.name] = float(value)
    return Tick(**values)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
