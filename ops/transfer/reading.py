"""Read a file of an export, line by line, and judge every line: what comes out of here may be written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from ops.submission.json_lines import Lines
from ops.transfer.format import FORMAT, WORDS, End, FileRecord, Header, Tally, chained, from_plain
from ops.transfer.judging import judge
from ops.transfer.match_lines import MatchLines
from shared.domain.job import Job
from shared.domain.records import StoredOutput
from shared.domain.settings import Settings
from shared.errors import InvalidInput

Numbered: TypeAlias = tuple[int, FileRecord | InvalidInput]

_EXPECTED: Final = f"one of {', '.join(WORDS)} on a line of its own"

_CUT_OFF: Final = InvalidInput("file", got="one without its end", expected="a whole export: it was cut off")


class Reader:
    """Iterate once. `header` is there from the first record on, `end` and `matches` after the last."""

    def __init__(self, lines: Lines, settings: Settings) -> None:
        self._lines = lines
        self._settings = settings
        self.header: Header | None = None
        self.end: End | None = None
        self.counts = Tally()
        self.matches = MatchLines()
        self._digest = ""
        self._job_id: str | None = None
        self._cursors: set[str] = set()

    def __iter__(self) -> Iterator[Numbered]:
        number = 0
        for number, text in self._lines:
            try:
                record = self._read(number, text)
            except InvalidInput as fault:
                yield number, fault
                if self.header is None:
                    return  # whatever this is, the rest of it is as strange
                continue
            if record is not None:
                yield number, record
        yield from self._judge_whole(number)

    def _read(self, number: int, text: str | InvalidInput) -> FileRecord | None:
        if isinstance(text, InvalidInput):
            raise text
        if self.end is not None:
            raise InvalidInput("line", got="more", expected="nothing behind the end")
        word, plain = _object(text)
        if number == 1:
            self.header = _header(word, plain, self._settings)
        elif word == "end":
            self.end = from_plain(End, plain, at="end")
            return None
        self._digest = chained(self._digest, text.encode())
        return None if number == 1 else self._record(number, word, plain)

    def _record(self, number: int, word: str, plain: object) -> FileRecord:
        if word not in WORDS:
            raise InvalidInput("line", got="another word", expected=_EXPECTED)
        record = from_plain(WORDS[word], plain, at=word)
        judge(record, self._settings)
        if isinstance(record, StoredOutput):
            self._follows(record)
        else:
            self._job_id, self._cursors = (record.job_id if isinstance(record, Job) else None), set()
        if isinstance(record, Job):
            self.matches.add(record, number)
        self.counts = self.counts.and_one(record)
        return record

    def _follows(self, stored: StoredOutput) -> None:
        if stored.job_id != self._job_id or stored.output.cursor in self._cursors:
            raise InvalidInput(
                "output", got="one of another job, or a second one", expected="the job's, right behind it"
            )
        self._cursors.add(stored.output.cursor)

    def _judge_whole(self, last: int) -> Iterator[Numbered]:
        if self.end is None:
            yield last + 1, _CUT_OFF
        elif (self.end.digest, self.end.counts) != (self._digest, self.counts):
            expected = "the lines that were exported: something was changed or lost"
            yield last, InvalidInput("end.digest", got="another one", expected=expected)
        else:
            for number in self.matches.faults():
                expected = "one unbroken order: export it with its class halted and nobody submitting"
                yield number, InvalidInput("match", got="jobs that are no line", expected=expected)


def _object(text: str) -> tuple[str, Any]:
    """The one word of a line, and what it says."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput("line", got="text that is not JSON", expected=_EXPECTED) from None
    if not isinstance(found, dict) or len(found) != 1:
        raise InvalidInput("line", got="another JSON value", expected=_EXPECTED)
    ((word, plain),) = found.items()
    return word, plain


def _header(word: str, plain: Any, settings: Settings) -> Header:
    expected = "the header of an export by `python -m ops export`"
    if word != "header" or not isinstance(plain, dict):
        raise InvalidInput("file", got="something else", expected=expected)
    if plain.get("format") != FORMAT:
        raise InvalidInput("header.format", got="another format", expected=f"format {FORMAT}: this version's")
    header = from_plain(Header, plain, at="header")
    for name in header.names:
        if name not in settings.classes:
            raise InvalidInput(
                "header.classes", got="an unknown class", expected=f"one of {', '.join(sorted(settings.classes))}"
            )
    return header
