"""Figures as a table of text: the first column is aligned to the left, the others to the right."""

from __future__ import annotations

from collections.abc import Sequence


def cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) if number == 0 else cell.rjust(width) for number, (cell, width) in enumerate(row))
        for row in (list(zip(line, widths, strict=True)) for line in lines)
    )
