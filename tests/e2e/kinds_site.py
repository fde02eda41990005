"""The configuration of docs/kinds.md, deployed on the emulator beside the game's tables and objects."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from ops.local.deployment import Deployment, UpstreamAdmin, deploy, open_deployment, upstream_process
from ops.local.emulator import ROOT, Emulator
from shared.domain.job import Job
from shared.domain.stats import window_of
from tests.e2e.deaths import Deaths, deploy_deaths

TIMEOUT_S: Final = 10
"""Of a worker: what a kill costs is this and a little more, until its message comes back."""


@dataclass(frozen=True, kw_only=True)
class Site:
    stage: Deployment
    directory: Path
    deaths: Deaths

    @property
    def classes(self) -> list[str]:
        return sorted(self.stage.settings.classes)

    def client(self, service: str) -> Any:
        return self.stage.emulator.client(service)

    @cached_property
    def functions(self) -> Mapping[str, str]:
        """By what they are: intake, producer, pacer, and each class by the name of its worker."""
        listed = self.client("lambda").list_functions()["Functions"]
        found = {each["Handler"].split(".")[1]: each["FunctionName"] for each in listed}
        workers = {
            job_class: each["FunctionName"]
            for each in listed
            if each["Handler"].startswith("functions.worker.")
            for job_class in json.loads(each["Environment"]["Variables"]["SLUICE_QUEUES"])
        }
        return {**found, **workers}

    def invoke(self, function: str, event: Mapping[str, Any]) -> Any:
        answer = self.client("lambda").invoke(FunctionName=self.functions[function], Payload=json.dumps(event).encode())
        body = json.loads(answer["Payload"].read())
        assert "FunctionError" not in answer, body
        return body

    def tick(self, job_class: str) -> None:
        """The class's tick of this minute, if it was not yet: the schedule comes later. Waited for, since every further
        process of a function unpacks its layers anew."""
        minute_ms = window_of(self.stage.ports.clock.now_ms())
        moment = datetime.fromtimestamp(minute_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.invoke("pacer", {"job_class": job_class, "scheduled_at": moment, "source": "test"})

    def jobs(self) -> list[Job]:
        """Every row of the ledger."""
        pages = self.client("dynamodb").get_paginator("scan").paginate(TableName=self.stage.outputs["TableName"])
        items = [item for page in pages for item in page["Items"] if "job_class" in item and "state" in item]
        ids = [item["pk"]["S"].removeprefix("JOB#") for item in items]
        rows = [self.stage.ports.ledger.read_job(job_id) for job_id in ids]
        return [row for row in rows if row is not None]

    def objects(self, *prefixes: str) -> dict[str, bytes]:
        s3, bucket = self.client("s3"), self.stage.bucket
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return {key: s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys if key.startswith(prefixes)}

    def logs(self) -> str:
        """Everything that any function has printed."""
        logs = self.client("logs")
        groups = [group["logGroupName"] for group in logs.describe_log_groups()["logGroups"]]
        pages = [
            page for name in groups for page in logs.get_paginator("filter_log_events").paginate(logGroupName=name)
        ]
        return "\n".join(event["message"] for page in pages for event in page["events"])


def config_text(upstream: str) -> str:
    """The document's own configuration, with the local upstream, shorter leases and more patience with kills."""
    text = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/kinds.md").read_text(encoding="utf-8"), flags=re.DOTALL)[0]
    text = re.sub(r"https://[a-z]+\.example\.com", upstream, text).replace("timeout_s = 5.0", "timeout_s = 3.0")
    lease = f"function_timeout_s = {TIMEOUT_S}\nchunk_margin_s = 2.0\nretry = {{max_crashes = 20}}"
    return f"[sluice]\npacer_timeout_s = 40\n\n{text.replace('function_timeout_s = 60', lease)}"


@contextmanager
def open_site(
    emulator: Emulator, directory: Path, *, text: Callable[[str], str] = config_text, every: int = 3
) -> Iterator[Site]:
    """`text` makes the configuration of the upstream's URL; `every` how many chunks of a kind one is killed at."""
    with ExitStack() as stack:
        upstream = UpstreamAdmin(stack.enter_context(upstream_process(directory)))
        config = directory / "sluice.toml"
        config.write_text(text(upstream.url))
        outputs = deploy(emulator, config)
        opened = open_deployment(emulator, upstream, config, outputs)
        kinds = sorted({job_class.kind for job_class in opened.settings.classes.values()})
        deaths = deploy_deaths(emulator, config, directory, kinds=kinds, every=every)
        yield Site(stage=opened, directory=directory, deaths=deaths)
