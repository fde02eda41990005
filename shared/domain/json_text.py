"""JSON from outside, strictly: what any other language reads the same way, and no deeper than a worker can follow."""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

MAX_DEPTH: Final = 100
"""Levels of nesting. Python's own bound depends on how deep its caller stands: it would differ between hosts."""

_KINDS: Final = {
    str: "a string",
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    dict: "an object",
    list: "an array",
    type(None): "null",
}


class _NotStrict(Exception):
    """Python's `json` would take it, others would not, or would read something else."""


def kind_of(value: object) -> str:
    """What a value is, in JSON's words: a message may say this much of it and no more (I12)."""
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def json_fault(text: str) -> str | None:
    """What is wrong with `text` as JSON, or None. Never raises; never quotes the text."""
    try:
        value = _STRICT.decode(text)
    except _NotStrict as fault:
        return str(fault)
    except json.JSONDecodeError:
        return "text that is not JSON"
    except ValueError:  # Python's own bound on the digits of an integer
        return "a number with too many digits"
    except RecursionError:
        return _TOO_DEEP
    return _TOO_DEEP if _is_too_deep(text, value) else None


_TOO_DEEP: Final = f"JSON nested deeper than {MAX_DEPTH} levels"


def _is_too_deep(text: str, value: object) -> bool:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    level, depth = [value], 0
    while level:
        children: list[Any] = []
        for inner in level:
            if isinstance(inner, (dict, list)):
                children.extend(inner.values() if isinstance(inner, dict) else inner)
        depth += any(isinstance(inner, (dict, list)) for inner in level)
        if depth > MAX_DEPTH:
            return True
        level = children
    return False


def _no_constant(_name: str) -> NoReturn:
    raise _NotStrict("NaN or Infinity, which JSON does not have")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _NotStrict("a number too large for any reader")
    return number


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _NotStrict("an object with the same key twice")
    return fields


_STRICT: Final = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_distinct)
