"""The command line over the virtual world: what it prints, how it ends, and what is in the ledger afterwards."""

from __future__ import annotations

import getpass
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from ops.cli import main
from ops.simulator.sluice_world import SimSluice
from ops.transfer.copying import LedgerCopy
from shared.domain.control import Control
from shared.domain.job import Job, NewJob
from shared.domain.settings import ClassSettings, Settings
from shared.memory.copy import MemoryCopy
from shared.operate.ports import Mappings, MetricHistory
from shared.ports import Ports
from tests.commands.memory import MemoryHistory, MemoryMappings

CLASS = "replays"

ARN = "arn:aws:sts::123456789012:assumed-role/Operators/ada@studio.example"
NOBODY = f"{getpass.getuser()}, no AWS identity"
ADA, BOB = f"ada ({NOBODY})", f"bob ({NOBODY})"
"""How --by is recorded where AWS does not say who it is."""


def settings(**changes: Any) -> Settings:
    fields: dict[str, Any] = {"kind": "sim", "slots": 20, "declared_service_s": 0.5, "priorities": 3}
    return Settings(classes={CLASS: ClassSettings(name=CLASS, **(fields | changes))})


@dataclass(slots=True)
class World:
    """Is an `Access` too. `broken` ports, and a `copy` that fails, stand for the world's own."""

    sluice: SimSluice = field(default_factory=lambda: SimSluice(settings(), seed=1))
    deployed: frozenset[str] = frozenset({CLASS})
    broken: dict[str, Any] = field(default_factory=dict)
    arn: str | None = None
    lanes: MemoryMappings = field(default_factory=MemoryMappings)
    past: MetricHistory | None = None
    copy: LedgerCopy | None = None

    def settings(self) -> Settings:
        return self.sluice.settings

    def ports(self) -> Ports:
        return replace(self.sluice.ports, **self.broken)

    def deployed_classes(self) -> frozenset[str]:
        return self.deployed

    def caller_arn(self) -> str | None:
        return self.arn

    def mappings(self) -> Mappings:
        self.lanes.deploy(self.settings())
        return self.lanes

    def history(self) -> MetricHistory:
        return self.past or MemoryHistory(self.sluice.metrics.sets)

    def ledger_copy(self) -> LedgerCopy:
        return self.copy or MemoryCopy(self.sluice.ledger)

    @property
    def rows(self) -> dict[str, Job]:
        return self.sluice.rows

    @property
    def control(self) -> Control:
        return self.sluice.ledger.read_control(CLASS)

    def submit(self, count: int, payload: str = "{}", **fields: Any) -> None:
        """j0, j1, ..., each of a match of its own unless `match_id` is given."""
        self.sluice.submit(
            [
                NewJob(**({"job_id": f"j{n}", "job_class": CLASS, "match_id": f"m{n}", "payload": payload} | fields))
                for n in range(count)
            ]
        )

    def json(self, *arguments: object) -> dict[str, Any]:
        """What the command prints with --json; it has to succeed, and to print what any reader takes for JSON."""
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        figures: dict[str, Any] = json.loads(
            result.stdout, parse_constant=lambda name: pytest.fail(f"not JSON: {name}")
        )
        return figures

    def run(self, *arguments: object, stdin: bytes | None = None) -> Result:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin, obj=self)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert "Traceback" not in result.output
        return result


def worked(jobs: int, *, minutes: int, **changes: Any) -> World:
    """A world in which this many jobs of 10 s each were submitted and worked for a while."""
    world = World(sluice=SimSluice(settings(declared_service_s=10.0, **changes), seed=1))
    world.submit(jobs, '{"chunk_ms": 10000}')
    world.sluice.run(minutes * 60_000)
    return world


# -- lines of a file

GOOD = {"job_id": "j1", "job_class": CLASS, "match_id": "m1", "payload": {"n": 1}}


def line(**changes: Any) -> bytes:
    return json.dumps(GOOD | changes).encode() + b"\n"


def lines(count: int, *, start: int = 0) -> bytes:
    return b"".join(line(job_id=f"j{number}", match_id=f"m{number % 7}") for number in range(start, start + count))


ID_EXPECTED = "expected a string of 1 to 1024 bytes of UTF-8"
DUE_EXPECTED = "expected ISO 8601 with an offset, like 2026-11-30T12:00:00Z or 2026-11-30T13:00:00+01:00"
