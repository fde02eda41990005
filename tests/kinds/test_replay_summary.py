"""`replay_summary`: where a blob is cut, what the cursor means, and one summary whatever happens on the way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.worker.kinds.replay_summary import SEGMENT_BYTES, cut, fold, process_chunk
from ops.local.scenario import make_replay
from ops.local.upstream import summarise
from shared.domain.stats import INPUT_TOKENS, OUTPUT_TOKENS
from shared.errors import BadPayload, ObjectMissing
from shared.memory.resources import MemoryBlobs
from tests.kinds.chunks import FakeContext, a_job, run_to_end

REAL_MATCHES = Path(__file__).resolve().parents[3] / "shared" / "data" / "matches-1997.pgn"
"""Six real games, beside the project where they are present; they are not copied into it."""

JOB = a_job({"replay_key": "replays/1.pgn"}, job_id="Köln vs. 1. FC – Halbfinale")


def over(blob: bytes, *, answers: Any = None) -> FakeContext:
    """A world with this one blob, and a model that reads the text it is given."""

    def model(body: Mapping[str, Any]) -> Mapping[str, Any]:
        return summarise(body["text"])

    blobs = MemoryBlobs()
    blobs.objects["replays/1.pgn"] = blob
    return FakeContext(answers=answers or model, blobs=blobs)


def summary_of(context: FakeContext) -> bytes:
    (name,) = set(context.blobs.objects) - {"replays/1.pgn"}
    assert name.startswith("summaries/")
    return context.blobs.objects[name]


# -- cutting


@pytest.mark.parametrize(
    ("data", "limit", "expected"),
    [
        (b"", 4, b""),
        (b"abcd", 4, b"abcd"),  # all of it fits
        (b"ab\ncd\nef", 7, b"ab\ncd\n"),
        (b"ab\ncd\n", 5, b"ab\n"),
        (b"abc\ndef", 4, b"abc\n"),  # the line end is the last byte that fits
        (b"abcd\nef", 4, b"abcd"),  # no line end within the limit
        ("aé€🏆x".encode(), 3, "aé".encode()),
        ("aé€🏆x".encode(), 5, "aé".encode()),  # 3 bytes of € would be torn
        ("aé€🏆x".encode(), 6, "aé€".encode()),
        ("aé€🏆x".encode(), 9, "aé€".encode()),  # the trophy has 4 bytes
        ("aé€🏆x".encode(), 10, "aé€🏆".encode()),
        (b"\x80" * 20, 8, b"\x80" * 4),  # no UTF-8 at all: still progress
        (b"ab\r\ncd\r\n", 6, b"ab\r\n"),
    ],
)
def test_a_segment_is_whole_lines_or_else_whole_characters(data: bytes, limit: int, expected: bytes) -> None:
    assert cut(data, limit) == expected


@given(st.text(alphabet="a\n\r é€🏆", max_size=200), st.integers(4, 50))
def test_segments_of_any_text_are_its_bytes_and_tear_no_character(text: str, limit: int) -> None:
    rest, segments = text.encode(), []
    while rest:
        segments.append(cut(rest[: limit + 1], limit))
        rest = rest[len(segments[-1]) :]
        assert 0 < len(segments[-1]) <= limit
        segments[-1].decode()  # raises where a character is torn
    assert b"".join(segments) == text.encode()


@given(st.binary(max_size=200), st.integers(4, 50))
def test_segments_of_any_bytes_come_to_an_end(data: bytes, limit: int) -> None:
    rest = data
    while rest:
        segment = cut(rest[: limit + 1], limit)
        assert 0 < len(segment) <= limit
        rest = rest[len(segment) :]


# -- the cursor


def test_the_cursor_is_the_segments_number_and_offset_and_sorts_as_the_segments_do() -> None:
    context = over(b"x" * 99 + b"\n" + b"y" * 5000)
    assert run_to_end(process_chunk, JOB, context) == ["", "000001:100", "000002:2148", "000003:4196"]
    assert [output["segment"] for output in context.outputs()] == [0, 1, 2, 3]
    assert sum(output["bytes"] for output in context.outputs()) == 5100


def test_every_segment_is_one_call_and_its_tokens_are_counted() -> None:
    usage = {"summary": {}, "usage": {"input_tokens": 7, "output_tokens": 2}}
    context = over(b"x" * SEGMENT_BYTES * 2, answers=lambda body: usage)
    run_to_end(process_chunk, JOB, context)
    assert [body["segment"] for body in context.bodies] == [0, 1]
    assert context.counted == {INPUT_TOKENS: 14, OUTPUT_TOKENS: 4}


@pytest.mark.parametrize("size", [1, SEGMENT_BYTES - 1, SEGMENT_BYTES])
def test_a_blob_that_fits_is_one_segment(size: int) -> None:
    context = over(b"x" * size)
    assert run_to_end(process_chunk, JOB, context) == [""]


def test_bytes_that_are_no_text_reach_the_model_as_text() -> None:
    context = over(b"\xff\xfe1. e4\n")
    run_to_end(process_chunk, JOB, context)
    assert context.bodies[0]["text"] == "\ufffd\ufffd1. e4\n"


# -- folding


def test_a_fold_counts_adds_and_keeps_order() -> None:
    first = {"players": ["Zoë", "王"], "half_moves": 3, "captures": 1, "checks": 0, "results": [], "opening_line": "o"}
    last = {"players": ["王", "Noa"], "half_moves": 4, "captures": 0, "checks": 2, "results": ["1-0"]}
    assert fold([{"bytes": 10, "summary": first}, {"bytes": 5, "summary": last | {"closing_line": "c"}}]) == {
        "segments": 2,
        "bytes": 15,
        "players": ["Zoë", "王", "Noa"],
        "half_moves": 7,
        "captures": 1,
        "checks": 2,
        "results": ["1-0"],
        "opening_line": "o",
        "closing_line": "c",
    }


def test_a_model_that_leaves_fields_out_makes_a_poorer_summary_and_no_failure() -> None:
    context = over(b"x", answers=lambda body: {"summary": {}})
    run_to_end(process_chunk, JOB, context)
    assert json.loads(summary_of(context))["half_moves"] == 0


# -- one summary, whatever happens


@cache
def games() -> bytes:
    return make_replay(7, 3, 0, min_bytes=9_000).body


def undisturbed(blob: bytes) -> tuple[int, bytes]:
    context = over(blob)
    cursors = run_to_end(process_chunk, JOB, context)
    return len(cursors), summary_of(context)


def assert_the_same_summary_wherever_it_is_killed(blob: bytes) -> None:
    chunks, expected = undisturbed(blob)
    for number in range(chunks):
        context = over(blob)
        run_to_end(process_chunk, JOB, context, dies_at=number)
        assert summary_of(context) == expected, f"killed at chunk {number} of {chunks}"


def test_killed_at_any_chunk_the_summary_is_byte_for_byte_the_same() -> None:
    assert undisturbed(games())[0] >= 5
    assert_the_same_summary_wherever_it_is_killed(games())


def test_a_summary_that_exists_is_left_as_it_is() -> None:
    context = over(games())
    run_to_end(process_chunk, JOB, context)
    first = summary_of(context)
    context.answers = lambda body: {"summary": {"half_moves": 10**6}}  # the model changed its mind
    run_to_end(process_chunk, JOB, context)
    assert summary_of(context) == first


def test_two_jobs_of_almost_one_name_have_a_summary_each() -> None:
    context = over(games())
    for job_id in ("Köln", "Ko\u0308ln", "köln", "Köln "):
        run_to_end(process_chunk, a_job({"replay_key": "replays/1.pgn"}, job_id=job_id), context)
    assert len(context.blobs.objects) == 1 + 4


@pytest.mark.skipif(not REAL_MATCHES.exists(), reason="the real matches are not beside the project")
def test_real_matches_are_summarised_whole_and_the_same_after_any_kill() -> None:
    blob = REAL_MATCHES.read_bytes()
    summary = json.loads(undisturbed(blob)[1])
    assert summary["bytes"] == len(blob)
    assert len(summary["results"]) == blob.count(b"[Result ") == 6
    assert set(summary["players"]) == {"Garry Kasparov", "Deep Blue (Computer)"}
    half_moves = sum(int(line.split('"')[1]) for line in blob.decode().splitlines() if line.startswith("[PlyCount"))
    assert abs(summary["half_moves"] - half_moves) <= 6  # one annotation a game, at most
    assert_the_same_summary_wherever_it_is_killed(blob)


# -- what is the job's own failure


@pytest.mark.parametrize("payload", [{}, [], "replays/1.pgn", {"replay_key": ""}, {"replay_key": 1}, None])
def test_a_payload_without_a_key_is_the_jobs_failure(payload: Any) -> None:
    with pytest.raises(BadPayload, match=r"replay_key|object"):
        process_chunk(a_job(payload), "", over(b"x"))


def test_an_empty_object_and_a_missing_one_are_told_apart() -> None:
    with pytest.raises(BadPayload, match="without content"):
        process_chunk(JOB, "", over(b""))
    with pytest.raises(ObjectMissing):
        process_chunk(a_job({"replay_key": "replays/2.pgn"}), "", over(b"x"))
