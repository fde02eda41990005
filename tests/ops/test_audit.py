"""The audit of pinned packages: a finding fails, no answer does not, and anything else is a fault that is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ops import audit
from ops.audit import Verdict, judge

CLEAN = {"name": "boto3", "version": "1.0", "vulns": []}
UNKNOWN = {"name": "boto3", "skip_reason": "not found"}
BAD = {"name": "urllib3", "version": "1.26.4", "vulns": [{"id": "PYSEC-2021-108", "fix_versions": ["1.26.5"]}]}
NO_NETWORK = "Traceback (most recent call last):\nrequests.exceptions.ConnectionError: Max retries exceeded\n"


def answer_of(*dependencies: object) -> str:
    return json.dumps({"dependencies": dependencies, "fixes": []})


def test_a_finding_fails_and_says_what_where_and_what_would_mend_it() -> None:
    verdict = judge("requirements.txt", answer_of(CLEAN, BAD), "")
    assert verdict.failed
    assert verdict.lines == ("audit: requirements.txt: urllib3 1.26.4 has PYSEC-2021-108, fixed in 1.26.5",)


def test_packages_without_a_finding_are_counted() -> None:
    assert judge("requirements.txt", answer_of(CLEAN, CLEAN, UNKNOWN), "") == Verdict(lines=(), looked_up=2)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ("", NO_NETWORK),
        ("", "ERROR:pip_audit._cli:Could not connect to the vulnerability feed\n"),
        (
            answer_of(UNKNOWN, UNKNOWN),
            "No known vulnerabilities found\n",
        ),  # a mirror without advisories
    ],
)
def test_no_answer_is_no_finding(answer: str, complaint: str) -> None:
    assert judge("requirements.txt", answer, complaint) == Verdict(lines=(), looked_up=0)


def test_anything_else_is_a_fault() -> None:
    verdict = judge("requirements.txt", "", "ERROR:pip_audit._cli:requirement boto3 is not pinned\n")
    assert verdict.failed
    assert verdict.lines == (
        "audit: requirements.txt: pip-audit failed: ERROR:pip_audit._cli:requirement boto3 is not pinned",
    )


def answering(monkeypatch: pytest.MonkeyPatch, *verdicts: Verdict) -> list[Path]:
    """`ask` gives these in turn; what it was asked about."""
    asked: list[Path] = []
    left = iter(verdicts)

    def ask(path: Path, *, timeout_s: float) -> Verdict:
        asked.append(path)
        return next(left)

    monkeypatch.setattr(audit, "ask", ask)
    return asked


def test_the_first_file_that_nobody_knows_ends_it_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, Verdict(lines=()))
    assert audit.audit(audit.files()) == Verdict(
        lines=("audit: skipped from functions/requirements.txt on: no answer from where advisories are looked up",)
    )
    assert asked == [audit.ROOT / "functions/requirements.txt"]


def test_a_finding_of_any_file_fails_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = audit.files()
    bad = Verdict(lines=("bad",), failed=True, looked_up=1)
    answering(monkeypatch, bad, *[Verdict(lines=(), looked_up=1)] * (len(paths) - 1))
    verdict = audit.audit(paths)
    assert verdict.failed
    assert verdict.lines == ("bad", f"audit: {len(paths)} pinned packages looked up")


def test_every_pinned_file_of_the_repository_is_audited() -> None:
    pinned = {
        path
        for pattern in ("*requirements.txt", "functions/**/*requirements.txt", "ops/**/*requirements.txt")
        for path in audit.ROOT.glob(pattern)
    }
    assert set(audit.files()) == pinned
