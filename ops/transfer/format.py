"""Values of the domain <-> what JSON can say, by the types that the dataclasses declare.

Reading is strict: every field by name and type, or one `InvalidInput` that names it and never shows what stands there
(I12). A field that is not there has its default.

The file of an export: JSON lines. A header, one record a line, and an end that says what must have come before it.

    {"header": {"format": 1, "source": "<table>", "at_ms": ..., "live": false, "payloads": false, "classes": [...]}}
    {"job": {...}}                  every state; directly followed by its outputs, and preceded by its payload
    {"output": {...}}
    {"payload": {...}}              only with --with-payloads: the text of a large payload under its key
    {"run": {...}}                  not closed, or younger than a day
    {"control": {...}}              without the lock
    {"rate": {...}}                 what was learned of an upstream
    {"end": {"at_ms": ..., "classes": [...], "counts": {...}, "digest": "..."}}

The digest runs from line to line, so that an export can go on where it was interrupted. A file without its end, or with
another digest, is no export.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, Final, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

from msgspec import Struct, field, structs
from msgspec.structs import replace

from shared.domain.control import Control, Run
from shared.domain.job import Flag, Job
from shared.domain.json_text import kind_of
from shared.domain.records import Record, StoredOutput, StoredRate
from shared.errors import InvalidInput

Value = TypeVar("Value")


def to_plain(value: object, *, without: frozenset[str] = frozenset()) -> Any:
    """Objects, arrays, strings, numbers. Fields that are None are left out: they read as None again."""
    if isinstance(value, Struct):
        found = {name: getattr(value, name) for name in value.__struct_fields__ if name not in without}
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
        elif each.required:
            if NoneType not in get_args(hint):
                raise InvalidInput(f"{at}.{name}", got="nothing", expected=_said(hint))
            found[name] = None
    try:
        return made(**found)  # type: ignore[no-any-return]
    except ValueError:  # a value of its type that its class does not accept, like a rate of 0
        raise InvalidInput(at, got="values out of range", expected=f"a {cls.__name__} as it was exported") from None


@cache
def _hints(cls: Any) -> dict[str, tuple[Any, structs.FieldInfo]]:
    hints = get_type_hints(cls)
    return {each.name: (hints[each.name], each) for each in structs.fields(cls)}


def _read(hint: Any, plain: object, *, at: str) -> Any:
    options = get_args(hint)
    if get_origin(hint) is tuple:
        if not isinstance(plain, list):
            raise InvalidInput(at, got=kind_of(plain), expected="an array")
        return tuple(_read(options[0], each, at=at) for each in plain)
    if NoneType in options:
        (hint,) = (each for each in options if each is not NoneType)
        return None if plain is None else _read(hint, plain, at=at)
    if issubclass(hint, Struct):
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


FORMAT: Final = 1

LOCK: Final = frozenset({"lock_owner", "lock_run_id", "lock_until_ms"})
"""Of control, and of no use elsewhere: who ticks there does not tick here."""


class ClassThen(Struct, frozen=True, kw_only=True):
    """A class at the beginning or at the end of an export: who stopped it, and how many rows were in flight."""

    name: str
    in_flight: int
    pause: Flag | None = None
    halt: Flag | None = None

    @property
    def settled(self) -> bool:
        return (self.pause is not None or self.halt is not None) and self.in_flight == 0


class Header(Struct, frozen=True, kw_only=True):
    """`source` names the table. `live`: rows moved while they were read. `payloads`: large ones are in the file."""

    format: int
    source: str
    at_ms: int
    live: bool
    payloads: bool
    classes: tuple[ClassThen, ...]

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.classes]


class StoredPayload(Struct, frozen=True, kw_only=True):
    """A large payload: the object `payload_key` of the jobs that follow."""

    key: str
    text: str


FileRecord: TypeAlias = Record | StoredPayload

WORDS: Final[dict[str, type[FileRecord]]] = {
    "job": Job,
    "output": StoredOutput,
    "payload": StoredPayload,
    "run": Run,
    "control": Control,
    "rate": StoredRate,
}

_WORD_OF: Final = {cls: word for word, cls in WORDS.items()}


class Tally(Struct, frozen=True, kw_only=True):
    """Lines by what is on them."""

    job: int = 0
    output: int = 0
    payload: int = 0
    run: int = 0
    control: int = 0
    rate: int = 0

    def and_one(self, record: FileRecord) -> Tally:
        word = word_of(record)
        return replace(self, **{word: getattr(self, word) + 1})

    @property
    def lines(self) -> int:
        return sum(structs.astuple(self))


class End(Struct, frozen=True, kw_only=True):
    at_ms: int
    digest: str
    classes: tuple[ClassThen, ...]
    counts: Tally = field(default_factory=Tally)


def word_of(record: FileRecord) -> str:
    return _WORD_OF[type(record)]


def line_of(value: FileRecord | Header | End) -> bytes:
    word = "header" if isinstance(value, Header) else "end" if isinstance(value, End) else word_of(value)
    plain = {word: to_plain(value, without=LOCK if isinstance(value, Control) else frozenset())}
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def chained(digest: str, line: bytes) -> str:
    """The digest after one more line, its line end left out. It begins as ""."""
    return hashlib.sha256(digest.encode() + line.rstrip(b"\r\n")).hexdigest()
