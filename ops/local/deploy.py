"""Put the real CDK app on an emulator with the real CDK CLI: synth, bootstrap, deploy."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ops.local import processes
from ops.local.emulator import ACCOUNT, REGION, ROOT, Emulator

CDK: Final = ROOT / "node_modules" / ".bin" / "cdk"
JSII_CACHE: Final = ROOT / "build" / "jsii-cache"
QUIET: Final = ("--no-notices", "--no-color")
STEP_TIMEOUT_S: Final = 180.0


def cdk_environment(emulator: Emulator) -> dict[str, str]:
    """The CLI's whole environment: this emulator's account, and a home in which nobody's credentials lie."""
    tmp = str(emulator.tmp)
    return processes.scrubbed_environment(HOME=tmp, TMPDIR=tmp, CDK_DISABLE_CLI_TELEMETRY="1", **emulator.environment())


def steps(config: Path, *, assembly: Path, outputs: Path) -> dict[str, list[str | Path]]:
    """Every CDK command, by what it does. `ephemeral` lets go of what production must keep (RETAIN, protection), and
    the functions run on this machine, so that compiled dependencies have to be its own."""
    cdk: list[str | Path] = [CDK, *QUIET]
    app: list[str | Path] = ["--app", assembly]
    context = ("-c", "ephemeral=true", "-c", "platform=host", "-c", f"config={config}")
    synth: list[str | Path] = ["synth", "-q", *context, "-o", assembly]
    confirm: list[str | Path] = ["--require-approval", "never", "--progress", "events", "--outputs-file", outputs]
    return {
        "synth": cdk + synth,
        "bootstrap": [*cdk, "bootstrap", *app, f"aws://{ACCOUNT}/{REGION}"],
        "deploy": [*cdk, "deploy", *app, "--all", *confirm],
    }


def deploy(emulator: Emulator, config: Path, *, say: Callable[[str], None] = lambda _: None) -> Mapping[str, str]:
    """Deploy the app as `config` (a sluice.toml) describes it; the stacks' outputs, merged."""
    processes.require(CDK)
    assembly, outputs = emulator.tmp / "cdk.out", emulator.tmp / "outputs.json"
    for name, command in steps(config, assembly=assembly, outputs=outputs).items():
        began = time.monotonic()
        log = emulator.tmp / f"cdk-{name}.log"
        processes.run(command, env=cdk_environment(emulator), log=log, cwd=ROOT, timeout_s=STEP_TIMEOUT_S)
        say(f"cdk {name}: {time.monotonic() - began:.1f} s")
    stacks: dict[str, dict[str, str]] = json.loads(outputs.read_text())
    return {name: value for stack in stacks.values() for name, value in stack.items()}
