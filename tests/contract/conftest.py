"""One suite over every adapter: memory, AWS on moto, and AWS on the local emulator (marker `e2e`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.local.emulator import DEFAULT_VENV, Emulator
from shared.ports import Blobs, Ledger, Limiter, WorkQueue
from tests.contract.moto_world import moto_aws
from tests.contract.runs import KEY, NEXT
from tests.contract.worlds import NOW_MS, AwsWorld, MemoryWorld, aws_client, memory_world

MEMORY, MOTO, EMULATOR = "memory", "moto", pytest.param("emulator", marks=pytest.mark.e2e)


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """A running emulator's address. SLUICE_EMULATOR names another environment than `make setup` builds."""
    with Emulator(Path(os.environ.get("SLUICE_EMULATOR", DEFAULT_VENV))) as emulator:
        yield emulator.endpoint


@pytest.fixture
def moto_world() -> Iterator[AwsWorld]:
    with moto_aws():
        yield AwsWorld(aws_client())


@pytest.fixture
def emulator_world(endpoint: str) -> AwsWorld:
    return AwsWorld(aws_client(endpoint))


@pytest.fixture(params=[MEMORY, MOTO, EMULATOR])
def world(request: pytest.FixtureRequest) -> MemoryWorld | AwsWorld:
    if request.param == "memory":
        return memory_world()
    found: AwsWorld = request.getfixturevalue(f"{request.param}_world")
    return found


@pytest.fixture(params=[MOTO, EMULATOR])
def aws(request: pytest.FixtureRequest) -> AwsWorld:
    """For what only a network can do: lose answers."""
    found: AwsWorld = request.getfixturevalue(f"{request.param}_world")
    return found


@pytest.fixture
def ledger(world: MemoryWorld | AwsWorld) -> Ledger:
    return world.ledger


@pytest.fixture
def limiter(world: MemoryWorld | AwsWorld) -> Limiter:
    return world.limiter


@pytest.fixture
def queue(world: MemoryWorld | AwsWorld) -> WorkQueue:
    return world.queue


@pytest.fixture
def blobs(world: MemoryWorld | AwsWorld) -> Blobs:
    return world.blobs


@pytest.fixture
def admitted(ledger: Ledger) -> Ledger:
    for key in (KEY, NEXT):
        assert ledger.admit_run(key, source="schedule", now_ms=NOW_MS)
    return ledger
