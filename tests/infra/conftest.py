"""One synth for the whole session: jsii takes seconds to start and tens of milliseconds per construct."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template

from infra.bundle import Bundle
from infra.stack import SluiceStack
from shared.domain.settings import AbortRules, ClassSettings, RetrySettings, Schedule, Settings, UpstreamSettings
from tests.infra.shape import Shape
from tests.infra.whole_app import SHAPES

ShapeOf: TypeAlias = Callable[[str], Shape]

ROOT = Path(__file__).resolve().parents[2]


def cdk_context() -> dict[str, Any]:
    """The flags that `cdk` would hand in, or the tests would look at another template than the one deployed."""
    context: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text())["context"]
    return context


@pytest.fixture(scope="session")
def settings() -> Settings:
    """Two classes that differ in everything the stack reads."""
    summary = ClassSettings(
        name="replay_summary",
        kind="replay_summary",
        upstream="inference",
        tick_interval_s=60,
        live_share=0.3,
        slots=20,
        batch_size=1,
        function_timeout_s=120,
        memory_mb=512,
        abort=AbortRules(spend_usd=5.0),
    )
    sweep = ClassSettings(
        name="session_sweep",
        kind="session_sweep",
        tick_interval_s=300,
        live_share=0.9,
        slots=5,
        batch_size=10,
        function_timeout_s=60,
        memory_mb=256,
        retry=RetrySettings(max_crashes=7),
        options={"sessions_table": "game-sessions"},
    )
    inference = UpstreamSettings(name="inference", endpoint="http://127.0.0.1:1", limit_per_s=8.0)
    return Settings(
        namespace="SluiceTest",
        pacer_timeout_s=45,
        upstreams={"inference": inference},
        classes={"replay_summary": summary, "session_sweep": sweep},
    )


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Assets of one line each: these tests are about the template."""
    root = tmp_path_factory.mktemp("bundle")
    staged = Bundle(code=root / "code", layer=root / "layer")
    for directory in (staged.code, staged.layer):
        directory.mkdir()
        (directory / "content.py").write_text("VALUE = 1\n")
    return staged


@pytest.fixture(scope="session")
def shape(settings: Settings, bundle: Bundle) -> Shape:
    return synth_shape(settings, bundle, ephemeral=False)


@pytest.fixture(scope="session")
def ephemeral_shape(settings: Settings, bundle: Bundle) -> Shape:
    return synth_shape(settings, bundle, ephemeral=True)


@pytest.fixture(scope="session")
def door_settings() -> Settings:
    """A class that only the webhook starts."""
    documents = ClassSettings(name="documents", kind="sim", webhook=True, schedule=Schedule.REPAIR)
    return Settings(namespace="SluiceTest", classes={"documents": documents})


@pytest.fixture(scope="session")
def door_shape(door_settings: Settings, bundle: Bundle) -> Shape:
    """A stack with the webhook."""
    return synth_shape(door_settings, bundle, ephemeral=False)


@pytest.fixture(scope="session")
def shape_of(bundle: Bundle) -> ShapeOf:
    """One of `SHAPES` by its name: one synth for all tests that only read the template."""
    return cache(lambda name: synth_shape(SHAPES[name], bundle, ephemeral=False))


def synth_shape(settings: Settings, bundle: Bundle, *, ephemeral: bool) -> Shape:
    app = cdk.App(analytics_reporting=False, context=cdk_context())
    stack = SluiceStack(app, "Sluice", settings=settings, bundle=bundle, ephemeral=ephemeral)
    return Shape(stack=stack, template=Template.from_stack(stack))
