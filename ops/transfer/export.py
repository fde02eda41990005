"""Read the whole ledger into a file, page by page, so that another deployment can go on from it.

A scan is no snapshot: what moves during it is read as of some moment. So an export wants its classes stopped and
settled, and says at its end whether they still were. `live` does without: each row is then as of some moment, together
with exactly the outputs that it had then.

The file is FILE.part until it is whole, with the way back into it beside it; or all of it goes into a pipe. Files are
0600: payloads and ids are in them and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ops.long_run import Interrupts, Meter, patiently
from ops.transfer.copying import LedgerCopy
from ops.transfer.format import (
    FORMAT,
    ClassThen,
    End,
    FileRecord,
    Header,
    LineCounts,
    StoredPayload,
    chained,
    line_of,
)
from shared.domain.control import Control, Run, RunState
from shared.domain.job import MAX_PAYLOAD_BYTES, Job, State
from shared.domain.records import Record, RecordPage, StoredOutput, StoredRate
from shared.domain.settings import Settings
from shared.errors import InvalidInput, LedgerUnavailable
from shared.ports import Ports
from shared.steps.counting import count_inflight
from shared.steps.turns import HANDOVER_LEASE_MS

_EXPECTED: Final = "a new file in a directory that can be written to"


class Reached(Struct, frozen=True, kw_only=True):
    """How far an export is: what has been written, and where the ledger is to be read from. Saved after each page.

    `whole`: the last page is written. `resume` is None then, too, as it is before the first one. `left_out`: jobs that
    have joined ordered matches since the beginning.
    """

    header: Header
    bytes_written: int
    digest: str
    resume: str | None = None
    whole: bool = False
    left_out: int = 0
    counts: LineCounts = field(default_factory=LineCounts)


class Pipe:
    """Standard output: nothing to go on from."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def earlier(self) -> Reached | None:
        return None

    def write(self, lines: bytes, reached: Reached) -> None:
        self._stream.write(lines)

    def finish(self, lines: bytes) -> None:
        self._stream.write(lines)
        self._stream.flush()


class PartFile:
    """Lines first, then the state that counts them: what a crash leaves behind the state is cut off.

    `check` reads the whole file before it gets its name. Where it raises, FILE.part stays and is not gone on from.
    """

    def __init__(self, path: Path, *, check: Callable[[Path], None] | None = None) -> None:
        if path.exists():
            raise InvalidInput("--out", got="a file that exists", expected=_EXPECTED)
        self.path = path
        self._check = check
        self.part = path.with_name(f"{path.name}.part")
        self.state = path.with_name(f"{path.name}.part.state")

    def earlier(self) -> Reached | None:
        """Where an interrupted export of this file stopped."""
        if not (self.part.is_file() and self.state.is_file()):
            return None
        try:
            reached = msgspec.json.decode(self.state.read_bytes(), type=Reached)
        except msgspec.MsgspecError:
            expected = f"what an interrupted export left: remove {self.state.name}"
            raise InvalidInput("--out", got="a state file that is broken", expected=expected) from None
        os.truncate(self.part, reached.bytes_written)
        return reached

    def write(self, lines: bytes, reached: Reached) -> None:
        self._put(self.part, lines, fresh=reached.bytes_written == len(lines))
        new = self.state.with_name(f"{self.state.name}.new")
        self._put(new, msgspec.json.encode(reached), fresh=True)
        new.replace(self.state)

    def finish(self, lines: bytes) -> None:
        self._put(self.part, lines, fresh=False)
        if self._check is not None:
            self._checked(self._check)
        self.part.replace(self.path)
        self.state.unlink(missing_ok=True)

    def _checked(self, check: Callable[[Path], None]) -> None:
        try:
            check(self.part)
        except InvalidInput:
            self.state.unlink()
            raise

    @staticmethod
    def _put(path: Path, content: bytes, *, fresh: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if fresh else os.O_APPEND)
        try:
            with open(os.open(path, flags, 0o600), "wb") as stream:  # noqa: PTH123 - the mode is given at creation
                stream.write(content)
        except OSError as error:
            got = (error.strerror or "no answer").lower()
            raise InvalidInput("--out", got=got, expected=_EXPECTED) from None


RUNS_KEPT_MS: Final = 24 * 3_600_000
"""Closed runs that go along: a trigger that repeats a younger minute elsewhere must find it done (I6)."""

_TRIES: Final = 8
"""How often a job that moves is read again, until a row and its outputs are of one moment."""

