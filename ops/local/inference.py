"""The demo's "models": an extractive match summary, a label by its words. Pure: one text has one answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

TAG: Final = re.compile(r'^\[(\w+)\s+"(.*)"\]$')
COMMENT: Final = re.compile(r"\{[^}]*\}")
MOVE_NUMBER: Final = re.compile(r"^(\d+)\.+")
RESULTS: Final = frozenset({"1-0", "0-1", "1/2-1/2", "*"})
LINE_CHARS: Final = 80
BYTES_PER_TOKEN: Final = 4
MAX_DIGITS: Final = 9


def summarise(text: str) -> dict[str, Any]:
    """What a reader wants to know of a piece of a replay, and what the call would cost in tokens.

    A piece may hold several games, or start or end in the middle of one: then it has no players, or no result.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    tags = [(match[1], match[2]) for line in lines if (match := TAG.match(line))]
    record = [" ".join(COMMENT.sub(" ", line).split()) for line in lines if not TAG.match(line)]
    moves, numbers, results = _read_moves(" ".join(record))
    summary = {
        "event": next((value for name, value in tags if name == "Event"), None),
        "players": list(dict.fromkeys(value for name, value in tags if name in ("White", "Black"))),
        "half_moves": len(moves),
        "first_move": numbers[0] if numbers else None,
        "last_move": numbers[-1] if numbers else None,
        "captures": sum("x" in move for move in moves),
        "checks": sum(move.endswith(("+", "#")) for move in moves),
        "results": results,
        "opening_line": _clip(record[0]) if record else None,
        "closing_line": _clip(record[-1]) if record else None,
    }
    return {"summary": summary, "usage": {"input_tokens": tokens(text), "output_tokens": tokens(repr(summary))}}


def classify(text: str, labels: Sequence[str]) -> dict[str, Any]:
    """The label whose words stand earliest in the text; the last one, which should be "other", where none does."""
    read = text.casefold()
    places = {label: read.find(label.replace("_", " ").casefold()) for label in labels}
    found = [label for label in labels if places[label] >= 0]
    label = min(found, key=lambda label: (places[label], label)) if found else labels[-1]
    return {"label": label, "usage": {"input_tokens": tokens(text), "output_tokens": tokens(label)}}


def tokens(text: str) -> int:
    """A token count that rounds up, as bills do."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def _read_moves(record: str) -> tuple[list[str], list[int], list[str]]:
    moves: list[str] = []
    numbers: list[int] = []
    results: list[str] = []
    for word in record.split():
        if word in RESULTS:
            results.append(word)
            continue
        number = MOVE_NUMBER.match(word)
        if number:
            numbers.append(int(number[1][:MAX_DIGITS]))
        if move := word[number.end() if number else 0 :]:
            moves.append(move)
    return moves, numbers, results


def _clip(line: str) -> str:
    return line if len(line) <= LINE_CHARS else line[: LINE_CHARS - 1] + "…"
