"""`ops drill` on the emulator: the whole of it passes on the deployed code, and the part that tries a check fails where
that one condition is taken out of what is deployed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra.bundle import Platform, stage
from ops.local.deployment import deploy
from ops.local.emulator import ROOT, Emulator
from ops.local.processes import scrubbed_environment
from tests.e2e.deployed_code import deploy_code

pytestmark = pytest.mark.e2e

CLASS = "drill"
CONFIG = f"""
[sluice]
pacer_timeout_s = 40

[classes.{CLASS}]
kind = "drill"
function_timeout_s = 30
slots = 8
declared_service_s = 2.0
"""


@dataclass(slots=True, kw_only=True)
class Site:
    """The deployment, its drill from the command line, and a way to change what is deployed."""

    emulator: Emulator
    config: Path
    outputs: Path
    code: Path

    def drill(self, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
        """Exit code and steps of `python -m ops drill`, run as an operator runs it."""
        command = [sys.executable, "-m", "ops", "--config", self.config, "--outputs", self.outputs, "drill", CLASS]
        asked = ["--reason", "a test", "--yes", "--json", *options]
        found = subprocess.run(
            [str(part) for part in (*command, *asked)],
            cwd=ROOT,
            env=scrubbed_environment(HOME=str(self.emulator.tmp), **self.emulator.environment()),
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert found.stdout, found.stderr
        return found.returncode, {step["name"]: step for step in json.loads(found.stdout)["steps"]}

    @contextmanager
    def changed(self, module: str, condition: str, without: str) -> Iterator[None]:
        """Every function runs the deployed code with this one condition taken out, and as it was afterwards."""
        path = self.code / module
        text = path.read_text()
        assert text.count(condition) == 1, f"{module} does not say {condition!r} once: the mutation is out of date"
        path.write_text(text.replace(condition, without))
        deploy_code(self.emulator, self.code)
        try:
            yield
        finally:
            path.write_text(text)
            deploy_code(self.emulator, self.code)


@pytest.fixture(scope="module")
def site(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Site:
    tmp = tmp_path_factory.mktemp("drill")
    config = tmp / "sluice.toml"
    config.write_text(CONFIG)
    deploy(emulator, config)
    bundle = stage(root=ROOT, config=config, into=tmp / "bundle", kinds=["drill"], platform=Platform.HOST)
    return Site(emulator=emulator, config=config, outputs=emulator.tmp / "outputs.json", code=bundle.code)


def test_all_of_it_holds_restore_included(site: Site) -> None:
    code, steps = site.drill("--restore")
    print(json.dumps(steps, indent=1))
    assert (code, [name for name, step in steps.items() if not step["ok"]]) == (0, []), steps
    assert len(steps) == 6
    assert "a worker killed between commit and acknowledgement" in steps["one effect"]["found"]
    assert "stale while it ran" in steps["one effect"]["found"]


MUTATIONS = [
    (
        "effect",
        "one effect",
        "shared/domain/messages.py",
        "job.state is State.QUEUED and job.epoch == message.epoch",
        "job.state is State.QUEUED",
        "a message of an earlier epoch was not found stale",
    ),
    (
        "run",
        "one run a minute",
        "shared/aws/ledger.py",
        '["M"] | extra, condition=ABSENT)',
        '["M"] | extra, condition=f"{ABSENT} OR attribute_exists(pk)")',
        "was executed",
    ),
    (
        "stop",
        "pause",
        "shared/domain/control.py",
        "return self.pause is None and self.halt is None",
        "return True",
        "of 6 jobs still wait",
    ),
]


@pytest.mark.parametrize(
    ("part", "step", "module", "condition", "without", "says"), MUTATIONS, ids=[row[1] for row in MUTATIONS]
)
def test_it_fails_where_the_check_is_taken_out(
    site: Site, part: str, step: str, module: str, condition: str, without: str, says: str
) -> None:
    with site.changed(module, condition, without):
        code, steps = site.drill("--only", part, "--force")
    assert (code, [name for name, each in steps.items() if not each["ok"]]) == (1, [step]), steps
    assert says in steps[step]["found"]
