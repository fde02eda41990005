"""The app on an emulator that enforces IAM: every function can do what its role says, and nothing else.

Such an emulator cannot be deployed to with the CDK CLI, and differs from AWS in three ways, which a copy of the
template makes up for: it speaks plain HTTP, which the policies of queues and buckets refuse; it asks for an action of
its own, sqs:SendMessageBatch, where AWS is content with sqs:SendMessage; and it takes a reference to a secret for the
secret's name, where AWS gives its ARN.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ops.local import processes
from ops.local.deployment import (
    CDK,
    STEP_TIMEOUT_S,
    UpstreamAdmin,
    cdk_environment,
    open_deployment,
    steps,
    upstream_process,
)
from ops.local.emulator import ACCOUNT, REGION, ROOT, Emulator
from shared.domain.job import Job, NewJob
from shared.domain.settings import Settings
from shared.domain.stats import window_of
from shared.ports import Ports
from shared.submit.submission import submit_jobs

STACK: Final = "Sluice"
SECRET: Final = "WebhookSecret"
_SECRET_ARN: Final = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:${{{SECRET}}}-??????"

_TEMPLATES: Final = "templates"
_REFUSE_PLAIN_HTTP: Final = ("AWS::SQS::QueuePolicy", "AWS::S3::BucketPolicy")
_OF_BOOTSTRAP: Final = ("Parameters", "Rules")
"""They ask the account for the bootstrap's version, and there is no bootstrap here."""


