"""Memory stays flat however long the input is: a million lines cost what a thousand do."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
from msgspec.structs import replace

from ops.long_run import Meter
from ops.simulator.sluice_world import SimSluice
from ops.submission.csv_rows import CsvShape
from ops.submission.load import KEPT_REFUSALS, Plan, Submission
from ops.submission.source import Format, Source
from shared.domain.job import Created, Job
from shared.domain.settings import ClassSettings, Settings

LINES, TRACED_LINES = 200_000, 20_000
PEAK_BYTES = 8 * 1024 * 1024
"""One wave of 800 rows, twice, and the readers' buffers."""
GROWTH_BYTES = 128 * 1024
"""Over the traced lines: 7 bytes a line, less than any object."""


class NoLedger:
    """Creates nothing, and notes how many rows a write has and how much memory is in use while it does."""

    def __init__(self) -> None:
        self.in_use_bytes: list[int] = []
        self.writes: Counter[int] = Counter()

    def create(self, jobs: Sequence[Job]) -> list[Created]:
        self.writes[len(jobs)] += 1
        if tracemalloc.is_tracing():
            self.in_use_bytes.append(tracemalloc.get_traced_memory()[0])
        return [Created.CREATED] * len(jobs)


class Generated(io.RawIOBase):
    """A file that is made as it is read; every tenth line is bad. Tracing is dear, so that only its end is traced."""

    def __init__(self) -> None:
        self._number = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        self._number += 1
        if self._number > LINES:
            return b""
        if self._number == LINES - TRACED_LINES:
            tracemalloc.start()
        if self._number % 10 == 0:
            return b'{"job_id": "truncated\n'
        return (LINE % self._number).encode()


LINE = json.dumps({"job_id": "j%d", "job_class": "c", "match_id": "m", "payload": {"text": "x" * 200}}) + "\n"


class Nowhere(io.TextIOBase):
    def write(self, text: str, /) -> int:
        return len(text)


@pytest.fixture
def tracing() -> Iterator[None]:
    yield
    tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.usefixtures("tracing")
def test_200_000_lines_fit_into_a_few_megabytes() -> None:
    settings = Settings(classes={"c": ClassSettings(name="c", kind="sim")})
    ledger = NoLedger()
    ports = replace(SimSluice(settings, seed=1).ports, ledger=cast(Any, ledger))
    plan = Plan(file_format=Format.JSONL, shape=CsvShape(), strict=False, from_line=1, nonce="n")
    source = Source(name="generated", stream=cast(Any, Generated()), size_bytes=None)

    summary = Submission(ports, settings, plan, Meter(cast(Any, Nowhere()))).run(source)

    assert (summary.created, summary.refused, len(summary.refusals)) == (180_000, 20_000, KEPT_REFUSALS)
    assert ledger.writes == {25: 7_200}, "rows are written in full batches"
    peak_bytes = tracemalloc.get_traced_memory()[1]
    assert peak_bytes < PEAK_BYTES, f"{peak_bytes / 2**20:.1f} MiB"
    waves = ledger.in_use_bytes[32::32]  # one look per wave of 32 batches; the first was partly read before
    assert max(waves[1:]) - waves[0] < GROWTH_BYTES
