"""docs/threat-model.md: every control names a test, and every test that a document names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.architecture import ROOT

DOCUMENTS = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
NAMED = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?")


@cache
def functions_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def missing(text: str) -> list[str]:
    """What a document names and there is not."""
    return [
        f"{path}::{name}" if name else path
        for path, name in NAMED.findall(text)
        if not (ROOT / path).is_file() or (name and name not in functions_in(path))
    ]


def proofs(text: str) -> dict[str, list[tuple[str, str]]]:
    """The tests that each row of the table of abuses names, by the abuse."""
    table = text.partition("| abuse | control | proof |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[1:]]
    assert all(len(row) == 3 for row in rows), rows
    return {abuse: NAMED.findall(proof) for abuse, _, proof in rows}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_test_that_a_document_names_exists(document: Path) -> None:
    assert missing(document.read_text(encoding="utf-8")) == []


def test_every_abuse_has_a_control_that_a_named_test_proves() -> None:
    found = proofs((ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8"))
    assert len(found) > 20
    assert [abuse for abuse, named in found.items() if not any(name for _, name in named)] == []


def test_a_name_that_is_wrong_would_be_noticed() -> None:
    right = "`tests/docs/test_threat_model.py::test_a_name_that_is_wrong_would_be_noticed`, `tests/architecture.py`"
    wrong = "tests/docs/test_threat_model.py::test_that_there_is_not and tests/unit/test_nowhere.py"
    assert missing(right) == []
    assert missing(wrong) == wrong.split(" and ")
    assert proofs("| abuse | control | proof |\n|---|---|---|\n| a | b | by hand |\n\n| c | d | e |") == {"a": []}
