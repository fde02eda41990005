"""Summarise a match replay: one model call per segment of the blob, one summary object at the end.

Payload: {"replay_key": "<object key>"}. The cursor is "<segment number>:<byte offset>". Each chunk's output is its
segment's summary; the last chunk folds them into `summaries/<job>.json`, which is written once whatever happens.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from shared.domain.job import Job
from shared.errors import BadAnswer, BadPayload
from shared.kind import Chunk, ChunkContext, count_tokens, payload_text

SEGMENT_BYTES: Final = 2048
"""The most that one call of the upstream is given of a replay."""

INSTRUCTIONS: Final = (
    "You are given one segment of a match's record, which may begin or end inside a game. Answer with one JSON"
    ' object and nothing else: {"summary": {"players": [names], "half_moves": n, "captures": n, "checks": n,'
    ' "results": [results], "opening_line": text, "closing_line": text}}. Leave out what the segment does not say.'
)
"""For an upstream that is a model. An inference API with a task of its own may ignore it."""

calls_per_chunk: Final = 1


def process_chunk(job: Job, cursor: str, context: ChunkContext) -> Chunk:
    number, offset = _position(cursor)
    data = context.read_blob(payload_text(job, "replay_key"), start=offset, length=SEGMENT_BYTES + 1)
    if not data:
        raise BadPayload("replay_key: an object without content")
    segment = cut(data, SEGMENT_BYTES)
    answer = context.call_upstream(
        {"instructions": INSTRUCTIONS, "text": segment.decode("utf-8", "replace"), "segment": number}
    )
    count_tokens(answer, context)
    if not isinstance(answer.get("summary"), dict):
        raise BadAnswer("summary: expected an object")
    output = {"segment": number, "bytes": len(segment), "summary": answer["summary"]}
    if len(segment) < len(data):
        return Chunk(next_cursor=f"{number + 1:06d}:{offset + len(segment)}", output=output)
    key = f"summaries/{hashlib.sha256(job.job_id.encode()).hexdigest()}.json"
    summary = fold([*context.outputs(), output])
    context.put_blob_once(key, json.dumps(summary, ensure_ascii=False).encode(), content_type="application/json")
    return Chunk(next_cursor=None, output=output | {"summary_key": key})


def cut(data: bytes, limit: int) -> bytes:
    """The first whole lines of `data`, at most `limit` bytes; without a line end, whole UTF-8 characters."""
    if len(data) <= limit:
        return data
    line_end = data.rfind(b"\n", 0, limit) + 1
    if line_end:
        return data[:line_end]
    end = limit
    while end > max(1, limit - 4) and data[end] & 0b1100_0000 == 0b1000_0000:
        end -= 1
    return data[:end]


def fold(segments: list[dict[str, Any]]) -> dict[str, Any]:
    """One summary of a whole replay from those of its segments, in order."""
    parts = [segment["summary"] for segment in segments]
    players = [name for part in parts for name in part.get("players", ())]
    return {
        "segments": len(parts),
        "bytes": sum(segment["bytes"] for segment in segments),
        "players": list(dict.fromkeys(players)),
        "half_moves": sum(part.get("half_moves", 0) for part in parts),
        "captures": sum(part.get("captures", 0) for part in parts),
        "checks": sum(part.get("checks", 0) for part in parts),
        "results": [result for part in parts for result in part.get("results", ())],
        "opening_line": parts[0].get("opening_line"),
        "closing_line": parts[-1].get("closing_line"),
    }


def _position(cursor: str) -> tuple[int, int]:
    if not cursor:
        return 0, 0
    number, offset = cursor.split(":")
    return int(number), int(offset)
