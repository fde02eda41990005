"""Fixtures of the suites that run on the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ops.local.emulator import Emulator


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator() as running:
        yield running


@pytest.fixture(scope="module")
def dynamodb(emulator: Emulator) -> Any:
    return emulator.client("dynamodb")


@pytest.fixture(scope="module")
def sqs(emulator: Emulator) -> Any:
    return emulator.client("sqs")
