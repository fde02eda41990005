"""The real CDK app on an emulator, deployed by the real CDK CLI, with an upstream beside it and an operator's ports.

`deployed` starts everything that the demo needs as one context manager; the end-to-end tests take its parts.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from botocore.config import Config
from msgspec import Struct
from msgspec.structs import replace

from ops.access import NoLog
from ops.local import processes
from ops.local.emulator import ACCOUNT, REGION, ROOT, Emulator
from ops.local.scenario import JOB_CLASS, LATENCY_MS, LIMIT_PER_S, config_text
from shared.aws.clients import Clients
from shared.aws.wiring import read_environment, wire
from shared.domain.configuration import load_settings
from shared.domain.settings import ClassSettings, Settings
from shared.ports import Ports

CDK: Final = ROOT / "node_modules" / ".bin" / "cdk"

QUIET: Final = ("--no-notices", "--no-color")
"""Options of every command: what it says goes into a log."""

STEP_TIMEOUT_S: Final = 180.0
"""For one command of the CDK CLI on a slow machine."""

UPSTREAM_START_S: Final = 10.0
"""Until the upstream has said where it listens."""


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


class Deployment(Struct, frozen=True, kw_only=True):
    """A running system, as its operator sees it."""

    emulator: Emulator
    upstream: UpstreamAdmin
    settings: Settings
    ports: Ports
    outputs: Mapping[str, str]

    @property
    def job_class(self) -> ClassSettings:
        return self.settings.classes[JOB_CLASS]

    @property
    def bucket(self) -> str:
        return self.outputs["BucketName"]

    def worker_processes(self) -> list[int]:
        """The pids of the worker function's processes now, idle ones included."""
        mappings = self.emulator.client("lambda").list_event_source_mappings()["EventSourceMappings"]
        lanes = json.loads(self.outputs["QueueUrls"])[JOB_CLASS].values()
        queues = {url.rsplit("/", 1)[1] for url in lanes}
        functions = {
            mapping["FunctionArn"].rsplit(":", 1)[1]
            for mapping in mappings
            if mapping["EventSourceArn"].rsplit(":", 1)[1] in queues
        }
        return [pid for name in sorted(functions) for pid in self.emulator.function_processes(name)]


class UpstreamAdmin:
    """The demo upstream's admin surface, from outside its process."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def endpoint(self) -> str:
        return f"{self.url}/v1/summarise"

    def report(self, *, with_keys: bool = False) -> dict[str, Any]:
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=10)
        try:
            connection.request("GET", "/admin/report?keys=1" if with_keys else "/admin/report")
            report: dict[str, Any] = json.loads(connection.getresponse().read())
            return report
        finally:
            connection.close()


@contextmanager
def deployed(venv: Path | None, *, say: Callable[[str], None]) -> Iterator[Deployment]:
    """Start everything; whatever happens in between, stop everything."""
    with ExitStack() as stack:
        tmp = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-demo-")))
        emulator = stack.enter_context(Emulator(venv))
        say(f"emulator: {emulator.endpoint}")
        upstream = UpstreamAdmin(stack.enter_context(upstream_process(tmp)))
        say(f"upstream: {upstream.endpoint}, {LIMIT_PER_S:g} calls/s, {LATENCY_MS} ms a call")
        config = tmp / "sluice.toml"
        config.write_text(config_text(upstream.endpoint))
        outputs = deploy(emulator, config, say=say)
        yield open_deployment(emulator, upstream, config, outputs)


def open_deployment(
    emulator: Emulator, upstream: UpstreamAdmin, config: Path, outputs: Mapping[str, str]
) -> Deployment:
    """An operator's ports on a deployed stack."""
    settings = load_settings(config)
    environment = read_environment(
        {
            "SLUICE_TABLE": outputs["TableName"],
            "SLUICE_BUCKET": outputs["BucketName"],
            "SLUICE_QUEUES": outputs["QueueUrls"],
            "SLUICE_CONFIG": str(config),
        }
    )

    def make(service: str, client_config: Config) -> Any:
        return emulator.client(service, client_config)

    host = wire(environment, settings, clients=Clients(make))
    ports = replace(host.ports, log=NoLog())
    return Deployment(emulator=emulator, upstream=upstream, settings=settings, ports=ports, outputs=outputs)


@contextmanager
def upstream_process(tmp: Path) -> Iterator[str]:
    """The upstream in a process of its own; its base URL."""
    log = tmp / "upstream.log"
    command = [sys.executable, "-m", "ops.local.upstream", "--limit", LIMIT_PER_S, "--latency-ms", LATENCY_MS]
    # The pacer's permits are evenly spaced; the network between them and the server is not.
    command += ["--burst", 3]
    process = processes.start([str(part) for part in command], env=processes.scrubbed_environment(), log=log, cwd=ROOT)
    try:
        yield _announced_url(process, log)
    finally:
        processes.stop(process)


def _announced_url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + UPSTREAM_START_S
    while time.monotonic() < deadline and process.poll() is None:
        if announced := re.match(r"listening on (\S+)\n", log.read_text()):
            return announced[1]
        time.sleep(0.05)
    raise processes.ProcessError(f"the upstream did not start\n{processes.tail(log)}")