def deploy(emulator: Emulator, config: Path) -> Mapping[str, str]:
    """Deploy the app as `config` describes it; the stack's outputs."""
    processes.require(CDK)
    assembly = emulator.tmp / "cdk.out"
    command = steps(config, assembly=assembly, outputs=emulator.tmp / "outputs.json")["synth"]
    log = emulator.tmp / "cdk-synth.log"
    processes.run(command, env=cdk_environment(emulator), log=log, cwd=ROOT, timeout_s=STEP_TIMEOUT_S)
    _upload(emulator, assembly)
    template = local_copy(json.loads((assembly / f"{STACK}.template.json").read_text()))
    emulator.client("s3").create_bucket(Bucket=_TEMPLATES, CreateBucketConfiguration={"LocationConstraint": REGION})
    emulator.client("s3").put_object(Bucket=_TEMPLATES, Key="template.json", Body=json.dumps(template).encode())
    cloudformation = emulator.client("cloudformation")
    url = f"{emulator.endpoint}/{_TEMPLATES}/template.json"  # a body could have 51,200 bytes
    cloudformation.create_stack(StackName=STACK, TemplateURL=url, Capabilities=["CAPABILITY_IAM"])
    cloudformation.get_waiter("stack_create_complete").wait(StackName=STACK, WaiterConfig={"Delay": 1})
    (stack,) = cloudformation.describe_stacks(StackName=STACK)["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


def local_copy(template: Mapping[str, Any]) -> dict[str, Any]:
    """The template without what this emulator cannot live with, and with what it asks for in its own words."""
    copy: dict[str, Any] = {name: part for name, part in template.items() if name not in _OF_BOOTSTRAP}
    resources = template["Resources"]
    kept = {name for name, each in resources.items() if each["Type"] not in _REFUSE_PLAIN_HTTP}
    copy["Resources"] = {name: _waiting_for(kept, resources[name]) for name in sorted(kept)}
    for statement in _statements(copy):
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        if "sqs:SendMessage" in actions:
            statement["Action"] = [*actions, "sqs:SendMessageBatch"]
        if statement["Resource"] == {"Ref": SECRET}:
            statement["Resource"] = {"Fn::Sub": _SECRET_ARN}
    return copy


def _waiting_for(kept: Collection[str], resource: Mapping[str, Any]) -> dict[str, Any]:
    awaited = resource.get("DependsOn", [])
    names = awaited if isinstance(awaited, list) else [awaited]
    return {**resource, "DependsOn": [each for each in names if each in kept]}


def _statements(template: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for each in template["Resources"].values():
        if each["Type"] == "AWS::IAM::Policy":
            yield from each["Properties"]["PolicyDocument"]["Statement"]


def _upload(emulator: Emulator, assembly: Path) -> None:
    """The assets, as the CDK CLI would publish them."""
    s3 = emulator.client("s3")
    assets = json.loads((assembly / f"{STACK}.assets.json").read_text())["files"].values()
    for asset in assets:
        if asset["source"]["packaging"] != "zip":
            continue  # the template itself
        for destination in asset["destinations"].values():
            bucket = destination["bucketName"].replace("${AWS::AccountId}", ACCOUNT).replace("${AWS::Region}", REGION)
            if bucket not in {each["Name"] for each in s3.list_buckets()["Buckets"]}:
                s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
            s3.put_object(Bucket=bucket, Key=destination["objectKey"], Body=_zipped(assembly / asset["source"]["path"]))


def _zipped(directory: Path) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(directory.rglob("*")):
            file.write(path, path.relative_to(directory))
    return archive.getvalue()


def config_text(upstream: str) -> str:
    """Everything that asks AWS for something, and all of it under a key of the account's."""
    return f"""
[sluice]
pacer_timeout_s = 40
customer_managed_key = true

[upstreams.model]
endpoint = "{upstream}/v1/summarise"
limit_per_s = 50.0

[classes.replay_summary]
kind = "replay_summary"
upstream = "model"
webhook = true
function_timeout_s = 60
slots = 4
retry = {{base_delay_s = 1.0}}

[classes.session_sweep]
kind = "session_sweep"
ordered = true
function_timeout_s = 60
slots = 4
options.sessions_table = "game-sessions"

[producers.match_ended]
replay_class = "replay_summary"

[producers.session_sweep]
job_class = "session_sweep"
"""


@dataclass(slots=True, kw_only=True)
class Site:
    """A deployment and its operator, who may do everything."""

    emulator: Emulator
    outputs: Mapping[str, str]
    ports: Ports
    settings: Settings

    def client(self, service: str) -> Any:
        return self.emulator.client(service)

    def put(self, key: str, body: bytes) -> None:
        self.client("s3").put_object(Bucket=self.outputs["BucketName"], Key=key, Body=body)

    def submit(self, job_id: str, **payload: str) -> str:
        job = NewJob(job_id=job_id, job_class="replay_summary", match_id=job_id, payload=json.dumps(payload))
        assert submit_jobs(self.ports, self.settings, [job]).created == 1
        return job_id

    def job(self, job_id: str) -> Job:
        found = self.ports.ledger.read_job(job_id)
        assert found is not None, job_id
        return found

    def function(self, room: str, *, job_class: str = "") -> Mapping[str, Any]:
        """The function whose handler is `functions.<room>`'s: of workers, the class's."""
        found: list[Mapping[str, Any]] = [
            each
            for each in self.client("lambda").list_functions()["Functions"]
            if each["Handler"].startswith(f"functions.{room}.")
            and job_class in each["Environment"]["Variables"]["SLUICE_QUEUES"]
        ]
        assert len(found) == 1, room
        return found[0]

    def invoke(self, room: str, event: Mapping[str, Any]) -> Any:
        name = self.function(room)["FunctionName"]
        answer = self.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event).encode())
        body = json.loads(answer["Payload"].read())
        assert "FunctionError" not in answer, body
        return body

    def tick(self, job_class: str) -> None:
        """Of this minute, which the schedule or the webhook may have had; then of the next one."""
        minute_ms = window_of(self.ports.clock.now_ms())
        for at_ms in (minute_ms, minute_ms + 60_000):
            moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self.invoke("pacer", {"job_class": job_class, "scheduled_at": moment})

    def logs(self) -> str:
        """Everything that any function has printed."""
        logs, said = self.client("logs"), []
        for group in logs.describe_log_groups()["logGroups"]:
            pages = logs.get_paginator("filter_log_events").paginate(logGroupName=group["logGroupName"])
            said += [event["message"] for page in pages for event in page["events"]]
        return "\n".join(said)


@contextmanager
def open_site(directory: Path) -> Iterator[Site]:
    with Emulator(enforces_iam=True) as emulator, upstream_process(directory) as url:
        config = directory / "sluice.toml"
        config.write_text(config_text(url))
        outputs = deploy(emulator, config)
        stage = open_deployment(emulator, UpstreamAdmin(url), config, outputs)
        yield Site(emulator=emulator, outputs=outputs, ports=stage.ports, settings=stage.settings)
