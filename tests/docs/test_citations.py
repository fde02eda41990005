"""Code, tests and pages cite docs/protocol.md and docs/aws-facts.md by number: every citation leads to a heading.

What counts as a citation: "rule 3", "I7", "fact F8" (and "facts F3, F5", "facts F1 to F12"), and "protocol: the tick",
which names a section, with a step of it ("protocol: the tick, step 5") where the section has numbered steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.architecture import ROOT, our_sources
from tests.model.rules import REMOVALS

PROTOCOL, FACTS = ROOT / "docs" / "protocol.md", ROOT / "docs" / "aws-facts.md"
PAGES = (*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md")))
OTHERS = ("Makefile", "pyproject.toml", "sluice.toml", ".ci/run")
THIS = Path(__file__).resolve().relative_to(ROOT).as_posix()

_LIST = r"(?:(?:,\s*|,?\s+and\s+|\s+to\s+){0}\d+)*"
RULE = re.compile(rf"\b[Rr]ules?\s+(\d+{_LIST.format('')})\b")
INVARIANT = re.compile(r"(?<![\w.-])I(\d{1,2})\b")
FACT = re.compile(rf"\b[Ff]acts?\s+(F\d+{_LIST.format('F')})\b")
SECTION = re.compile(r"\b[Pp]rotocol:\s+")
STEP = re.compile(r",\s+step\s+(\d+)")
GONE = re.compile(r"\bTRAPS\b|\bDESIGN\b")


@dataclass(frozen=True, slots=True)
class Law:
    """What may be cited: numbers, and sections by their names in small letters with how many steps each has."""

    rules: frozenset[int]
    invariants: frozenset[int]
    facts: frozenset[int]
    sections: dict[str, int]


def law_of(protocol: str, facts: str) -> Law:
    def numbers(pattern: str, text: str) -> frozenset[int]:
        return frozenset(int(number) for number in re.findall(pattern, text, flags=re.MULTILINE))

    sections: dict[str, int] = {}
    _, *parts = re.split(r"^## (.+)$", protocol, flags=re.MULTILINE)
    for heading, body in zip(parts[::2], parts[1::2], strict=True):
        steps = len(re.findall(r"^\d+\. ", body, flags=re.MULTILINE))
        for name in (heading, *heading.split(", ")):
            sections[name.strip().lower()] = steps
    return Law(
        rules=numbers(r"^### Rule (\d+): ", protocol),
        invariants=numbers(r"^### I(\d+) ", protocol),
        facts=numbers(r"^### F(\d+) ", facts),
        sections=sections,
    )


@cache
def the_law() -> Law:
    return law_of(PROTOCOL.read_text(encoding="utf-8"), FACTS.read_text(encoding="utf-8"))


def texts() -> Iterator[tuple[str, str]]:
    """Every file that may cite, by its path: all our code, its pages and its settings; not this file's own samples."""
    yield from ((source.path, source.text) for source in our_sources() if source.path != THIS)
    for path in (*PAGES, *(ROOT / name for name in OTHERS)):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def unresolved(text: str, law: Law) -> list[str]:
    """The citations that lead nowhere, each with the line that it begins in."""
    found: list[tuple[int, str]] = []
    for pattern, known in ((RULE, law.rules), (INVARIANT, law.invariants), (FACT, law.facts)):
        for match in pattern.finditer(text):
            if not cited(match[1]) <= known:
                found.append((match.start(), " ".join(match[0].split())))
    found += [(match.start(), match[0]) for match in GONE.finditer(text)]
    found += [
        (match.start(), shown(text[match.start() :]))
        for match in SECTION.finditer(text)
        if not leads_somewhere(text[match.end() :], law)
    ]
    return [f"line {text.count(chr(10), 0, start) + 1}: {citation}" for start, citation in sorted(found)]


def shown(text: str) -> str:
    return " ".join(text[:40].split())


