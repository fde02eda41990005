"""A fresh world, and a file submitted to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.commands.world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def submit(world: World, tmp_path: Path) -> Callable[..., Result]:
    """Submit a file with these bytes."""

    def run(content: bytes, *options: str, name: str = "jobs.jsonl") -> Result:
        path = tmp_path / name
        path.write_bytes(content)
        return world.run("submit", path, *options)

    return run
