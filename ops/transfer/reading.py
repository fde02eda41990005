"""Read a file of an export, line by line, and judge every line: what comes out of here may be written.

A record may enter a ledger if the deployment's own code would have accepted it. A fault names the field and the kind of
its value, never the value (I12).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from ops.submission.json_lines import Lines
from ops.transfer.format import FORMAT, WORDS, End, FileRecord, Header, LineCounts, StoredPayload, chained, value_of
from shared.domain.control import Control, Run
from shared.domain.job import MAX_PAYLOAD_BYTES, MINUTE_MS, Job, NewJob, State, payload_key
from shared.domain.json_text import json_fault
from shared.domain.lifecycle import ENDED
from shared.domain.ordering import Match
from shared.domain.records import StoredOutput, StoredRate
from shared.domain.settings import Settings
from shared.errors import InvalidInput
from shared.submit.validation import MAX_DUE_MS, new_row
from shared.worker.message import MAX_CURSOR_BYTES, MAX_OUTPUT_BYTES

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
        self.counts = LineCounts()
        self.matches = MatchOrders()
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
        word, plain = _word_and_value(text)
        if number == 1:
            self.header = _header(word, plain, self._settings)
        elif word == "end":
            self.end = value_of(End, plain, at="end")
            return None
        self._digest = chained(self._digest, text.encode())
        return None if number == 1 else self._record(number, word, plain)

    def _record(self, number: int, word: str, plain: object) -> FileRecord:
        if word not in WORDS:
            raise InvalidInput("line", got="another word", expected=_EXPECTED)
        record = value_of(WORDS[word], plain, at=word)
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


def _word_and_value(text: str) -> tuple[str, Any]:
    """The one word of a line, and what it says."""
    try:
        document = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        got = json_fault(text) or "a string with a lone surrogate"  # grammar allows it, Unicode does not
        raise InvalidInput("line", got=got, expected=_EXPECTED) from None
    if not isinstance(document, dict) or len(document) != 1:
        raise InvalidInput("line", got="another JSON value", expected=_EXPECTED)
    ((word, plain),) = document.items()
    return word, plain


def _header(word: str, plain: Any, settings: Settings) -> Header:
    expected = "the header of an export by `python -m ops export`"
    if word != "header" or not isinstance(plain, dict):
        raise InvalidInput("file", got="something else", expected=expected)
    if plain.get("format") != FORMAT:
        raise InvalidInput("header.format", got="another format", expected=f"format {FORMAT}: this version's")
    header = value_of(Header, plain, at="header")
    for name in header.names:
        if name not in settings.classes:
            raise InvalidInput(
                "header.classes", got="an unknown class", expected=f"one of {', '.join(sorted(settings.classes))}"
            )
    return header


# -- whether a record may enter a ledger

_MOST: Final = {"epoch": 10**8, "copy": 10**6}
"""As many digits as a place in the index has for them; other counts have no place there and get 12."""

_COUNTS: Final = ("epoch", "copy", "hop", "attempts", "crashes", "transport_deaths", "seq")

_TIMES: Final = ("due_ms", "eligible_ms", "sent_at_ms", "hand_until_ms", "created_ms")
"""Fields of a row that count something, and those that are a moment."""


def judge(record: FileRecord, settings: Settings) -> None:
    match record:
        case Job():
            _judge_job(record, settings)
        case StoredOutput(output=output):
            _judge_cursor("output.cursor", output.cursor)
            _judge_json("output.body", output.body, MAX_OUTPUT_BYTES)
        case StoredPayload(key=key, text=text):
            _judge_json("payload.text", text, MAX_PAYLOAD_BYTES)
            if payload_key(text.encode()) != key:
                raise InvalidInput("payload.key", got="another text's key", expected="the key that names the text")
        case Run(key=key):
            _known("run.key.job_class", key.job_class, settings)
            if key.minute_ms % MINUTE_MS or not 0 <= key.minute_ms <= MAX_DUE_MS:
                raise InvalidInput("run.key.minute_ms", got="a time that is no minute", expected="a whole minute")
        case Control(job_class=job_class):
            _known("control.job_class", job_class, settings)
        case StoredRate(upstream=upstream):
            if upstream not in settings.upstreams:
                expected = f"one of {', '.join(sorted(settings.upstreams)) or 'none: nothing calls one'}"
                raise InvalidInput("rate.upstream", got="an unknown upstream", expected=expected)


def _judge_job(job: Job, settings: Settings) -> None:
    """What a submission may say, judged as one; then what only rows have."""
    _known("job.job_class", job.job_class, settings)
    submitted = NewJob(
        job_id=job.job_id,
        job_class=job.job_class,
        match_id=job.match_id,
        payload="null" if job.payload_key else job.payload,
        due_ms=job.due_ms,
        priority=job.priority,
    )
    try:
        new_row(submitted, settings, now_ms=0)
    except InvalidInput as fault:
        raise InvalidInput(f"job.{fault.field}", got=fault.got, expected=fault.expected) from None
    _judge_cursor("job.cursor", job.cursor)
    for name in _COUNTS:
        if not 0 <= getattr(job, name) < _MOST.get(name, 10**12):
            raise InvalidInput(f"job.{name}", got="a number out of range", expected="a count")
    for name in _TIMES:
        if not 0 <= getattr(job, name) <= MAX_DUE_MS:
            raise InvalidInput(f"job.{name}", got="a time out of range", expected="a time from 1970 to 2100")
    if job.state is State.QUEUED and (job.lane is None or not job.sent_at_ms):
        raise InvalidInput("job.lane", got="nothing", expected="the lane and the time of a job in flight")
    ordered = settings.classes[job.job_class].ordered
    if ordered is not (job.seq > 0) or (job.state is State.BEHIND and not ordered):
        expected = "a number in its match's line, as its class is ordered" if ordered else "0: its class is not ordered"
        raise InvalidInput("job.seq", got="0" if ordered else "a number", expected=expected)


def _judge_cursor(name: str, cursor: str) -> None:
    if len(cursor.encode()) > MAX_CURSOR_BYTES:
        raise InvalidInput(name, got="a longer one", expected=f"at most {MAX_CURSOR_BYTES} bytes")


def _judge_json(name: str, text: str, most: int) -> None:
    if len(text.encode()) > most:
        raise InvalidInput(name, got="a longer one", expected=f"at most {most} bytes")
    fault = json_fault(text)
    if fault is not None:
        raise InvalidInput(name, got=fault, expected="a JSON value")


def _known(name: str, job_class: str, settings: Settings) -> None:
    if job_class not in settings.classes:
        expected = f"one of {', '.join(sorted(settings.classes))}"
        raise InvalidInput(name, got="an unknown class", expected=expected)


# -- the orders of matches

_PASSED_ON: Final = ENDED - {State.REPLACED}
"""States whose row has passed its match on; a replaced one has left its place to another row."""


@dataclass(slots=True)
class _Order:
    """Of one match: how many rows it has, and the places (numbers from 1) that matter. `at_line` is its last row's."""

    rows: int = 0
    tail: int = 0
    first_open: int = 0
    last_ended: int = 0
    active: int = 0
    twice: bool = False
    at_line: int = 0

    @property
    def head(self) -> int:
        return self.first_open or self.tail + 1


