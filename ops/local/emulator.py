"""The local AWS emulator (MiniStack) as a context manager: own session, own temporary directory, loopback only."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3
from botocore.config import Config

from ops.local import processes

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_VENV = ROOT / ".emulator"

ACCOUNT = "000000000000"
REGION = "eu-central-1"
CREDENTIAL = "test"  # any non-empty one; it is the account's number that the emulator would read from a numeric id
START_TIMEOUT_S = 30.0
"""Until the emulator answers, on a slow machine."""


class Emulator:
    """A fresh, empty AWS account on 127.0.0.1, alive between `__enter__` and `__exit__`.

    Functions run as processes of the emulator's own interpreter (`LAMBDA_EXECUTOR=local`, no Docker), in its process
    group and below its temporary directory: killing the one and removing the other leaves nothing behind.
    `enforces_iam` makes roles and policies count; without it everything is allowed.
    """

    def __init__(self, venv: Path | None = None, *, enforces_iam: bool = False) -> None:
        self._program = (venv or DEFAULT_VENV) / "bin" / "ministack"
        self._enforces_iam = enforces_iam
        self._process: subprocess.Popen[bytes] | None = None
        self._tmp: Path | None = None
        self.port = 0

    def __enter__(self) -> Self:
        processes.require(self._program)
        self.port = free_port()
        self._tmp = Path(tempfile.mkdtemp(prefix="sluice-emulator-"))
        try:
            self._process = processes.start([self._program], env=self._own_environment(), log=self.log, cwd=self._tmp)
            health = f"{self.endpoint}/_ministack/health"
            processes.wait_until_healthy(self._process, health, log=self.log, timeout_s=START_TIMEOUT_S)
        except BaseException:  # ctrl-C while waiting must clean up as well
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def tmp(self) -> Path:
        """The emulator's temporary directory; what is put there is removed with it."""
        if self._tmp is None:
            raise RuntimeError("the emulator is not running")
        return self._tmp

    @property
    def log(self) -> Path:
        return self.tmp / "emulator.log"

    def environment(self) -> dict[str, str]:
        """What an AWS client or the CDK CLI needs to reach this emulator and nothing else."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            # The CDK CLI asks for `bucket.host` unless S3 has an endpoint of its own; the name would not resolve.
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": CREDENTIAL,
            "AWS_SECRET_ACCESS_KEY": CREDENTIAL,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "CDK_DEFAULT_ACCOUNT": ACCOUNT,
            "CDK_DEFAULT_REGION": REGION,
        }

    def client(self, service: str, config: Config | None = None) -> Any:
        """A boto3 client of this emulator, whatever this process's environment says."""
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=CREDENTIAL,
            aws_secret_access_key=CREDENTIAL,
            config=config or Config(retries={"mode": "standard", "total_max_attempts": 3}),
        )

    def function_processes(self, function_name: str) -> list[int]:
        """The pids of the processes that serve one Lambda function now."""
        if self._process is None:
            return []
        mark = f"/ministack-lambda-{function_name}-"
        return [pid for pid, command in processes.members(self._process.pid) if mark in command]

    def stop(self) -> None:
        """End every process and remove every file of this emulator. May be called twice."""
        if self._process is not None:
            processes.stop(self._process)
            self._process = None
        if self._tmp is not None:
            shutil.rmtree(self._tmp, ignore_errors=True)
            self._tmp = None

    def _own_environment(self) -> dict[str, str]:
        tmp = str(self.tmp)
        return processes.scrubbed_environment(
            BIND_HOST="127.0.0.1",
            GATEWAY_PORT=str(self.port),
            LAMBDA_EXECUTOR="local",
            AUTH=str(self._enforces_iam).lower(),
            MINISTACK_ACCOUNT_ID=ACCOUNT,
            MINISTACK_REGION=REGION,
            LOG_LEVEL="WARNING",
            HOME=tmp,
            TMPDIR=tmp,
            S3_DATA_DIR=f"{tmp}/s3",
            STATE_DIR=f"{tmp}/state",
            # Otherwise a function's first import from the shared site-packages would write beside its sources.
            PYTHONDONTWRITEBYTECODE="1",
            PYTHONUTF8="1",
        )


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
