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
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import field, fields, replace
from typing import Final, TypeAlias

from ops.transfer.plain import to_plain
from shared.core.flags import Flag
from shared.core.ledger_records import Record, StoredOutput, StoredRate
from shared.core.model import Job
from shared.core.runs import Control, Run
from shared.core.values import frozen

FORMAT: Final = 1

LOCK: Final = frozenset({"lock_owner", "lock_run_id", "lock_until_ms"})
"""Of control, and of no use elsewhere: who ticks there does not tick here."""


@frozen
class ClassThen:
    """A class at the beginning or at the end of an export: who stopped it, and how many rows were in flight."""

    name: str
    in_flight: int
    pause: Flag | None = None
    halt: Flag | None = None

    @property
    def settled(self) -> bool:
        return (self.pause is not None or self.halt is not None) and self.in_flight == 0


@frozen
class Header:
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


@frozen
class StoredPayload:
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


@frozen
class Tally:
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
        return sum(getattr(self, each.name) for each in fields(self))


@frozen
class End:
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