class MatchOrders:
    """The orders of ordered matches, from the rows alone: a file that said both could contradict itself.

    Rows come in any order; a replaced one has left its number to the row that took its place. One small entry a match
    is all that an import keeps in memory of a file of any length.
    """

    def __init__(self) -> None:
        self._orders: dict[tuple[str, str], _Order] = {}

    def add(self, job: Job, at_line: int) -> None:
        if not job.seq or job.state is State.REPLACED:
            return
        order = self._orders.setdefault((job.job_class, job.match_id), _Order())
        order.rows, order.at_line = order.rows + 1, at_line
        order.tail = max(order.tail, job.seq)
        if job.state in _PASSED_ON:
            order.last_ended = max(order.last_ended, job.seq)
            return
        order.first_open = min(order.first_open or job.seq, job.seq)
        if job.state is not State.BEHIND:
            order.twice = order.twice or order.active > 0
            order.active = job.seq

    def faults(self) -> Iterator[int]:
        """Line numbers of matches that are no line: a number is missing or there twice, or not just the head moves."""
        for order in self._orders.values():
            whole = order.rows == order.tail and not order.twice
            if not whole or order.last_ended >= order.head or order.active != order.first_open:
                yield order.at_line

    def all(self) -> Iterator[Match]:
        for (job_class, match_id), order in self._orders.items():
            yield Match(job_class=job_class, match_id=match_id, head_seq=order.head, tail_seq=order.tail)
