"""Names of classes that would collide with something else in the stack: a line about the class, not a stack trace."""

from __future__ import annotations

from pathlib import Path

import aws_cdk as cdk
import pytest

from infra.bundle import Bundle
from infra.job_class import class_id
from infra.stack import SluiceStack
from infra.stack_faults import OWN_IDS, stack_faults
from shared.domain.settings import ClassSettings, Settings
from tests.infra.conftest import cdk_context
from tests.infra.test_app import synth
from tests.infra.tree import CONFIG, plant
from tests.infra.whole_app import SHAPES


def faults_of(*names: str, kind: str = "sim") -> list[str]:
    classes = {name: ClassSettings(name=name, kind=kind) for name in names}
    return stack_faults(Settings(classes=classes), stack_name="Sluice")


@pytest.mark.parametrize("name", ["pacer", "producers", "webhook", "webhook_url", "dead_letter_reader", "customer_key"])
def test_a_class_cannot_take_the_name_of_a_part_of_the_stack(name: str) -> None:
    assert faults_of(name, "replays") == [
        f"classes.{name}: got the resource name of the stack's own part ({class_id(name)}), expected its own"
    ]


def test_a_class_cannot_take_the_name_of_a_kinds_layer() -> None:
    assert faults_of("thumbs_dependencies", kind="thumbs") == [
        "classes.thumbs_dependencies: got the resource name of the layer of kind thumbs (ThumbsDependencies),"
        " expected its own"
    ]


def test_every_name_that_the_stack_itself_takes_is_known(bundle: Bundle) -> None:
    app = cdk.App(analytics_reporting=False, context=cdk_context())
    settings = SHAPES["everything, under a key of its own"]
    stack = SluiceStack(app, "Sluice", settings=settings, bundle=bundle)
    app.synth()
    classes = {class_id(name) for name in settings.classes}
    assert {child.node.id for child in stack.node.children} - classes == OWN_IDS


def test_the_app_ends_with_that_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = plant(tmp_path / "tree")
    (root / "sluice.toml").write_text(CONFIG.replace("[classes.session_sweep]", "[classes.pacer]"))
    assert synth(root, tmp_path / "out") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "classes.pacer: got the resource name of the stack's own part (Pacer), expected its own"
