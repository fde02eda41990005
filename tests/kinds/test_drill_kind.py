"""The drill's own kind: it waits, leaves an output a chunk, and dies once, where it is told to."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from functions.worker.kinds import drill
from shared.domain.job import StartMark
from shared.errors import BadPayload
from tests.kinds.chunks import FakeContext, a_job, run_to_end


class Died(BaseException):
    """Instead of this process."""


@pytest.fixture(autouse=True)
def mortal(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(code: int) -> None:
        raise Died(code)

    monkeypatch.setattr("os._exit", die)


def test_a_job_leaves_an_output_a_chunk() -> None:
    context = FakeContext()
    assert run_to_end(drill.process_chunk, a_job({"chunks": 3}), context) == ["", "1", "2"]
    assert context.outputs() == [{"chunk": 0}, {"chunk": 1}, {"chunk": 2}]
    assert run_to_end(drill.process_chunk, a_job({}), FakeContext()) == [""]


def test_it_dies_before_the_chunk_that_it_is_told_and_not_when_it_is_delivered_again() -> None:
    job = a_job({"chunks": 2, "die_at": 1})
    assert drill.process_chunk(job, "", FakeContext()).next_cursor == "1"
    with pytest.raises(Died):
        drill.process_chunk(job, "1", FakeContext())
    again = replace(job, mark=StartMark(epoch=1, cursor="1", receives=2))
    assert drill.process_chunk(again, "1", FakeContext()).next_cursor is None


@pytest.mark.parametrize(
    "payload",
    [[], {"chunks": 0}, {"chunks": True}, {"chunks": 1001}, {"seconds": -1}, {"seconds": 61}, {"die_at": "1"}],
)
def test_a_payload_that_makes_no_sense_is_the_jobs_failure(payload: Any) -> None:
    with pytest.raises(BadPayload):
        drill.process_chunk(a_job(payload), "", FakeContext())