_PAYLOADS_REMEMBERED: Final = 50_000
"""Payload keys that are in the file already, some megabytes of memory; then one may stand in it twice."""

_SETTLED: Final = "a class that is paused or halted, with nothing in flight: python -m ops halt CLASS. Or --live"


class Asked(Struct, frozen=True, kw_only=True):
    """Which classes, and how. `payloads`: large ones go along, and do not stay behind as pointers."""

    classes: tuple[str, ...]
    live: bool
    payloads: bool


class Export:
    """One export: it begins or goes on, copies page after page, and ends by looking whether its classes still stand."""

    def __init__(self, ports: Ports, settings: Settings, copy: LedgerCopy, asked: Asked, meter: Meter) -> None:
        self._ports = ports
        self._settings = settings
        self._copy = copy
        self._asked = asked
        self._meter = meter
        self._interrupts = Interrupts()
        self._upstreams = {settings.classes[name].upstream for name in asked.classes}
        self._written_payloads: set[str] = set()
        self.resumed = False
        self.left_out = 0

    def run(self, sink: Pipe | PartFile) -> LineCounts:
        """Everything, or an exception: what was written until then is gone on from. Returns the lines by kind."""
        with self._interrupts.caught(), self._meter:
            self._meter.begin("exporting", size_bytes=None)
            reached = self._gone_on(sink.earlier()) or self._begin(sink)
            while not reached.whole:
                with self._interrupts.shielded():
                    reached = self._step(sink, reached)
            sink.finish(line_of(self._end(reached)))
        self.left_out = reached.left_out
        return reached.counts

    # -- beginning and end

    def _gone_on(self, earlier: Reached | None) -> Reached | None:
        """None where there is nothing to go on from: a class was resumed since, so that what was read is no more."""
        if earlier is None:
            return None
        self._check_same(earlier.header)
        self.resumed = self._stands(earlier.header, self._classes())
        return earlier if self.resumed else None

    def _begin(self, sink: Pipe | PartFile) -> Reached:
        header = Header(
            format=FORMAT,
            source=self._copy.name,
            at_ms=self._ports.clock.now_ms(),
            live=self._asked.live,
            payloads=self._asked.payloads,
            classes=self._classes(),
        )
        line = line_of(header)
        reached = Reached(header=header, bytes_written=len(line), digest=chained("", line))
        sink.write(line, reached)
        return reached

    def _end(self, reached: Reached) -> End:
        now = self._classes()
        if not self._stands(reached.header, now):
            raise InvalidInput("--class", got="a class that was resumed meanwhile", expected=_SETTLED)
        return End(at_ms=self._ports.clock.now_ms(), digest=reached.digest, classes=now, counts=reached.counts)

    def _stands(self, header: Header, now: Sequence[ClassThen]) -> bool:
        """The classes are stopped as they were at the beginning; a live export does not ask."""
        before = {then.name: (then.pause, then.halt) for then in header.classes}
        return self._asked.live or all(before[then.name] == (then.pause, then.halt) for then in now)

    def _classes(self) -> tuple[ClassThen, ...]:
        classes = tuple(self._then(name) for name in self._asked.classes)
        for then in classes:
            if self._asked.live and self._settings.classes[then.name].ordered and not then.settled:
                expected = "one that is halted and settled: the jobs of a match cannot be read at one moment"
                raise InvalidInput("--live", got="an ordered class", expected=expected)
            if not self._asked.live and not then.settled:
                raise InvalidInput("--class", got="a class that is running", expected=_SETTLED)
        return classes

    def _then(self, name: str) -> ClassThen:
        control = self._ports.ledger.read_control(name)
        in_flight = count_inflight(self._ports, self._settings.classes[name])
        flags = [flag for flag in (control.pause, control.halt) if flag is not None]
        committed = any(self._ports.clock.now_ms() >= flag.at_ms + HANDOVER_LEASE_MS for flag in flags)
        if not committed:  # a tick that has not seen it yet may still admit
            return ClassThen(name=name, in_flight=in_flight)
        return ClassThen(name=name, in_flight=in_flight, pause=control.pause, halt=control.halt)

    def _check_same(self, header: Header) -> None:
        asked = (self._copy.name, self._asked.live, self._asked.payloads, set(self._asked.classes))
        if (header.source, header.live, header.payloads, set(header.names)) != asked:
            expected = "the same deployment, classes and options as when it was interrupted, or another file"
            raise InvalidInput("--out", got="the beginning of another export", expected=expected)

    # -- page by page

    def _step(self, sink: Pipe | PartFile, reached: Reached) -> Reached:
        read = partial(self._copy.page, reached.resume)
        page = patiently(read, self._ports.clock, self._meter, self._interrupts)
        digest, counts, lines = reached.digest, reached.counts, []
        begun_ms = reached.header.at_ms
        for record in self._wanted(page, begun_ms=begun_ms):
            line = line_of(record)
            digest, counts = chained(digest, line), counts.and_one(record)
            lines.append(line)
        content = b"".join(lines)
        written = reached.bytes_written + len(content)
        reached = replace(
            reached,
            bytes_written=written,
            digest=digest,
            counts=counts,
            resume=page.resume,
            whole=page.resume is None,
            left_out=reached.left_out + sum(self._joined(record, begun_ms) for record in page.records),
        )
        sink.write(content, reached)
        self._meter.show(bytes_read=written, lines=counts.lines)
        return reached

    def _wanted(self, page: RecordPage, *, begun_ms: int) -> Iterator[FileRecord]:
        """A job that ends the page is read whole at once, so that each page is complete in itself: the outputs that
        begin the next one are known already."""
        for group in _groups(page.records):
            first = group[0]
            if isinstance(first, Job):
                if first.job_class not in self._asked.classes or self._joined(first, begun_ms):
                    continue
                outputs = [record for record in group[1:] if isinstance(record, StoredOutput)]
                is_last = page.resume is not None and group[-1] is page.records[-1]
                yield from self._whole(first, outputs, incomplete=is_last)
            elif not isinstance(first, StoredOutput) and self._is_wanted(first, begun_ms):
                yield first

    def _joined(self, record: Record, begun_ms: int) -> bool:
        """A match's line ends where it did at the beginning. By its submitter's clock, so that it is counted and said:
        one that goes ahead of this one has joined before."""
        if not isinstance(record, Job) or record.job_class not in self._asked.classes:
            return False
        return record.seq > 0 and record.created_ms >= begun_ms

    def _whole(self, job: Job, outputs: Sequence[StoredOutput], *, incomplete: bool) -> Iterator[FileRecord]:
        if not self._asked.live and job.state is State.QUEUED:
            raise InvalidInput("--class", got="a job in flight", expected=_SETTLED)
        moves = self._asked.live and job.state is not State.DONE and (outputs or incomplete)
        if incomplete or moves:
            job, outputs = self._at_one_moment(job)
        if self._asked.payloads and job.payload_key and job.payload_key not in self._written_payloads:
            if len(self._written_payloads) == _PAYLOADS_REMEMBERED:
                self._written_payloads.clear()
            self._written_payloads.add(job.payload_key)
            body = self._ports.blobs.read(job.payload_key, start=0, length=MAX_PAYLOAD_BYTES)
            yield StoredPayload(key=job.payload_key, text=body.decode())
        yield job
        yield from outputs

    def _at_one_moment(self, job: Job) -> tuple[Job, list[StoredOutput]]:
        """The row and exactly its outputs: nothing was committed between two readings of it. An output without its
        cursor's commit would make its chunk run into it, and a cursor without its output would lose a result."""
        before = job
        for _ in range(_TRIES):
            outputs = self._ports.ledger.outputs(job.job_id)
            now = self._ports.ledger.read_job(job.job_id)
            if now is None:
                break
            if (now.state, now.cursor) == (before.state, before.cursor):
                return now, [StoredOutput(job_id=job.job_id, output=output) for output in outputs]
            before = now
        raise LedgerUnavailable("a job moved whenever it was read")

    def _is_wanted(self, record: Record, begun_ms: int) -> bool:
        match record:
            case Run(key=key, state=state):
                fresh = key.minute_ms >= begun_ms - RUNS_KEPT_MS
                return key.job_class in self._asked.classes and (fresh or state in (RunState.OPEN, RunState.PLANNED))
            case Control(job_class=job_class):
                return job_class in self._asked.classes
            case StoredRate(upstream=upstream):
                return upstream in self._upstreams
        return False


def _groups(records: Sequence[Record]) -> Iterator[list[Record]]:
    """A job with its outputs; everything else by itself. Outputs that begin a page belong to the page before."""
    group: list[Record] = []
    for record in records:
        if isinstance(record, StoredOutput) and group and isinstance(group[0], Job):
            group.append(record)
            continue
        if group:
            yield group
        group = [record]
    if group:
        yield group
