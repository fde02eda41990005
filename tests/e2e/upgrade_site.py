"""Two versions of Sluice, deployed one over the other on one emulator: the release before, out of this repository's own
history, and this checkout.

Each is deployed and operated by its own code, from its own tree. What they leave behind is read here as it is stored,
which says the same whichever version wrote it, and the upstream writes down every call.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ops.local import processes
from ops.local.deployment import STEP_TIMEOUT_S, UpstreamAdmin, cdk_environment, open_deployment, steps
from ops.local.emulator import ROOT, Emulator
from ops.local.scenario import Replay
from ops.local.upstream import InferenceServer, Verdict
from shared.domain.stats import window_of
from shared.ports import Ports

RELEASE_BEFORE: Final = "dcfe59ee891c8e156d9cd659eb369634816a1b04"
"""The last commit of the release before this one. Whoever makes the next release moves it on."""

STACK: Final = "Sluice"

ENVIRONMENTS: Final = (".venv", "node_modules")
"""What `make setup` has built, and the tree of the release before borrows. Its functions' dependencies are its own."""

LIMIT_PER_S: Final = 10.0
LATENCY_S: Final = 0.25

PIP: Final = ("pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-compile")

Item = Mapping[str, Any]
Rows = Mapping[tuple[str, str], Item]
"""Every item of the table as it is stored, by its two keys."""


class Upstream(InferenceServer):
    """The demo's, with a log: the idempotency key of every call that was answered, in order, repeats included."""

    def __init__(self) -> None:
        super().__init__(limit_per_s=LIMIT_PER_S, burst=LIMIT_PER_S, think=lambda: time.sleep(LATENCY_S))
        self.log: list[str] = []

    def judge(self, key: str, text: str) -> tuple[Verdict, float]:
        verdict, wait_s = super().judge(key, text)
        if verdict is not Verdict.REFUSED:
            self.log.append(key)
        return verdict, wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A tree of the code, and the cloud assembly that its own app makes."""

    name: str
    tree: Path
    assembly: Path

    def resources(self) -> Mapping[str, Any]:
        """The stack's template, by logical id."""
        resources: dict[str, Any] = json.loads((self.assembly / f"{STACK}.template.json").read_text())["Resources"]
        return resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The one deployment, and what each version can do to it."""

    emulator: Emulator
    upstream: Upstream
    directory: Path
    before: Version
    after: Version

    @property
    def config(self) -> Path:
        return self.directory / "sluice.toml"

    @property
    def outputs_file(self) -> Path:
        return self.directory / "outputs.json"

    @property
    def outputs(self) -> Mapping[str, str]:
        outputs: dict[str, str] = json.loads(self.outputs_file.read_text())[STACK]
        return outputs

    def cdk(self, version: Version, *names: str) -> None:
        """Run these steps of a deployment (synth, bootstrap, deploy) with the version's own app."""
        commands = steps(self.config, assembly=version.assembly, outputs=self.outputs_file)
        for name in names:
            log = self.directory / f"cdk-{version.name}-{name}.log"
            environment = cdk_environment(self.emulator)
            processes.run(commands[name], env=environment, log=log, cwd=version.tree, timeout_s=STEP_TIMEOUT_S)

    def ops(self, version: Version, *arguments: str) -> Any:
        """What the version's own command line answers, asked for JSON."""
        options = ("--config", str(self.config), "--outputs", str(self.outputs_file))
        answer = subprocess.run(
            [sys.executable, "-m", "ops", *options, *arguments, "--json"],
            cwd=version.tree,
            env=processes.scrubbed_environment(HOME=str(self.emulator.tmp), **self.emulator.environment()),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    def ports(self) -> Ports:
        """The deployment as this checkout's code sees it."""
        upstream = UpstreamAdmin(self.upstream.url)
        return open_deployment(self.emulator, upstream, self.config, self.outputs).ports

    def tick(self, job_class: str) -> None:
        """Ask for the class's tick of this minute: the emulator's schedule may come late. A tick that fails, as it may
        while functions change, leaves its work to the next one."""
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        minute = datetime.fromtimestamp(window_of(now_ms) / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = json.dumps({"job_class": job_class, "scheduled_at": minute, "source": "test"}).encode()
        self.emulator.client("lambda").invoke(FunctionName=self.outputs["PacerName"], Payload=event)

    def upload(self, replays: Sequence[Replay]) -> None:
        s3, bucket = self.emulator.client("s3"), self.outputs["BucketName"]
        with ThreadPoolExecutor(4) as threads:
            uploads = [
                threads.submit(s3.put_object, Bucket=bucket, Key=replay.key, Body=replay.body) for replay in replays
            ]
        for upload in uploads:
            upload.result()

    def rows(self) -> Rows:
        pages = self.emulator.client("dynamodb").get_paginator("scan").paginate(TableName=self.outputs["TableName"])
        return {(item["pk"]["S"], item["sk"]["S"]): item for page in pages for item in page["Items"]}

    def objects(self, prefix: str) -> int:
        pages = self.emulator.client("s3").get_paginator("list_objects_v2")
        return sum(page["KeyCount"] for page in pages.paginate(Bucket=self.outputs["BucketName"], Prefix=prefix))

    def physical_ids(self) -> Mapping[str, str]:
        """What stands behind each logical id of the stack."""
        pages = self.emulator.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=STACK)
        resources = [resource for page in pages for resource in page["StackResourceSummaries"]]
        return {resource["LogicalResourceId"]: resource["PhysicalResourceId"] for resource in resources}


def history_is_there() -> bool:
    """Whether the repository holds the release before: a shallow clone and an unpacked archive do not."""
    if shutil.which("git") is None:
        return False
    command = ["git", "cat-file", "-e", f"{RELEASE_BEFORE}^{{commit}}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


def tree_before(directory: Path) -> Path:
    """The release before, unpacked and set up: this checkout's environments, and dependencies of its own to ship."""
    tree = directory / "before"
    archive = subprocess.run(["git", "archive", RELEASE_BEFORE], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(tree, filter="data")
    for name in ENVIRONMENTS:
        (tree / name).symlink_to(processes.require(ROOT / name))
    command = [sys.executable, "-m", *PIP, "--target", "build/dependencies", "-r", "functions/requirements.txt"]
    processes.run(command, env=os.environ, log=directory / "pip.log", cwd=tree, timeout_s=STEP_TIMEOUT_S)
    return tree


@contextmanager
def open_site(emulator: Emulator, directory: Path, *, config: str) -> Iterator[Site]:
    """Both versions synthesised, none deployed. `config` says @UPSTREAM@ where the upstream's URL belongs."""
    before = Version(name="before", tree=tree_before(directory), assembly=directory / "assembly-before")
    after = Version(name="after", tree=ROOT, assembly=directory / "assembly-after")
    with served_upstream() as upstream:
        site = Site(emulator=emulator, upstream=upstream, directory=directory, before=before, after=after)
        site.config.write_text(config.replace("@UPSTREAM@", upstream.url))
        for version in (before, after):
            site.cdk(version, "synth")
        yield site


@contextmanager
def served_upstream() -> Iterator[Upstream]:
    upstream = Upstream()
    thread = threading.Thread(target=upstream.serve_forever, daemon=True)
    thread.start()
    try:
        yield upstream
    finally:
        upstream.shutdown()
        upstream.server_close()
        thread.join()
