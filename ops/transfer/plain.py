"""Values of `core` <-> what JSON can say, by the types that the dataclasses declare.

Reading is strict: every field by name and type, or one `InvalidInput` that names it and never shows what stands there
(I12). A field that is not there has its default.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from shared.core.json_text import kind_of
from shared.errors import InvalidInput

Value = TypeVar("Value")


def to_plain(value: object, *, without: frozenset[str] = frozenset()) -> Any:
    """Objects, arrays, strings, numbers. Fields that are None are left out: they read as None again."""
    if is_dataclass(value) and not isinstance(value, type):
        found = {each.name: getattr(value, each.name) for each in fields(value) if each.name not in without}
        return {name: to_plain(inner) for name, inner in found.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        return [to_plain(inner) for inner in value]
    return value.value if isinstance(value, StrEnum) else value


def from_plain(cls: type[Value], plain: object, *, at: str) -> Value:
    """The value that `to_plain` said. `at` is the name under which a fault is reported."""
    if not isinstance(plain, Mapping):
        raise InvalidInput(at, got=kind_of(plain), expected="an object")
    made: Any = cls  # a type is hashable, whatever it is a type of
    hints = _hints(made)
    for name in plain:
        if name not in hints:
            raise InvalidInput(at, got="an unknown field", expected=f"only {', '.join(hints)}")
    found: dict[str, Any] = {}
    for name, (hint, each) in hints.items():
        if name in plain:
            found[name] = _read(hint, plain[name], at=f"{at}.{name}")
        elif each.default is MISSING and each.default_factory is MISSING:
            if NoneType not in get_args(hint):
                raise InvalidInput(f"{at}.{name}", got="nothing", expected=_said(hint))
            found[name] = None
    try:
        return made(**found)  # type: ignore[no-any-return]
    except ValueError:  # a value of its type that its class does not accept, like a rate of 0
        raise InvalidInput(at, got="values out of range", expected=f"a {cls.__name__} as it was exported") from None


@cache
def _hints(cls: Any) -> dict[str, tuple[Any, Field[Any]]]:
    hints = get_type_hints(cls)
    return {each.name: (hints[each.name], each) for each in fields(cls)}


def _read(hint: Any, plain: object, *, at: str) -> Any:
    options = get_args(hint)
    if get_origin(hint) is tuple:
        if not isinstance(plain, list):
            raise InvalidInput(at, got=kind_of(plain), expected="an array")
        return tuple(_read(options[0], each, at=at) for each in plain)
    if NoneType in options:
        (hint,) = (each for each in options if each is not NoneType)
        return None if plain is None else _read(hint, plain, at=at)
    if is_dataclass(hint):
        return from_plain(cast("type[Any]", hint), plain, at=at)
    if issubclass(hint, StrEnum):
        return _member(hint, plain, at=at)
    if hint is float and type(plain) in (int, float) and math.isfinite(plain):  # type: ignore[arg-type]
        return float(plain)  # type: ignore[arg-type]
    if type(plain) is not hint:
        raise InvalidInput(at, got=kind_of(plain), expected=_said(hint))
    return _text(plain, at=at) if isinstance(plain, str) else plain


def _member(hint: type[StrEnum], plain: object, *, at: str) -> StrEnum:
    members: list[StrEnum] = list(hint)
    found = next((each for each in members if each.value == plain), None)
    if found is None:
        got = "other text" if isinstance(plain, str) else kind_of(plain)
        raise InvalidInput(at, got=got, expected=f"one of {', '.join(each.value for each in members)}")
    return found


def _text(plain: str, *, at: str) -> str:
    try:
        plain.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(at, got="a string with a lone surrogate", expected="well-formed Unicode") from None
    return plain


def _said(hint: Any) -> str:
    return {str: "a string", bool: "true or false", int: "a whole number", float: "a finite number"}.get(
        hint, "an object"
    )
