"""Pages wrap at 120 characters, their links lead somewhere, and the files that they name exist.

Not wrapped: tables, links and code blocks. A row of a table is one line, and neither an address nor a command may be
broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture import ROOT

WIDTH = 120
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]*)\)")
NAMED = re.compile(r"`((?:shared|functions|infra|ops|tests|docs)/[\w./-]*\w/?)(?:::\w+)?`")
NOT_HERE = re.compile(r"chat_review")
"""The kind that a page lets its reader write."""

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines outside of code blocks, with their numbers."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            yield number, line


def too_long(text: str) -> list[int]:
    return [
        number
        for number, line in prose(text)
        if len(line) > WIDTH
        and not line.lstrip().startswith("|")
        and "](" not in line
        and not re.search(r"https?://", line)
    ]


def anchors(page: Path) -> set[str]:
    """The headings as GitHub names them: small letters, without punctuation, a hyphen for each space."""
    headings = (line.lstrip("#").strip() for _, line in prose(page.read_text(encoding="utf-8")) if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path, text: str) -> list[str]:
    found = []
    for target in LINK.findall("\n".join(line for _, line in prose(text))):
        path, _, anchor = target.partition("#")
        if re.match(r"https?:|mailto:", target):
            continue
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            found.append(target)
    return found


@each_page
def test_a_page_wraps_at_120(page: Path) -> None:
    assert too_long(page.read_text(encoding="utf-8")) == []


@each_page
def test_a_page_s_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page, page.read_text(encoding="utf-8")) == []


@each_page
def test_a_page_names_no_file_that_is_not_there(page: Path) -> None:
    named = NAMED.findall(page.read_text(encoding="utf-8"))
    assert [path for path in named if not (ROOT / path).exists() and not NOT_HERE.search(path)] == []


def test_the_checkers_are_awake() -> None:
    long = "word " * 30
    assert too_long(f"short\n{long}") == [2]
    assert too_long(f"```\n{long}\n```\n| {long} |\n{long} <https://example.com>") == []
    here = ROOT / "README.md"
    text = "[a](docs/protocol.md#i5-order) [b](docs/none.md) [c](docs/protocol.md#i77) [d](https://example.com)"
    assert broken_links(here, text) == ["docs/none.md", "docs/protocol.md#i77"]
    assert NAMED.findall("`shared/core/model.py`, `tests/x.py::test_y`, `ops`") == [
        "shared/core/model.py",
        "tests/x.py",
    ]
