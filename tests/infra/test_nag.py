"""cdk-nag's AwsSolutions and HIPAA Security packs find nothing that is not excepted, with a reason, where it stands.

They run here and not at synth: whoever deploys needs neither them nor the seconds that they take.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_sqs as sqs
from cdk_nag import AwsSolutionsChecks, HIPAASecurityChecks
from constructs import IConstruct

from infra import nag
from infra.bundle import Bundle
from infra.stack import SluiceStack
from shared.domain.settings import Settings
from tests.infra.conftest import cdk_context
from tests.infra.whole_app import SHAPES


@dataclass(kw_only=True)
class Review:
    """What the packs found, exceptions aside: (construct path, rule). And the exceptions: the same, with the reason."""

    findings: set[tuple[str, str]]
    exceptions: dict[tuple[str, str], str] = field(default_factory=dict)

    def covers(self, exception: tuple[str, str]) -> set[tuple[str, str]]:
        path, rule = exception
        return {each for each in self.findings if each[1] == rule and f"{each[0]}/".startswith(f"{path}/")}


def packs_find(stack: cdk.Stack) -> set[tuple[str, str]]:
    """Every finding of both packs, of an app that nothing has been synthesised from yet."""
    app = stack.node.root
    assert isinstance(app, cdk.App)
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app), HIPAASecurityChecks(app))
    with suppress(RuntimeError):  # which is how a finding ends a synth
        app.synth()
    report = json.loads((Path(app.outdir) / "validation-report.json").read_text())
    return {
        (construct["constructPath"], violation["ruleName"])
        for pack in report["pluginReports"]
        for violation in pack["violations"]
        for construct in violation["violatingConstructs"]
    }


@pytest.fixture(scope="module", params=SHAPES)
def review(request: pytest.FixtureRequest, bundle: Bundle) -> Review:
    """With the exceptions written down and none of them told to the packs."""
    exceptions: dict[tuple[str, str], str] = {}

    def write_down(construct: IConstruct, reasons: Mapping[str, str]) -> None:
        for rule, reason in reasons.items():
            assert (construct.node.path, rule) not in exceptions, "excepted twice"
            exceptions[construct.node.path, rule] = reason

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nag, "acknowledge", write_down)
        found = packs_find(synth(SHAPES[request.param], bundle))
    return Review(findings=found, exceptions=exceptions)


def synth(settings: Settings, bundle: Bundle) -> cdk.Stack:
    app = cdk.App(analytics_reporting=False, context=cdk_context())
    return SluiceStack(app, "Sluice", settings=settings, bundle=bundle)


def test_the_packs_have_no_finding_that_is_not_excepted(bundle: Bundle) -> None:
    assert packs_find(synth(SHAPES["everything"], bundle)) == set()


def test_no_shape_has_a_finding_that_is_not_excepted(review: Review) -> None:
    excepted = {finding for exception in review.exceptions for finding in review.covers(exception)}
    assert review.findings - excepted == set()


def test_every_exception_is_of_a_finding_that_would_be_there(review: Review) -> None:
    assert review.exceptions
    unused = [exception for exception in review.exceptions if not review.covers(exception)]
    assert unused == []


def test_every_exception_is_about_one_thing_and_none_about_the_stack(review: Review) -> None:
    for exception in review.exceptions:
        path, _ = exception
        assert path.count("/") >= 1, f"{exception} is about the whole stack"
        assert len(review.covers(exception)) == 1, exception


def test_every_reason_is_a_sentence(review: Review) -> None:
    for reason in review.exceptions.values():
        assert re.fullmatch(r"[A-Z][^\n]{40,300}\.", reason), reason


def test_the_packs_do_find_what_is_wrong() -> None:
    stack = cdk.Stack(cdk.App(analytics_reporting=False, context=cdk_context()), "Wrong")
    sqs.Queue(stack, "Open")
    assert {rule for _, rule in packs_find(stack)} >= {"AwsSolutions-SQS3", "AwsSolutions-SQS4"}


def test_the_summary(review: Review) -> None:
    """What a security review is shown: `pytest tests/infra/test_nag.py -k summary -s`."""
    by_rule = Counter(rule for _, rule in review.exceptions)
    print(f"\n{len(review.findings)} findings, {len(review.exceptions)} of them excepted, by rule:")
    for rule, count in sorted(by_rule.items()):
        print(f"  {count:3} {rule}")
    assert len(review.findings) == len(review.exceptions)
