"""The file of an export: JSON lines. A header, one record a line, and an end that says what must have come before it.

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

Fields that are None are left out. Reading is strict: every field by name and type, or one `InvalidInput` that names it
and never shows what stands there (I12). A field that is not there has its default, or is None where it may be.
"""

from __future__ import annotations

import hashlib
import json
import re
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, Final, TypeAlias, TypeVar, get_args

from msgspec import Struct, ValidationError, convert, field, structs, to_builtins

from shared.domain.control import Control, Run
from shared.domain.job import Flag, Job
from shared.domain.records import Record, StoredOutput, StoredRate
from shared.errors import InvalidInput

FORMAT: Final = 1
"""A file that says another number was written by a version that this one cannot read."""

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
        return [then.name for then in self.classes]


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
"""The word that begins a record's line -> what stands behind it."""

_WORD_OF: Final = {cls: word for word, cls in WORDS.items()}


class LineCounts(Struct, frozen=True, kw_only=True):
    """Lines by the word that begins them."""

    job: int = 0
    output: int = 0
    payload: int = 0
    run: int = 0
    control: int = 0
    rate: int = 0

    def and_one(self, record: FileRecord) -> LineCounts:
        word = _WORD_OF[type(record)]
        return structs.replace(self, **{word: getattr(self, word) + 1})

    @property
    def lines(self) -> int:
        return sum(structs.astuple(self))


class End(Struct, frozen=True, kw_only=True):
    """`digest` is that of all lines before; `classes` are as they were when the last row had been read."""

    at_ms: int
    digest: str
    classes: tuple[ClassThen, ...]
    counts: LineCounts = field(default_factory=LineCounts)


def chained(digest: str, line: bytes) -> str:
    """The digest after one more line, its line end left out. It begins as ""."""
    return hashlib.sha256(digest.encode() + line.rstrip(b"\r\n")).hexdigest()


# -- writing


def line_of(value: FileRecord | Header | End) -> bytes:
    word = "header" if isinstance(value, Header) else "end" if isinstance(value, End) else _WORD_OF[type(value)]
    plain = to_builtins(value)
    if isinstance(value, Control):
        plain = {name: inner for name, inner in plain.items() if name not in LOCK}
    text = json.dumps({word: _present(plain)}, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode() + b"\n"


def _present(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {name: _present(inner) for name, inner in plain.items() if inner is not None}
    return [_present(inner) for inner in plain] if isinstance(plain, (list, tuple)) else plain


# -- reading

Value = TypeVar("Value", bound=Struct)

_KINDS: Final = {
    "str": ("a string", "a string"),
    "bool": ("a boolean", "true or false"),
    "int": ("a whole number", "a whole number"),
    "float": ("a number", "a finite number"),
    "object": ("an object", "an object"),
    "array": ("an array", "an array"),
    "null": ("null", "null"),
}
"""A type in msgspec's messages -> what is said of a value that is of it, and of one that should have been."""

_WRONG_TYPE: Final = re.compile(r"Expected `(\w+)[^`]*`, got `(\w+)`")
_PLACE: Final = re.compile(r" - at `\$([^`]*)`$")
"""How msgspec says what it expected, and where."""


def value_of(cls: type[Value], plain: object, *, at: str) -> Value:
    """The value that a line says, from its parsed JSON. `at` is the name under which a fault is reported."""
    try:
        return convert(_completed(cls, plain, at), cls)
    except ValidationError as error:
        raise _translated(error, cls, at) from None


def _completed(cls: Any, plain: Any, at: str) -> Any:
    """What msgspec does not do: refuse unknown fields, name the kind of one that is missing, and read one that was left
    out as None. It would also quote a value that is none of an enumeration, so that is judged here.
    """
    if issubclass(cls, StrEnum):
        if isinstance(plain, str) and plain not in list(cls):
            raise InvalidInput(at, got="other text", expected=f"one of {', '.join(cls)}")
        return plain
    if isinstance(plain, list):
        return [_completed(cls, inner, at) for inner in plain]
    if not isinstance(plain, dict):
        return plain
    known = _fields(cls)
    if not known.keys() >= plain.keys():
        raise InvalidInput(at, got="an unknown field", expected=f"only {', '.join(known)}")
    complete: dict[str, Any] = {}
    for name, (field_of_cls, held) in known.items():
        if name in plain:
            complete[name] = plain[name] if held is None else _completed(held, plain[name], f"{at}.{name}")
        elif field_of_cls.required and NoneType in get_args(field_of_cls.type):
            complete[name] = None
        elif field_of_cls.required:
            expected = _KINDS.get(getattr(field_of_cls.type, "__name__", ""), _KINDS["object"])[1]
            raise InvalidInput(f"{at}.{name}", got="nothing", expected=expected)
    return complete


@cache
def _fields(cls: type[Struct]) -> dict[str, tuple[structs.FieldInfo, type[Any] | None]]:
    """Of each field its type, and the struct or the enumeration that this type holds."""
    return {known.name: (known, _held(known.type)) for known in structs.fields(cls)}


def _held(hint: Any) -> type[Any] | None:
    """`State` of `State | None`, `ClassThen` of `tuple[ClassThen, ...]`, nothing of `int`."""
    for option in get_args(hint):
        if (held := _held(option)) is not None:
            return held
    return hint if isinstance(hint, type) and issubclass(hint, (Struct, StrEnum)) else None


def _translated(error: ValidationError, cls: type[Struct], at: str) -> InvalidInput:
    message = str(error)
    place = _PLACE.search(message)
    at += place[1] if place else ""
    if wrong := _WRONG_TYPE.match(message):
        return InvalidInput(at, got=_KINDS[wrong[2]][0], expected=_KINDS[wrong[1]][1])
    # A value of its type that its class does not accept, like a rate of 0: the class's own words would quote it.
    return InvalidInput(at, got="values out of range", expected=f"a {cls.__name__} as it was exported")
