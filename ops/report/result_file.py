"""Results of simulations or a replay, as `--out` wrote them: figures, and one entry per tick."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from shared.domain.json_text import kind_of
from shared.errors import InvalidInput

_EXPECTED: Final = "a result that `simulate --out` or `replay --out` wrote"
"""What a file has to be, for the message about one that is not."""


class Tick(Struct, frozen=True, kw_only=True):
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
    learned_per_s: float | None = None
    true_limit_per_s: float | None = None
    refusals: float = 0.0
    calls: float = 0.0
    eta_said_s: float | None = None
    eta_true_s: float | None = None
    live_wait_s: float | None = None
    paused: bool = False


class RunResult(Struct, frozen=True, kw_only=True):
    """`figures` are the stable keys and whatever else was there; `ticks` are in the order of time, and none of a policy
    that has no ticks."""

    name: str
    figures: Mapping[str, Any]
    ticks: Sequence[Tick]

    def number(self, key: str) -> float | None:
        value = self.figures.get(key)
        return float(value) if isinstance(value, (int, float)) and _is_number(value) else None

    @property
    def broken(self) -> list[str]:
        """What did not hold, in words; empty for a good run."""
        counts, failed = self.figures.get("violations"), self.figures.get("failed") or ()
        violations = (
            [f"{name} broke {count} times" for name, count in counts.items()] if isinstance(counts, dict) else []
        )
        return [*violations, *map(str, failed)]


def read_results(path: Path) -> tuple[RunResult, ...]:
    """One result, or those of several policies on one seed. Raises `InvalidInput`: one line that names the key."""
    document = _document(path)
    if "policies" not in document:
        return (_result(document, path.stem),)
    policies = document["policies"]
    if not isinstance(policies, list) or not policies or not all(isinstance(policy, dict) for policy in policies):
        raise InvalidInput("policies", got=kind_of(policies), expected=f"the results of {_EXPECTED}")
    results = tuple(_result(policy, path.stem, at=f"policies[{number}].") for number, policy in enumerate(policies))
    if not any(result.ticks for result in results):
        raise InvalidInput("policies", got="no ticks", expected=f"the ticks of {_EXPECTED}")
    return results


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        reason = (error.strerror or "no file").lower()
        raise InvalidInput("RESULT", got=reason, expected="a file that can be read") from None
    except (ValueError, RecursionError):
        raise InvalidInput("RESULT", got="text that is not JSON", expected=_EXPECTED) from None
    if not isinstance(document, dict):
        raise InvalidInput("RESULT", got=kind_of(document), expected=_EXPECTED)
    return document


def _result(document: Mapping[str, Any], name: str, *, at: str = "") -> RunResult:
    """`at` is where the document stands among others, which may be of policies without ticks."""
    series = document.get("series")
    if not isinstance(series, list) or not (series or at):
        got = "nothing" if series is None else "no ticks" if series == [] else kind_of(series)
        raise InvalidInput(f"{at}series", got=got, expected=f"the ticks of {_EXPECTED}")
    ticks = [_tick(f"{at}series[{number}]", entry) for number, entry in enumerate(series)]
    figures = {key: value for key, value in document.items() if key != "series"}
    return RunResult(
        name=str(figures.get("scenario") or name), figures=figures, ticks=sorted(ticks, key=lambda tick: tick.t_s)
    )


def _tick(at: str, entry: object) -> Tick:
    if not isinstance(entry, dict):
        raise InvalidInput(at, got=kind_of(entry), expected="an object")
    numbers: dict[str, Any] = {}
    for name in Tick.__struct_fields__:
        value = None if name == "paused" else entry.get(name)
        if value is not None and not _is_number(value):
            raise InvalidInput(f"{at}.{name}", got=kind_of(value), expected="a number")
        if value is not None:
            numbers[name] = float(value)
    if "t_s" not in numbers:
        raise InvalidInput(f"{at}.t_s", got="nothing", expected="seconds")
    return Tick(**numbers, paused=entry.get("paused") is True)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