def leads_somewhere(rest: str, law: Law) -> bool:
    words = " ".join(rest[:200].split()).lower()
    names = [name for name in law.sections if re.match(rf"{re.escape(name)}(?!\w)", words)]
    if not names:
        return False
    name = max(names, key=len)
    step = STEP.match(words[len(name) :])
    return step is None or 1 <= int(step[1]) <= law.sections[name]


def cited(numbers: str) -> set[int]:
    """The numbers of "3", "3, 5", "1 to 12", "F3 and F5"; a range is all that lie in it."""
    first, *rest = re.findall(r"(to )?F?(\d+)", re.sub(r"\s+", " ", numbers))
    found = {int(first[1])}
    last = int(first[1])
    for through, number in rest:
        found |= set(range(last, int(number) + 1)) if through else {int(number)}
        last = int(number)
    return found


def test_the_law_is_whole() -> None:
    law = the_law()

    assert law.rules == set(range(1, 6))
    assert law.invariants == set(range(1, 13))
    assert law.facts == set(range(1, len(law.facts) + 1))
    assert {"words", "the rules", "the invariants", "the ledger", "the tick", "the worker", "rate"} <= set(law.sections)
    assert law.sections["the tick"] == 7


def test_every_citation_leads_to_a_heading() -> None:
    found = [f"{path}, {fault}" for path, text in texts() for fault in unresolved(text, the_law())]

    assert not found, "\n".join(found)


def test_what_the_model_takes_away_is_a_rule_or_stands_in_a_section() -> None:
    for removal in REMOVALS:
        rule = RULE.fullmatch(removal.section)
        assert (rule and cited(rule[1]) <= the_law().rules) or removal.section in the_law().sections, removal.section


def test_every_fact_names_its_source() -> None:
    _, *parts = re.split(r"^### (F\d+) .+$", FACTS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    bodies = dict(zip(parts[::2], parts[1::2], strict=True))

    assert [name for name, body in bodies.items() if not re.search(r"^(Source|Measured): \S", body, re.MULTILINE)] == []


def test_the_reader_sees_all_files() -> None:
    paths = {path for path, _ in texts()}

    assert {"shared/ports.py", "docs/protocol.md", "docs/clients/README.md", "README.md", "Makefile"} <= paths
    assert THIS not in paths


SMALL = law_of(
    protocol="## The rules\n### Rule 1: a\n### Rule 2: b\n## The tick\n1. a\n2. b\n## Rate, abort\n"
    "### I1 a\n### I12 b\n",
    facts="### F1 a\n### F2 b\n### F3 c\n",
)


@pytest.mark.parametrize(
    "text",
    (
        "rule 3",
        "Rule 9: a loser stops",
        "(rules 1 to 3)",
        "rules 1, 2 and 7",
        "a line that ends in rule\n    8",
        "(I2)",
        "I13",
        "(I1, I12, fact F4)",
        "facts F1, F9",
        "facts F2 to F4",
        "(protocol: the clock)",
        "protocol: the ticket",
        "(protocol: the tick, step 3)",
        "(TRAPS 4)",
        "DESIGN section 7",
        "see DESIGN.md",
    ),
)
def test_the_checker_catches(text: str) -> None:
    assert unresolved(text, SMALL)


@pytest.mark.parametrize(
    "text",
    (
        "rule 1, and the rules of the house",
        "Rules 1 and 2; by rule",
        "(I1, I12)",
        "facts F1 to F3, in fact",
        "fact F2: both hold it",
        "(protocol: the tick, step 2)",
        "(protocol:\n the rules)",
        "(protocol: rate, fact F3)",
        "protocol: abort.",
        "AbortRules, ruled 7, GI13, v1.I99, F401",
        "designed; a design of 4; trapped",
    ),
)
def test_the_checker_lets_pass(text: str) -> None:
    assert unresolved(text, SMALL) == []


def test_a_fault_is_named_with_its_line() -> None:
    assert unresolved("one\ntwo (I7)\nthree, fact F8", SMALL) == ["line 2: I7", "line 3: fact F8"]
